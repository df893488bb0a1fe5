"""Tools and insertions that the tests of operators and of substitution share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import amanda
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

_T = TypeVar("_T")


class Seen(amanda.Tool):
    """Notes which operators run.

    Attributes:
        types: of the operators, one for each execution.
        ids: the same.
        attrs, names: by type, the attributes and input names of the one analyzed last.
    """

    def __init__(self, *ops: str) -> None:
        super().__init__()
        self.types: list[str] = []
        self.ids: list[str] = []
        self.attrs: dict[str, dict[str, Any]] = {}
        self.names: dict[str, list[str]] = {}
        self.add_inst_for_op(self.analyze, ops=ops or None)

    def analyze(self, ctx: amanda.OpContext) -> None:
        self.attrs[ctx.op.type] = dict(ctx.attrs)
        self.names[ctx.op.type] = list(ctx.input_names)
        ctx.insert_before_op(self.note, operator=ctx.op)

    def note(self, *tensors: Tensor, operator: amanda.Operator) -> None:
        self.types.append(operator.type)
        self.ids.append(operator.id)


class Observe(amanda.Tool):
    """Looks at operators in every way there is, and touches nothing."""

    def __init__(self, *ops: str) -> None:
        super().__init__()
        wanted = ops or None
        self.add_inst_for_op(self.forward, ops=wanted)
        self.add_inst_for_op(lambda ctx: ctx.outputs, require_outputs=True, ops=wanted)
        self.add_inst_for_op(self.backward, backward=True, ops=wanted)
        self.add_inst_for_gradient(self.gradient, ops=wanted)

    def forward(self, ctx: amanda.OpContext) -> None:
        ctx.insert_before_op(self.look)
        ctx.insert_after_op(self.look)

    def backward(self, ctx: amanda.OpContext) -> None:
        ctx.insert_before_backward_op(self.look)
        ctx.insert_after_backward_op(self.look)

    def gradient(self, ctx: amanda.OpContext) -> None:
        ctx.insert_on_grad_outputs(self.look)
        ctx.insert_on_grad_inputs(self.look)

    def look(self, *tensors: Tensor | None):  # not annotated: it might return something
        pass


class Insert(amanda.Tool):
    """Inserts one routine at operators of one type.

    Args:
        insertion: a method of the context, e.g. ``insert_before_op``.
        op: where.
        routine: what is inserted.
        **options: passed on to the insertion.
    """

    def __init__(
        self, insertion: str, op: str, routine: Callable[..., Any], **options: Any
    ) -> None:
        super().__init__()
        self.add_inst_for_op(lambda ctx: getattr(ctx, insertion)(routine, **options), ops=[op])


def before(op: str, routine: Callable[..., Any], **options: Any) -> Insert:
    return Insert("insert_before_op", op, routine, **options)


def after(op: str, routine: Callable[..., Any], **options: Any) -> Insert:
    return Insert("insert_after_op", op, routine, **options)


def replace(op: str, routine: Callable[..., Any], **options: Any) -> Insert:
    return Insert("replace_op", op, routine, **options)


def under(tools: amanda.Tool | Sequence[amanda.Tool], run: Callable[[], _T]) -> _T:
    """What ``run`` gives with tools in force."""
    with amanda.apply(*([tools] if isinstance(tools, amanda.Tool) else tools)):
        return run()


def seen(run: Callable[[], object], *ops: str) -> list[str]:
    """The types of the operators that run, in order."""
    tool = Seen(*ops)
    under(tool, run)
    return tool.types


def leaf(*shape: int, **options: Any) -> Tensor:
    """Random numbers that want a gradient."""
    return torch.randn(*shape, **options).requires_grad_()
