"""Which analysis routines are known not to look at the tensors of the forward side."""

from __future__ import annotations

import functools
import sys
from typing import Any

import pytest
from amanda._glances import may_look_at_forward


class Tool:
    keep: Any
    insert = True

    def inserts(self, ctx: Any) -> None:
        if self.insert and ctx.is_backward():
            ctx.insert_before_backward_op(self.nothing, grad_outputs=[0])

    def asks_of_gradients(self, ctx: Any) -> None:
        for grad in ctx.grad_outputs:
            if grad is not None and ctx.describe(grad).shape:
                self.keep = ctx.op.id, ctx.attrs

    def nothing(self, *tensors: object) -> None:
        pass

    def looks(self, ctx: Any) -> None:
        self.keep = len(ctx.inputs)

    def looks_by_a_name(self, ctx: Any) -> None:
        self.keep = getattr(ctx, "get_outputs")()  # noqa: B009

    def passes_it_on(self, ctx: Any) -> None:
        self.looks(ctx)

    def keeps_it(self, ctx: Any) -> None:
        self.keep = ctx

    def calls_it_otherwise(self, ctx: Any) -> None:
        other = ctx
        self.keep = other.outputs

    def takes_it_by_default(self, ctx: Any) -> None:
        self.keep = (ctx or self).inputs

    def has_it_in_a_closure(self, ctx: Any) -> None:
        self.keep = [lambda: ctx.inputs]

    def has_it_among_locals(self, ctx: Any) -> None:
        self.keep = locals()["ctx"].inputs

    def has_it_in_its_frame(self, ctx: Any) -> None:
        self.keep = sys._getframe().f_locals

    def takes_all(self, *contexts: Any) -> None:
        self.keep = contexts

    def __call__(self, ctx: Any) -> None:
        pass


def function(ctx: Any) -> None:
    ctx.replace_backward_op(print)


@pytest.mark.parametrize("routine", [Tool().inserts, Tool().asks_of_gradients, function])
def test_a_routine_that_only_inserts_is_known_not_to_look(routine: Any) -> None:
    assert not may_look_at_forward(routine)


@pytest.mark.parametrize(
    "routine",
    [
        Tool().looks,
        Tool().looks_by_a_name,
        Tool().passes_it_on,
        Tool().keeps_it,
        Tool().calls_it_otherwise,
        Tool().takes_it_by_default,
        Tool().has_it_in_a_closure,
        Tool().has_it_among_locals,
        Tool().has_it_in_its_frame,
        Tool().takes_all,
        Tool(),
        functools.partial(function),
        print,
    ],
)
def test_any_other_routine_may_look(routine: Any) -> None:
    assert may_look_at_forward(routine)
