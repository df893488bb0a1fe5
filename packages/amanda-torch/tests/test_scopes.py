"""S6: leaving a scope restores what was; after the last one nothing of PyTorch is changed."""

from __future__ import annotations

import contextlib
import gc
import sys
import warnings
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
import torch._dynamo.eval_frame
from amanda.testing.probes import Insert, Record, Watch, before
from amanda_torch.thread import KEY_NAME, intercepting, local
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from watching import everything

if TYPE_CHECKING:
    from collections.abc import Iterator

X = torch.randn(2, 3)


def attributes() -> dict[tuple[int, str], tuple[Any, Any]]:
    """All attributes of the modules of torch, and of their classes, each with its owner."""
    modules = [it for name, it in list(sys.modules.items()) if name.partition(".")[0] == "torch"]
    classes = [it for module in modules for it in vars(module).values() if isinstance(it, type)]
    return {
        (id(owner), name): (owner, value)
        for owner in [*modules, *classes]
        for name, value in list(vars(owner).items())
    }


def exchanged() -> list[tuple[Any, str]]:
    """What is another while a scope is open than before it."""
    before = attributes()
    with amanda.apply(*everything()):
        within = attributes()
    return [
        (before[key][0], key[1])
        for key in before.keys() & within.keys()
        if within[key][1] is not before[key][1]
    ]


EXCHANGED = exchanged()


def state() -> list[Any]:
    stance = torch._dynamo.eval_frame._stance.stance
    found = [vars(owner).get(name) for owner, name in EXCHANGED]
    return [*found, stance, intercepting(), local.thread.engine]


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = state()
    yield
    after = state()
    assert all(one is other for one, other in zip(before, after, strict=True))


def plain() -> Tensor:
    return torch.exp(X)


def test_what_is_exchanged_is_exchanged() -> None:
    """Else the other tests compare nothing."""
    assert (nn.Module, "__call__") in EXCHANGED
    before = state()
    with amanda.apply(Record()):
        assert all(one is not other for one, other in zip(before, state(), strict=True))


def test_a_scope_that_is_left() -> None:
    with amanda.apply(*everything()):
        nn.Linear(3, 2)(X.clone().requires_grad_()).sum().backward()


def test_a_scope_that_an_exception_leaves() -> None:
    with pytest.raises(ZeroDivisionError), amanda.apply(*everything()):
        raise ZeroDivisionError


def test_an_exception_in_the_model_within_modules_and_routines() -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise KeyError("model")

    parts = OrderedDict(first=nn.Linear(3, 3), failing=Failing())
    model, tool = nn.Sequential(parts), Record()
    with amanda.apply(tool):
        for _ in range(2):
            with pytest.raises(KeyError, match="model"):
                model(X)
        plain()
    assert tool.ran == ["first/linear", "first/linear", "exp"]  # the last is outside of the modules
    assert len(tool.analyzed) == 2


def test_an_exception_in_an_operator() -> None:
    tool = Record("matmul")
    with amanda.apply(tool):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            X @ X
        X @ X.T
    assert len(tool.ran) == 2


def test_an_exception_in_a_backward() -> None:
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            raise KeyError("backward")

    tool = Record("exp")
    with amanda.apply(tool, Insert("insert_on_grad_inputs", ["Failing", "sum"], lambda *_: None)):
        with pytest.raises(KeyError, match="backward"):
            Failing.apply(X.clone().requires_grad_()).sum().backward()
        plain()
    assert tool.ran == ["exp"]


def test_a_keyboard_interrupt_in_a_routine() -> None:
    def interrupt(*tensors: Tensor) -> None:
        raise KeyboardInterrupt

    with amanda.apply(before("exp", interrupt)):
        with pytest.raises(KeyboardInterrupt):
            plain()
        with pytest.raises(KeyboardInterrupt):
            plain()


def test_a_generator_that_is_closed_within_a_scope() -> None:
    def batches() -> Iterator[Tensor]:
        with amanda.apply(Record()):
            while True:
                yield plain()

    generator = batches()
    next(generator)
    generator.close()


def test_an_operator_that_cannot_be_intercepted_is_refused() -> None:
    with (
        pytest.raises(amanda.UnsupportedError, match="detach"),
        amanda.apply(Record("detach")),
    ):
        pass


def test_an_operator_registered_within_a_scope_is_seen() -> None:
    tool = Record()
    with amanda.apply(tool):

        @torch.library.custom_op("amanda_scopes::halve", mutates_args=())
        def halve(x: Tensor) -> Tensor:
            return x / 2

        halve(X)
    assert tool.ran == ["amanda_scopes::halve"]


def test_a_scope_leaves_types_that_nobody_wants_alone() -> None:
    tool = Record("exp")
    with amanda.apply(tool):
        X.sin()
        plain()
    assert tool.ran == ["exp"]


def has_kernel(type: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{type}", KEY_NAME)


def test_after_a_tool_that_wants_all_the_next_scope_has_kernels_for_its_own_types_alone() -> None:
    with amanda.apply(Record()):
        assert has_kernel("sin")
        with amanda.apply(Record("exp")):
            assert has_kernel("sin")
    with amanda.apply(tool := Record("exp")):
        assert not has_kernel("sin")
        X.exp()
    assert tool.ran == ["exp"]
    with amanda.apply(every := Record()):
        X.exp()
        X.sin()
    assert every.ran == ["exp", "sin"]


switches = st.recursive(
    st.just([]),
    lambda inner: st.lists(
        st.tuples(st.sampled_from(["apply", "disabled", "enabled", "cache_disabled"]), inner),
        max_size=3,
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(switches)
def test_however_scopes_nest(tree: Any) -> None:
    """An operator is seen by the tools around it, unless they are switched off."""

    def visit(tree: Any, tools: list[Record], on: bool) -> None:
        ran = [len(tool.ran) for tool in tools]
        plain()
        assert [len(tool.ran) for tool in tools] == [count + on for count in ran]
        for kind, inner in tree:
            before = state()
            with contextlib.ExitStack() as stack:
                if kind == "apply":
                    tool = Record("exp")
                    stack.enter_context(amanda.apply(tool))
                    visit(inner, [*tools, tool], on)
                else:
                    stack.enter_context(getattr(amanda, kind)())
                    visit(inner, tools, {"disabled": False, "enabled": True}.get(kind, on))
            assert state() == before

    visit(tree, [], True)


# Scopes that routines open and leave


def test_a_scope_that_a_routine_leaves_open_is_active_after_it() -> None:
    inner, stack = Record("exp"), contextlib.ExitStack()

    def enter(*tensors: Tensor) -> None:
        stack.enter_context(amanda.apply(inner))
        plain()

    outer = Record("exp")
    with amanda.apply(outer, before("sin", enter)):
        X.sin()
        assert (len(outer.ran), len(inner.ran)) == (0, 1)
        with stack:
            plain()
        plain()
    assert (len(outer.ran), len(inner.ran)) == (2, 2)


def test_nothing_is_kept_of_a_scope_that_a_routine_left_open() -> None:
    stack = contextlib.ExitStack()
    kept: list[weakref.ref[Any]] = []

    def mark(ctx: amanda.OpContext) -> None:
        ctx["mark"] = mark = set()
        kept.append(weakref.ref(mark))

    inner = Watch(mark, "exp")

    def enter(*tensors: Tensor) -> None:
        stack.enter_context(amanda.apply(inner))

    gc.collect()
    gc.disable()  # until it runs, the ids of operators of the scope would be taken
    try:
        with amanda.apply(before("sin", enter)):
            X.sin()
            with stack:
                plain()
        assert [mark() for mark in kept] == [None]
    finally:
        gc.enable()


@pytest.mark.parametrize("insertion", ["insert_before_op", "insert_on_grad_outputs"])
def test_a_routine_that_leaves_the_scope_around_it(insertion: str) -> None:
    stack, tool = contextlib.ExitStack(), Record("exp")

    def leave(*tensors: Tensor) -> None:
        stack.close()

    stack.enter_context(amanda.apply(tool, Insert(insertion, "sin", leave)))
    X.clone().requires_grad_().sin().sum().backward()
    plain()
    assert tool.ran == []
    with amanda.apply(tool):  # what comes later is as it always is
        plain()
    assert tool.ran == ["exp"]


def test_a_backward_in_a_scope_of_a_routine_is_not_seen_by_the_tools_around_it() -> None:
    grads: list[str] = []
    x = X.clone().requires_grad_()

    def backward(*tensors: Tensor) -> None:
        with amanda.apply(Record("cos")):
            total.backward()

    outer = Insert("insert_on_grad_outputs", "sin", lambda grad: grads.append("outer"))
    with amanda.apply(outer, before("exp", backward)):
        total = x.sin().sum()
        plain()
        assert grads == []
        x.sin().sum().backward()
    assert grads == ["outer"]


def test_what_is_inside_an_operator_is_seen_after_a_scope_of_a_routine_as_before() -> None:
    """A tool that wants the operator itself sees nothing of what it is made of."""

    def opens(*tensors: Tensor) -> None:
        with amanda.apply(Record("exp")):
            plain()

    whole, parts = Record(["linear", "mm"]), Record(["mm", "t"])
    opening = before("t", opens)
    with amanda.apply(whole, parts, opening):
        nn.functional.linear(X.clone().requires_grad_(), torch.ones(2, 3))
    assert [id.partition("#")[0] for id in whole.ran] == ["linear"]
    assert [id.partition("#")[0] for id in parts.ran] == ["t", "mm"]


def test_a_scope_that_outlives_the_inference_mode_it_was_entered_in_is_warned_of() -> None:
    layer, tool = nn.Linear(2, 2), Record()
    scope = contextlib.ExitStack()
    with torch.inference_mode():
        scope.enter_context(amanda.apply(tool))
        layer(torch.ones(1, 2))
    layer(torch.ones(1, 2))
    with pytest.warns(amanda.AmandaWarning, match=r"nothing since the end of torch\.inference"):
        scope.close()
    assert "linear" in str(tool.ran)


def test_a_scope_within_inference_mode_or_around_it_is_not() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.inference_mode(), amanda.apply(Record()):
            torch.ones(2).relu()
        with amanda.apply(Record()), torch.inference_mode():
            torch.ones(2).relu()
