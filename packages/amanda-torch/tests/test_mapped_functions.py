"""Python functions that are one operator for tools of another vocabulary.

The vocabulary here has a ``Gate`` for what :func:`called_functions.gate` computes.
"""

import amanda
import called_functions
import pytest
import torch
from amanda.driving import Selection
from amanda.testing.packages import install
from gates import Renamed, Tool
from torch import nn

X = torch.tensor([-1.5, -0.2, 0.3, 2.0])
Y = torch.tensor([0.5, -1.0, 2.0, 0.1])
UP = torch.tensor([1.0, 2.0, -1.0, 3.0])
PLAIN = called_functions.gate


class Gates:
    """A context map to which calls of the function are gates, unless a power is given."""

    def select(self, subscription, driver):
        types = subscription.types()
        forward = None if types is None else frozenset(t.lower() for t in types)
        return Selection(subscription, subscription.view, types, forward)

    def translate(self, execution, driver):
        type = execution.operator.type
        return Renamed("Gate" if type == "gate" else type)

    def composites(self, graph, driver):
        return ()

    def functions(self):
        return {
            "gate": "called_functions.gate",
            "fails": "called_functions.fails",
            "softsign": "torch.nn.functional.softsign",
            "gone": "called_functions.gone",
            "elsewhere": "a_module.that_nobody_imported",
        }

    def is_one(self, execution, driver):
        return execution.attrs.get("power", 1) == 1


GATES = Gates()


@pytest.fixture(autouse=True)
def _installed(tmp_path, monkeypatch):
    """The map is announced as a package does it."""
    install(
        tmp_path, "gates", entry_points=f"[amanda.context_maps]\ntorch:gates = {__name__}:GATES\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def native(*ops, **insertions):
    return Tool(namespace=None, ops=ops or ("sigmoid",), **insertions)


def run(*tools, given=(X,), **options):
    """The result of a call, and its gradients."""
    given = [tensor.clone().requires_grad_() for tensor in given]
    with amanda.apply(*tools):
        result = called_functions.gate(*given, **options)
        result.backward(UP)
    return result.detach(), [tensor.grad for tensor in given]


def swish(x):
    return x * torch.sigmoid(x)


def swish_slope(x):
    return torch.sigmoid(x) * (1 + x * (1 - torch.sigmoid(x)))


def doubled(*tensors):
    return [2 * tensor for tensor in tensors]


def test_a_tool_of_the_vocabulary_sees_one_operator_and_others_see_what_it_runs():
    one, others = Tool(), native()
    run(one, others)
    assert one.seen == ["Gate"]
    assert others.seen == ["sigmoid", "pow", "mul"]


@pytest.mark.parametrize("ops", [["mul"], ["sigmoid", "pow"]])
def test_a_tool_that_does_not_want_it_sees_what_it_runs(ops):
    tool = amanda.Tool(namespace="gates")
    seen = []
    tool.add_inst_for_op(lambda ctx: seen.append(ctx.op.type), ops=ops)
    with amanda.apply(tool):
        called_functions.gate(X)
    assert seen == ops


def test_operators_inside_are_called_the_same_whoever_looks():
    class Model(nn.Module):
        def forward(self, x):
            return called_functions.gate(x) + called_functions.gate(x, x)

    model, alone, beside, one = Model(), native(), native(), Tool()
    with amanda.apply(alone):
        model(X)
    with amanda.apply(one, beside):
        model(X)
    assert alone.ids == beside.ids
    assert [id for id in one.ids if "gate" in id] == ["gate", "gate#2"]


def test_tensors_go_by_the_names_of_the_parameters():
    tool = Tool()
    run(tool, given=(X, Y))
    with amanda.apply(tool):
        called_functions.gate(gate=Y, data=X)
    assert tool.names == [["data", "gate"], ["gate", "data"]]


def test_a_call_that_is_none_is_seen_by_what_it_runs():
    tool = Tool()
    result, _ = run(tool, power=2)
    assert tool.seen == ["sigmoid", "pow", "mul"]
    torch.testing.assert_close(result, PLAIN(X, power=2))


def test_a_call_with_other_things_than_tensors_and_numbers_is_seen_by_what_it_runs():
    tool = Tool()
    with amanda.apply(tool):
        called_functions.gate(X, power=X.numpy()[3])
    assert "Gate" not in tool.seen


@pytest.mark.parametrize("pure", [False, True])
def test_routines_before_it_replace_what_it_takes(pure):
    tool = Tool(insert_before_op=(doubled, {"pure": pure}))
    result, (gradient,) = run(tool)
    torch.testing.assert_close(result, swish(2 * X))
    torch.testing.assert_close(gradient, UP * swish_slope(2 * X))


def test_routines_before_it_replace_one_of_two_inputs():
    tool = Tool(insert_before_op=(doubled, {"inputs": [1]}))
    result, (of_x, of_y) = run(tool, given=(X, Y))
    gate = torch.sigmoid(2 * Y)
    torch.testing.assert_close(result, X * gate)
    torch.testing.assert_close(of_x, UP * gate)
    torch.testing.assert_close(of_y, UP * X * gate * (1 - gate))


def test_routines_after_it_replace_what_it_gives():
    result, (gradient,) = run(Tool(insert_after_op=(doubled, {})))
    torch.testing.assert_close(result, 2 * swish(X))
    torch.testing.assert_close(gradient, UP * swish_slope(X))


def test_a_replacement_is_for_the_whole_and_keeps_its_gradient():
    result, (gradient,) = run(Tool(replace_op=(lambda x: x + 1, {})))
    torch.testing.assert_close(result, X + 1)
    torch.testing.assert_close(gradient, UP * swish_slope(X))


def test_both_kinds_of_tools_insert_together():
    inside = native(insert_before_op=(lambda x: x + 1, {}))
    result, (gradient,) = run(Tool(insert_before_op=(doubled, {})), inside)
    gate = torch.sigmoid(2 * X + 1)
    torch.testing.assert_close(result, 2 * X * gate)
    torch.testing.assert_close(gradient, UP * (gate + 2 * X * gate * (1 - gate)))


def test_routines_see_the_order_of_the_program():
    order = []

    def noting(what):
        def note(*tensors) -> None:
            order.append(what)

        return note, {}

    run(
        Tool(
            insert_before_op=noting("before"),
            insert_after_op=noting("after"),
            gradient=noting("gradient"),
        ),
        native(insert_before_op=noting("inside")),
    )
    assert order == ["before", "inside", "after", "gradient"]


def test_its_gradient_is_that_of_the_whole():
    found = []

    def note(gradient):
        found.append(gradient.clone())
        return 3 * gradient

    _, (gradient,) = run(Tool(gradient=(note, {})))
    torch.testing.assert_close(found, [UP * swish_slope(X)])
    torch.testing.assert_close(gradient, 3 * UP * swish_slope(X))


def test_looking_changes_no_bit():
    def same(*tensors):
        return tensors

    plain = run(given=(X, Y))
    looked = run(
        Tool(insert_before_op=(same, {}), insert_after_op=(same, {}), gradient=(same, {})),
        native(insert_after_op=(same, {})),
        given=(X, Y),
    )
    torch.testing.assert_close(looked, plain, rtol=0, atol=0)


def test_it_is_one_operator_in_every_iteration_and_analyzed_once():
    tool = Tool()
    with amanda.apply(tool):
        for _ in range(3):
            called_functions.gate(X)
    assert tool.ids == ["gate"]


def test_its_errors_are_those_of_the_function_and_all_goes_on():
    tool = Tool()
    with amanda.apply(tool):
        with pytest.raises(ValueError, match=r"^no "):
            called_functions.fails(X)
        called_functions.gate(X)
    assert tool.seen[-1] == "Gate"


def test_functions_are_exchanged_only_while_tools_of_the_vocabulary_are_active():
    with amanda.apply(native()):
        assert called_functions.gate is PLAIN
        with amanda.apply(Tool()):
            assert called_functions.gate is not PLAIN
        assert called_functions.gate is PLAIN
    assert called_functions.gate is PLAIN


def test_what_has_hold_of_the_function_itself_is_seen_by_what_it_runs():
    tool = Tool()
    with amanda.apply(tool):
        PLAIN(X)
    assert tool.seen == ["sigmoid", "pow", "mul"]


def test_torchscript_compiles_the_function_itself():
    tool = Tool()
    with amanda.apply(tool):
        compiled = torch.jit.script(nn.Softsign())
        result = compiled(X)
        nn.Softsign()(X)
    torch.testing.assert_close(result, X / (1 + X.abs()))
    assert tool.seen == ["abs", "add", "div", "softsign"]
