"""Tools that speak another vocabulary than the backend."""

import amanda
import numpy as np
import pytest
from amanda import Tool
from amanda.driving import Action, Analysis, Point, View
from amanda.testing import Program
from amanda.testing.adapter import assert_close, numbers
from amanda.testing.models import W1, W2, X, perceptron, plain_gradients, sigmoid
from amanda.testing.packages import install
from amanda_contextmap.translation import Translation
from fake_backend import FakeDriver, execution, operator
from numpy_backend.adapter import NumpyAdapter

ADAPTER = NumpyAdapter()
MASK = np.array([[1, 0, 1, 0]] * 3, np.float32)


@pytest.fixture(autouse=True)
def _installed(tmp_path, monkeypatch):
    """The map is installed the way a package does it, by its metadata."""
    announced = "[amanda.context_maps]\nnumpy:loud = loud_vocabulary:context_map\n"
    install(tmp_path, "loud", entry_points=announced)
    monkeypatch.syspath_prepend(tmp_path)


def tool(analyze, ops, *, layout="canonical", gradient=False, **options):
    made = Tool(namespace="loud", layout=layout)
    if gradient:
        made.add_inst_for_gradient(analyze, ops=ops)
    else:
        made.add_inst_for_op(analyze, ops=ops, **options)
    return made


def at(layer, insertion, routine, ops, **options):
    """A tool that inserts one routine at the operators of a layer."""
    view = {key: options.pop(key) for key in ("gradient", "backward", "layout") if key in options}

    def analyze(ctx):
        if ADAPTER.layer(ctx.op) == layer:
            getattr(ctx, insertion)(routine, **options)

    return tool(analyze, ops, **view)


def forward(*tools):
    with amanda.apply(*tools):
        return perceptron(ADAPTER).forward({"x": X})


def gradients(*tools):
    with amanda.apply(*tools):
        return perceptron(ADAPTER).gradients(["x", "w1", "w2"], {"x": X})


class TestOperatorAfterTheAnalysis:
    """A context that is kept shows each tool the operator in the tool's own vocabulary."""

    def keeping(self, made, type):
        """A tool that keeps contexts, and what its routines find the type there to be."""
        kept, types = [], []

        def routine(*tensors, ctx):
            types.append(ctx.op.type)

        def analyze(ctx):
            kept.append(ctx)
            ctx.insert_before_op(routine, ctx=ctx)
            ctx.insert_after_op(routine, ctx=ctx)

        made.add_inst_for_op(analyze, ops=[type])
        return made, kept, types

    def test_a_routine_finds_the_type_that_its_tool_was_shown(self):
        loud, kept, types = self.keeping(Tool(namespace="loud"), "MATMUL")
        forward(loud)
        assert types == ["MATMUL"] * 4
        assert [ctx.op.type for ctx in kept] == ["MATMUL"] * 2

    def test_tools_of_two_vocabularies_that_share_it_each_find_their_own(self):
        loud, kept, types = self.keeping(Tool(namespace="loud"), "MATMUL")
        native, shared, native_types = self.keeping(Tool(), "matmul")
        forward(native, loud)
        assert types == ["MATMUL"] * 4
        assert native_types == ["matmul"] * 4
        assert all(mine is other for mine, other in zip(kept, shared, strict=True))
        assert [ctx.op.type for ctx in kept] == ["matmul"] * 2  # outside of all routines

    def test_a_tool_that_was_never_shown_it_finds_what_others_were(self):
        native, kept, _ = self.keeping(Tool(), "matmul")
        forward(native)
        found = []

        def routine(*tensors):
            found.append(kept[0].op.type)

        loud = Tool(namespace="loud")
        loud.add_inst_for_op(lambda ctx: ctx.insert_after_op(routine), ops=["MATMUL"])
        forward(loud)
        assert found == ["matmul"] * 2


class TestContext:
    def test_operators_go_by_their_names_there(self):
        types = []
        forward(tool(lambda ctx: types.append(ctx.op.type), ["MATMUL", "SIGMOID"]))
        assert types == ["MATMUL", "SIGMOID", "MATMUL"]

    def test_a_tool_that_names_no_types_sees_all(self):
        types = []
        forward(tool(lambda ctx: types.append(ctx.op.type), None))
        assert types == ["MATMUL", "SIGMOID", "MATMUL"]

    def test_roles_attributes_and_ids(self):
        def look(ctx):
            assert list(ctx.input_names) == ["W", "X"]
            assert ctx.attrs == {"LOUD": True}
            assert ctx.op.id.endswith("/matmul")
            np.testing.assert_array_equal(ctx.input("X").array, ctx.inputs[1].array)

        forward(tool(look, ["MATMUL"]))

    def test_tensors_are_seen_in_its_layout(self):
        def look(ctx):
            weight = W1 if ADAPTER.layer(ctx.op) == "hidden" else W2
            np.testing.assert_array_equal(ctx.inputs[0].array, weight.T)
            np.testing.assert_array_equal(ctx.value(0), weight.T)

        forward(tool(look, ["MATMUL"]))

    def test_or_in_the_native_one_for_a_tool_that_asks_for_it(self):
        def look(ctx):
            weight = W1 if ADAPTER.layer(ctx.op) == "hidden" else W2
            np.testing.assert_array_equal(ctx.inputs[0].array, weight)
            np.testing.assert_array_equal(ctx.value(0), weight)

        forward(tool(look, ["MATMUL"], layout="native"))

    def test_the_weight_has_its_index_there(self):
        weights = []
        forward(tool(lambda ctx: weights.append(ctx.weight_index), ["MATMUL", "SIGMOID"]))
        assert weights == [0, None, 0]

    def test_a_parameter_is_told_as_the_backend_has_it(self):
        def look(ctx):
            weight = W1 if ADAPTER.layer(ctx.op) == "hidden" else W2
            assert ctx.describe(ctx.inputs[0]).shape == weight.T.shape
            assert ctx.parameter("W").info.shape == weight.shape
            assert ctx.parameter("W").source is ctx.parameter(0).source
            assert ctx.parameter("X") is None

        forward(tool(look, ["MATMUL"]))


class TestInsertions:
    @pytest.mark.parametrize("inputs", [[0], ["W"], [-2]])
    def test_a_masked_weight(self, inputs):
        mask = ADAPTER.tensor(MASK.T)
        masking = at("hidden", "insert_before_op", lambda w: w * mask, ["MATMUL"], inputs=inputs)
        assert_close(forward(masking), sigmoid(X @ (W1 * MASK)) @ W2)
        found, plain = gradients(masking), plain_gradients(w1=W1 * MASK)
        assert_close(found["x"], plain.x)
        assert_close(found["w1"], plain.w1)

    def test_a_masked_weight_in_the_native_layout(self):
        mask = ADAPTER.tensor(MASK)
        masking = at(
            "hidden",
            "insert_before_op",
            lambda w: w * mask,
            ["MATMUL"],
            inputs=["W"],
            layout="native",
        )
        assert_close(forward(masking), sigmoid(X @ (W1 * MASK)) @ W2)

    def test_all_inputs_come_in_its_order(self):
        mask = ADAPTER.tensor(MASK.T)

        def routine(w, x):
            return w * mask, x * 2

        both = at("hidden", "insert_before_op", routine, ["MATMUL"])
        assert_close(forward(both), sigmoid(2 * X @ (W1 * MASK)) @ W2)
        weight_alone = at("hidden", "insert_before_op", lambda w, x: (w * mask, None), ["MATMUL"])
        assert_close(forward(weight_alone), sigmoid(X @ (W1 * MASK)) @ W2)

    def test_a_replacement(self):
        def routine(w, x):
            return ADAPTER.tensor(ADAPTER.array(x) @ ADAPTER.array(w).T * 2)

        doubled = at("hidden", "replace_op", routine, ["MATMUL"])
        assert_close(forward(doubled), sigmoid(2 * X @ W1) @ W2)

    def test_outputs_come_in_its_order(self):
        program = Program("""
            top, bottom = cut/unstack(x)
            y = join/multiply(bottom, bottom)
        """)
        x = numbers(2, 3)
        twice = at("cut", "insert_after_op", lambda first: first * 2, ["UNSTACK"], outputs=[0])
        with amanda.apply(twice):
            result = ADAPTER.build(program, {}).forward({"x": x})
        np.testing.assert_array_equal(result, 4 * x[1] * x[1])

    def test_a_failing_routine_goes_by_its_own_name(self):
        def fails(w):
            raise KeyError("lost")

        with pytest.raises(amanda.RoutineError, match="fails at before_op"):
            forward(at("hidden", "insert_before_op", fails, ["MATMUL"], inputs=["W"]))

    def test_a_routine_that_only_observes_is_held_to_it(self):
        def observes(w) -> None:
            return w

        with pytest.raises(amanda.RoutineError, match="is annotated to return None"):
            forward(at("hidden", "insert_before_op", observes, ["MATMUL"], inputs=["W"]))

    def test_a_name_that_the_operator_lacks(self):
        with pytest.raises(amanda.ActionError, match=r"'B' is none of \['W', 'X'\]"):
            forward(at("hidden", "insert_before_op", print, ["MATMUL"], inputs=["B"]))


class TestGradients:
    def test_they_line_up_with_its_roles_and_layout(self):
        seen = []
        gradients(
            at(
                "hidden",
                "insert_on_grad_inputs",
                lambda dw, dx: seen.append((dw.array, dx.array)),
                ["MATMUL"],
                gradient=True,
            )
        )
        ((dw, dx),) = seen
        assert_close(dw, plain_gradients().w1.T)
        assert_close(dx, plain_gradients().x)

    def test_the_context_shows_them(self):
        def look(ctx):
            dw, dx = ctx.grad_inputs
            weight, x = ctx.inputs
            assert dw.array.shape == weight.array.shape
            assert dx.array.shape == x.array.shape

        gradients(tool(look, ["MATMUL"], gradient=True))

    def test_a_replaced_one_is_turned_back(self):
        mask = ADAPTER.tensor(MASK.T)
        found = gradients(
            at(
                "hidden",
                "insert_on_grad_inputs",
                lambda dw: dw * mask,
                ["MATMUL"],
                gradient=True,
                inputs=["W"],
            )
        )
        assert_close(found["w1"], plain_gradients().w1 * MASK)
        assert_close(found["x"], plain_gradients().x)

    @pytest.mark.parametrize("ops", [["MATMUL"], ["MATMULGrad"]])
    def test_backward_operators_are_gradients_as_a_whole(self, ops):
        types = []

        def look(ctx):
            types.append((ctx.op.type, ctx.backward_op.type))
            assert ctx.is_backward()
            assert ctx.backward_op_id.endswith("/MATMULGrad")

        gradients(tool(look, ops, backward=True))
        assert types == [("MATMUL", "MATMULGrad")] * 2

    def test_routines_around_a_backward_operator(self):
        found = gradients(
            at(
                "hidden",
                "insert_after_backward_op",
                lambda dw: dw * 8,
                ["MATMUL"],
                backward=True,
                grad_inputs=[0],
            ),
            at("head", "insert_before_backward_op", lambda g: g * 2, ["MATMUL"], backward=True),
        )
        plain = plain_gradients()
        assert_close(found["w1"], plain.w1 * 16)
        assert_close(found["x"], plain.x * 2)
        assert_close(found["w2"], plain.w2 * 2)

    def test_a_gradient_as_a_whole_cannot_be_replaced(self):
        replacing = at("head", "replace_backward_op", print, ["MATMUL"], backward=True)
        with pytest.raises(amanda.UnsupportedError, match="cannot be replaced"):
            gradients(replacing)


def test_native_and_translated_tools_compose():
    native = Tool(namespace="numpy")
    native.add_inst_for_op(lambda ctx: ctx.insert_before_op(lambda h: h * 2), ops=["sigmoid"])
    loud = at("act", "insert_after_op", lambda a: a * 4, ["SIGMOID"])
    assert_close(forward(native, loud), 4 * sigmoid(2 * X @ W1) @ W2)


class Tenfold:
    """A layout that can be told in numbers."""

    def to_canonical(self, tensor, xp):
        return tensor * 10

    def to_native(self, tensor, xp):
        return tensor / 10


def test_an_output_counted_from_the_end():
    twice = at("act", "insert_after_op", lambda a: a * 2, ["SIGMOID"], outputs=[-1])
    assert_close(forward(twice), 2 * sigmoid(X @ W1) @ W2)


class TestLayoutsThatAreLeftOut:
    """Only the first tensor has another layout; the others agree."""

    def insert(self, point, routine, indices):
        translation = Translation("T", (0, 1), ("A", "B"), {}, None, [Tenfold()], [Tenfold()])
        native = Analysis(FakeDriver(), Tool(), View.FORWARD, execution(operator()), [False] * 2)
        translation.analysis(native).insert(Action(point, routine, Tool(), indices))
        (action,) = native.actions
        return action

    @pytest.mark.parametrize("point", [Point.BEFORE_OP, Point.AFTER_OP])
    @pytest.mark.parametrize(
        ("indices", "given", "seen"),
        [
            (None, (1, 2), (10, 2)),
            ((0,), (1,), (10,)),
            ((1,), (2,), (2,)),
            ((1, 0), (2, 1), (2, 10)),
        ],
    )
    def test_each_tensor_has_its_own(self, point, indices, given, seen):
        def routine(*tensors):
            assert tensors == seen
            return tensors

        result = self.insert(point, routine, indices).routine(*given)
        assert tuple(result) == given

    def test_one_counted_from_an_end_that_is_not_known_is_refused(self):
        with pytest.raises(amanda.ActionError, match="require_outputs=True"):
            self.insert(Point.AFTER_OP, print, (-1,))

    def test_a_replacement_takes_inputs_and_gives_outputs(self):
        action = self.insert(Point.REPLACE_OP, lambda b: (b * 20, b), (1,))
        assert action.indices == (1,)
        assert list(action.routine(2)) == [4, 2]
