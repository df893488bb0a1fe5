"""The tools that the suite instruments with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import amanda

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda.testing.adapter import Adapter

# All that a tool can do at an operator.
REPLACING = ("replace_op", "replace_backward_op")
INSERTIONS = (
    "insert_before_op",
    "insert_after_op",
    "insert_before_backward_op",
    "insert_after_backward_op",
    "insert_on_grad_outputs",
    "insert_on_grad_inputs",
)
host_and_pure = pytest.mark.parametrize("pure", [False, True], ids=["host", "pure"])


class Watch(amanda.Tool):
    """Calls an analysis routine for operators of some types, and notes for which operators.

    ``analyzed`` lists their ids, one for each call.
    """

    def __init__(
        self,
        analyze: Callable[[amanda.OpContext], object],
        ops: Sequence[str] | None = None,
        *,
        backward: bool = False,
        gradient: bool = False,
        require_outputs: bool = False,
    ) -> None:
        super().__init__()
        self.analyzed: list[str] = []
        self._analyze = analyze
        if gradient:
            self.add_inst_for_gradient(self.look, ops=ops)
        else:
            self.add_inst_for_op(self.look, backward, require_outputs, ops=ops)

    def look(self, ctx: amanda.OpContext) -> None:
        """The analysis routine."""
        self.analyzed.append(ctx.op.id)
        self._analyze(ctx)


class Insert(Watch):
    """Inserts one routine at operators of one type; at those of one layer if it is given.

    Args:
        adapter: tells in which layer an operator is.
        insertion: a method of the context, e.g. ``insert_before_op``.
        routine: what is inserted.
        kind: the kind of steps, as in :mod:`amanda.testing.program`.
        layer: the layer, or None for all of them.
        **options: passed on to the insertion.
    """

    def __init__(
        self,
        adapter: Adapter,
        insertion: str,
        routine: Callable[..., Any],
        kind: str,
        layer: str | None = None,
        **options: Any,
    ) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            if layer is None or adapter.layer(ctx.op) == layer:
                getattr(ctx, insertion)(routine, **options)

        super().__init__(
            analyze,
            [adapter.types[kind]],
            backward="backward" in insertion,
            gradient="on_grad" in insertion,
        )


class Executions:
    """A routine that notes at which operators it runs, in order, and touches nothing."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def tool(self, ops: Sequence[str] | None = None, **options: Any) -> Watch:
        """A tool that inserts it before operators of these types."""
        return Watch(lambda ctx: ctx.insert_before_op(self.note, id=ctx.op.id), ops, **options)

    def note(self, *tensors: Any, id: str) -> None:
        """The routine."""
        self.ids.append(id)
