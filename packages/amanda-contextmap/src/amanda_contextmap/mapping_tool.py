"""The published way to portable tools: one function a backend, which writes into the context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_BACKENDS = {"pytorch": "torch"}


class MappingTool(amanda.Tool):
    """Writes into the context of every operator what tools that depend on it read there, also
    when they look at its backward.

    ::

        def torch_type(ctx):
            ctx["type"] = {"conv2d": "Conv"}.get(ctx.op.type)

        def tensorflow_type(ctx):
            ctx["type"] = {"Conv2D": "Conv"}.get(ctx.op.type)

        mapping = MappingTool([["pytorch", torch_type], ["tensorflow", tensorflow_type]])

        class CountConv(amanda.Tool):
            def __init__(self):
                super().__init__()
                self.depends_on(mapping)
                ...

    Args:
        rules: pairs of a backend and a function of the context, run in this order.
        ops: the operator types to look at, in the backends' own names; all by default.
    """

    def __init__(
        self,
        rules: Iterable[Sequence[Any]],
        *,
        ops: Iterable[str] | None = None,
    ) -> None:
        super().__init__()
        self._rules: list[tuple[str, Callable[[amanda.OpContext], None]]] = [
            (_BACKENDS.get(backend, backend), write) for backend, write in rules
        ]
        self.add_inst_for_op(self.write, ops=ops)

    def write(self, ctx: amanda.OpContext) -> None:
        """Have the functions of the operator's backend write."""
        for backend, write in self._rules:
            if backend == ctx.op.backend:
                write(ctx)
