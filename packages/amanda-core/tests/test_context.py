"""What a context gives an analysis routine, and what it refuses."""

import contextlib
import functools
import gc
import weakref

import amanda
import pytest
from amanda import Tool
from fake_backend import FakeDriver, engine, execution, operator


def analyze(routine, *, of=None, backward=False, gradient=False, **shown):
    """Have one analysis routine look at one operator; the engine's plan for it."""
    tool = Tool()
    if gradient:
        tool.add_inst_for_gradient(routine)
        return engine(tool).gradient_plan(execution(of or operator(), **shown))
    tool.add_inst_for_op(routine, backward=backward)
    if backward:
        shown.setdefault("backward_operator", operator("conv2d_backward"))
        return engine(tool).backward_plan(execution(of or operator(), **shown))
    return engine(tool).analyze(execution(of or operator(), **shown))


class TestInputs:
    def test_the_weight_has_two_names(self):
        analyze(lambda ctx: check(ctx.weight == ctx.weight_index))

    def test_by_name(self):
        analyze(lambda ctx: check(ctx.input("weight") == 2))

    def test_a_list_by_its_name_and_elements(self):
        def look(ctx):
            assert ctx.input("tensors") == [1, 2]
            assert ctx.input("tensors[1]") == 2
            assert ctx.input("out") == 3

        names = ("tensors[0]", "tensors[1]", "out")
        analyze(look, inputs=(1, 2, 3), names=names)

    def test_a_list_of_a_similar_name_is_another_one(self):
        def look(ctx):
            assert ctx.input("x") == [1]
            assert ctx.input("xs") == [2]

        analyze(look, names=("x[0]", "xs[0]"))

    def test_one_that_is_absent_is_none(self):
        analyze(lambda ctx: check(ctx.input("bias") is None), attrs={"bias": None, "stride": 1})

    @pytest.mark.parametrize("name", ["bias", "stride", "tensors"])
    def test_one_that_does_not_exist(self, name):
        def look(ctx):
            with pytest.raises(amanda.ValueUnavailableError, match=f"no input '{name}'"):
                ctx.input(name)

        analyze(look, attrs={"stride": 1})

    def test_a_value_by_index_or_name(self):
        def look(ctx):
            assert [ctx.value(0), ctx.value(1), ctx.value(-1)] == [1, 2, 2]
            assert ctx.value("weight") == 2
            for index in (2, -3):
                with pytest.raises(amanda.ActionError, match="out of range"):
                    ctx.value(index)

        analyze(look)

    def test_insertions_may_name_them(self):
        plan = analyze(lambda ctx: ctx.insert_before_op(print, inputs=["weight", 0]))
        assert plan.before[0].indices == (1, 0)


class TestSides:
    def test_forward(self):
        def look(ctx):
            assert ctx.is_forward()
            assert not ctx.is_backward()
            assert ctx.get_backward_op() is None
            assert ctx.get_backward_op_id() is None

        analyze(look)

    def test_backward(self):
        def look(ctx):
            assert ctx.is_backward()
            assert not ctx.is_forward()
            assert ctx.get_op_id() == "a/conv2d"
            assert ctx.get_backward_op_id() == "a/conv2d_backward"
            assert ctx.get_backward_op().type == "conv2d_backward"
            assert ctx.get_grad_outputs() == [5]

        analyze(look, backward=True, grad_outputs=[5])

    def test_a_gradient_as_a_whole(self):
        def look(ctx):
            assert ctx.is_backward()
            assert ctx.backward_op is None
            assert ctx.outputs == [4]
            assert ctx.grad_inputs == [6, None]

        analyze(look, gradient=True, outputs=[4], grad_outputs=[5], grad_inputs=[6, None])

    def test_published_getters_are_the_properties(self):
        def look(ctx):
            assert ctx.get_op() == ctx.op
            assert ctx.get_inputs() is ctx.inputs
            assert ctx.get_outputs() is ctx.outputs

        analyze(look, outputs=[3])

    def test_input_gradients_are_computed_once_and_when_asked_for(self):
        computed = []

        def grad_inputs():
            computed.append(True)
            return [7, 8]

        analyze(lambda ctx: None, gradient=True, grad_outputs=[5], grad_inputs=grad_inputs)
        assert computed == []
        analyze(
            lambda ctx: check(ctx.grad_inputs == ctx.grad_inputs == [7, 8]),
            gradient=True,
            grad_outputs=[5],
            grad_inputs=grad_inputs,
        )
        assert computed == [True]

    @pytest.mark.parametrize(
        ("shown", "name", "way_out"),
        [
            ({}, "outputs", "require_outputs=True"),
            ({"backward": True, "grad_outputs": [1]}, "grad_inputs", "require_outputs=True"),
            ({}, "grad_outputs", "forward side"),
        ],
    )
    def test_what_is_not_known_yet(self, shown, name, way_out):
        def look(ctx):
            with pytest.raises(amanda.ValueUnavailableError, match=way_out) as caught:
                getattr(ctx, name)
            assert "a/conv2d" in str(caught.value)

        analyze(look, **shown)

    @pytest.mark.parametrize("look", ["inputs", "outputs", "activation"])
    def test_what_was_not_kept_for_the_backward(self, look):
        def analyze_backward(ctx):
            with pytest.raises(amanda.ValueUnavailableError, match="without keep_forward=False"):
                getattr(ctx, look)
            seen.append(ctx.grad_outputs)

        seen = []
        tool = Tool()
        tool.add_inst_for_op(analyze_backward, backward=True, keep_forward=False)
        shown = {"backward_operator": operator("conv2d_backward"), "grad_outputs": [5]}
        active = engine(tool)
        of = operator()
        assert not active.keeps_forward(of)
        active.backward_plan(execution(of, **shown))
        assert seen == [[5]]

    def test_a_tool_that_looks_at_it_has_it_kept(self):
        heedless, looking = Tool(), Tool()
        heedless.add_inst_for_op(lambda ctx: None, backward=True, keep_forward=False)
        looking.add_inst_for_op(lambda ctx: None, backward=True)
        assert engine(heedless, looking).keeps_forward(operator())

    def test_nothing_is_to_be_kept_where_the_forward_is_analyzed(self):
        with pytest.raises(ValueError, match="backward=True"):
            Tool().add_inst_for_op(lambda ctx: None, keep_forward=False)


class TestInsertions:
    @pytest.mark.parametrize(
        ("view", "insertion", "way_out"),
        [
            ({}, "insert_before_backward_op", r"add_inst_for_op\(backward=True\)"),
            ({}, "insert_after_backward_op", r"add_inst_for_op\(backward=True\)"),
            ({}, "replace_backward_op", r"add_inst_for_op\(backward=True\)"),
            ({}, "insert_on_grad_outputs", "add_inst_for_gradient"),
            ({}, "insert_on_grad_inputs", "add_inst_for_gradient"),
            (
                {"backward": True},
                "insert_before_op",
                r"has insert_before_backward_op, replace_backward_op, .*; for insert_before_op "
                ".* add_inst_for_op, without backward=True",
            ),
            ({"backward": True}, "replace_op", "add_inst_for_op"),
            ({"gradient": True}, "insert_after_op", "add_inst_for_op"),
            ({"gradient": True}, "insert_before_backward_op", "backward=True"),
        ],
    )
    def test_those_of_another_view_name_the_way_out(self, view, insertion, way_out):
        with pytest.raises(amanda.UnsupportedError, match=way_out):
            analyze(lambda ctx: getattr(ctx, insertion)(print), grad_outputs=[1], **view)

    @pytest.mark.parametrize("question", ["describe", "numpy"])
    def test_what_is_absent_cannot_be_asked_about(self, question):
        def look(ctx):
            with pytest.raises(TypeError, match="no gradient flows there; leave out what is None"):
                getattr(ctx, question)(None)

        analyze(look)

    def test_a_routine_must_be_callable(self):
        with pytest.raises(amanda.ActionError, match="not callable"):
            analyze(lambda ctx: ctx.insert_before_op("print"))

    @pytest.mark.parametrize(
        ("insertion", "options", "shown"),
        [
            ("insert_before_op", {"inputs": [2]}, {}),
            ("replace_op", {"inputs": [2]}, {}),
            ("insert_after_op", {"outputs": [1]}, {"outputs": [3]}),
            ("insert_before_backward_op", {"grad_outputs": [1]}, {"backward": True}),
            ("replace_backward_op", {"grad_outputs": [1]}, {"backward": True}),
            (
                "insert_after_backward_op",
                {"grad_inputs": [1]},
                {"backward": True, "grad_inputs": [4]},
            ),
            ("insert_on_grad_outputs", {"outputs": [1]}, {"gradient": True}),
            ("insert_on_grad_inputs", {"inputs": [2]}, {"gradient": True}),
        ],
    )
    def test_indices_are_held_to_what_is_known(self, insertion, options, shown):
        if "backward" in shown or "gradient" in shown:
            shown = {"grad_outputs": [3], **shown}
        with pytest.raises(amanda.ActionError, match="out of range") as caught:
            analyze(lambda ctx: getattr(ctx, insertion)(print, **options), **shown)
        for part in ("Tool", "print", insertion.removeprefix("insert_"), "a/conv2d"):
            assert part in str(caught.value)

    @pytest.mark.parametrize(("index", "looks"), [(0, 0), (9, 1)])
    def test_the_line_of_an_operator_is_looked_for_only_where_it_is_told(self, index, looks):
        looked = []
        of = operator(locate=lambda: looked.append(True))
        with contextlib.suppress(amanda.ActionError):
            analyze(lambda ctx: ctx.insert_before_op(print, inputs=[index]), of=of)
        assert len(looked) == looks

    def test_keyword_arguments_are_those_of_the_routine(self):
        plan = analyze(lambda ctx: ctx.insert_after_op(print, pure=True, sep="-"))
        (action,) = plan.after
        assert action.kwargs == {"sep": "-"}
        assert action.pure
        assert not action.differentiable

    @pytest.mark.parametrize(
        ("view", "insertion", "option", "nearest"),
        [
            ({}, "insert_before_op", "input", "inputs"),
            ({}, "insert_after_op", "outptus", "outputs"),
            ({}, "replace_op", "diferentiable", "differentiable"),
            ({"backward": True}, "insert_before_backward_op", "grad_output", "grad_outputs"),
            ({"backward": True}, "insert_after_backward_op", "grads_inputs", "grad_inputs"),
            ({"backward": True}, "replace_backward_op", "pur", "pure"),
            ({"gradient": True}, "insert_on_grad_outputs", "output", "outputs"),
            ({"gradient": True}, "insert_on_grad_inputs", "inptus", "inputs"),
        ],
    )
    def test_an_option_that_the_routine_does_not_take_is_refused(
        self, view, insertion, option, nearest
    ):
        shown = {"grad_outputs": [1]} if view else {}
        with pytest.raises(amanda.ActionError) as caught:
            analyze(
                lambda ctx: getattr(ctx, insertion)(lambda *ts: None, **{option: [0]}),
                **view,
                **shown,
            )
        assert f"takes no {option!r}; did you mean {nearest!r}?" in str(caught.value)
        assert "a/conv2d" in str(caught.value)

    def test_an_option_of_other_points_is_refused_as_one(self):
        with pytest.raises(amanda.ActionError, match="there is no 'original' at this point"):
            analyze(lambda ctx: ctx.insert_before_op(lambda *ts: None, original=True))

    def test_a_routine_of_which_a_call_runs_nothing_is_refused(self):
        async def coroutine(*tensors):
            pass

        with pytest.raises(amanda.ActionError, match=r"coroutine at before_op of .*a/conv2d"):
            analyze(lambda ctx: ctx.insert_before_op(coroutine))

    def test_an_option_unlike_any_other_is_refused_without_a_guess(self):
        with pytest.raises(amanda.ActionError, match=r"the routine takes no 'zebra'$"):
            analyze(lambda ctx: ctx.insert_before_op(lambda *ts: None, zebra=1))

    @pytest.mark.parametrize(
        "routine",
        [
            lambda *ts, outptus: None,
            lambda x, outptus=1: None,
            lambda *ts, **options: None,
            functools.partial(lambda x, by, outptus: None, by=2),
            type("Callable", (), {"__call__": lambda self, *ts, outptus: None})(),
            dict.update,  # Python does not tell its signature
        ],
        ids=["keyword", "default", "any", "partial", "object", "builtin"],
    )
    def test_an_option_that_the_routine_takes_is_its_own(self, routine):
        plan = analyze(lambda ctx: ctx.insert_before_op(routine, outptus=[0]))
        assert plan.before[0].kwargs == {"outptus": [0]}

    def test_what_the_driver_cannot_do_is_refused_when_it_is_planned(self):
        class Limited(amanda.Driver):
            backend = vocabulary = "limited"
            xp = activate = value = describe = variable = incompatible_reason = None

            def check_action(self, execution, action):
                if action.differentiable:
                    raise amanda.UnsupportedError(f"not at {execution.operator.id}")

        tool = Tool()
        tool.add_inst_for_op(lambda ctx: ctx.insert_before_op(print, differentiable=True))
        with pytest.raises(amanda.UnsupportedError, match="not at a/conv2d"):
            engine(tool, driver=Limited()).analyze(execution(operator()))


class TestProducers:
    class Driver(FakeDriver):
        tells_producers = True

    def test_are_what_the_driver_tells_and_grow(self):
        tool, found = Tool(), []
        tool.add_inst_for_op(lambda ctx: found.append(ctx.producers(1)), require_producers=True)
        plan = engine(tool, driver=self.Driver()).analyze(execution(operator()))
        maker = operator("relu")
        assert not plan.is_noop
        assert list(found[0]) == []
        for _ in range(2):
            plan.producers[tool][1].add(maker, 0)
        assert list(found[0]) == [(maker, 0)]

    def test_are_there_only_for_whom_they_are_kept(self):
        with pytest.raises(amanda.ActionError, match="require_producers=True"):
            analyze(lambda ctx: ctx.producers(0))

    def test_that_a_driver_does_not_tell_are_refused_by_name(self):
        tool = Tool()
        tool.add_inst_for_op(lambda ctx: None, require_producers=True)
        with pytest.raises(amanda.UnsupportedError, match=r"a/conv2d.*driver for fake"):
            engine(tool).analyze(execution(operator()))


class TestState:
    def test_each_tool_has_its_own(self):
        tools, contexts = [Tool(), Tool()], []
        for tool in tools:
            tool.add_inst_for_op(contexts.append)
        engine(*tools).analyze(execution(operator()))
        one, other = contexts
        one.state(tools[0])["count"] = 1
        assert one is other
        assert other.state(tools[1]) == {}
        assert other.state(tools[0]) == {"count": 1}
        assert dict(one) == {}

    def test_it_is_there_after_the_analysis_and_for_the_next(self):
        tool, contexts = Tool(), []
        tool.add_inst_for_op(contexts.append)
        of, active = operator(), engine(tool)
        active.analyze(execution(of))
        contexts[0].state(tool)["count"] = 1
        active.forget()
        active.analyze(execution(of))
        assert contexts[1].state(tool) == {"count": 1}

    def test_it_goes_with_the_tool(self):
        contexts, outer = [], Tool()
        outer.add_inst_for_op(contexts.append)
        active = engine(outer)
        active.analyze(execution(operator()))
        kept = weakref.ref(marker := Marker())
        contexts[0].state(tool := Tool())["marker"] = marker
        del marker
        assert kept() is not None
        del tool
        gc.collect()
        assert kept() is None

    def test_the_array_namespace_is_there_after_the_analysis(self):
        class Driver(FakeDriver):
            xp = "namespace"

        tool, contexts = Tool(), []
        tool.add_inst_for_op(contexts.append)
        engine(tool, driver=Driver()).analyze(execution(operator()))
        assert contexts[0].xp == "namespace"


class Marker:
    pass


def check(condition):
    assert condition
