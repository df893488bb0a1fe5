"""A mapping tool is the published way to portable tools: functions that write into the context."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import amanda

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_BACKENDS = {"torch": "pytorch", "amanda/pytorch": "pytorch", "amanda/tensorflow": "tensorflow"}


class MappingTool(amanda.Tool):
    """This tool writes into every operator's context what tools that depend on it read there.

    A rule is applied when the operator is first seen, again when its outputs are known, and the
    same for its backward operators; ``ctx.is_forward()`` tells these apart. Where it asks for what
    is not known yet, that ends it for this time.

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
        rules: pairs of a backend, as ``ctx.namespace`` names it, and a function of the context, run
            in this order.
        ops: the operator types to look at, in the backends' own names; all by default.
    """

    def __init__(
        self,
        rules: Iterable[Sequence[Any]],
        *,
        ops: Iterable[str] | None = None,
    ) -> None:
        super().__init__(namespace="mapping")
        self._rules: list[tuple[str, Callable[[amanda.OpContext], None]]] = [
            (_BACKENDS.get(backend, backend), write) for backend, write in rules
        ]
        for backward in (False, True):
            self.add_inst_for_op(self._write_what_is_known, backward, ops=ops)
            self.add_inst_for_op(self.write, backward, require_outputs=True, ops=ops)

    def write(self, ctx: amanda.OpContext) -> None:
        """Have the functions of the operator's backend write."""
        for backend, write in self._rules:
            if backend == ctx.namespace:
                write(ctx)

    def _write_what_is_known(self, ctx: amanda.OpContext) -> None:
        for backend, write in self._rules:
            if backend == ctx.namespace:
                with contextlib.suppress(amanda.ValueUnavailableError):  # it is asked again
                    write(ctx)
