"""Substitution that gradients pass straight through, and the gradient of an operator as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Grads = Sequence[Tensor | None]


class _Boundary(torch.autograd.Function):
    """Tensors that stand for others; the gradient of each goes to the one that it stands for.

    ``watch``, if given, sees the gradients on their way, all at once, and may replace them.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        watch: Callable[[Grads], Grads] | None, count: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        # A detached tensor is no view for autograd, so that the model may write to it.
        return tuple(tensor.detach() for tensor in tensors[count:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.watch, ctx.count = inputs[:2]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        passed: Grads = grads if ctx.watch is None else ctx.watch(grads)
        return (None, None, *passed, *(None for _ in range(ctx.count)))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return tuple(t.view_as(t) for t in tangents[2 : 2 + ctx.count])


class _Overwrite(torch.autograd.Function):
    """Write a value to a tensor of the program, whose gradient becomes that of the value."""

    @staticmethod
    def forward(target: Tensor, value: Tensor) -> Tensor:
        return target.copy_(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, grads[0]


_NODES = (vars(_Boundary)["_backward_cls"], vars(_Overwrite)["_backward_cls"])


def is_ours(node: object) -> bool:
    """Whether an autograd node belongs to no operator, but stands between them."""
    return isinstance(node, _NODES)


def straight_through(
    originals: Sequence[Tensor],
    substitutes: Sequence[Tensor],
    watch: Callable[[list[Tensor | None]], Sequence[Tensor | None]] | None = None,
) -> Sequence[Tensor]:
    """The substitutes, with their gradients passing straight to the originals.

    Args:
        originals: what they stand for.
        substitutes: the same tensors or others; those that are the same stay so without
            ``watch``.
        watch: called on the way back with the gradients of all substitutes, None where none
            flows or none can; what it returns flows on instead.
    """
    chosen = [
        i
        for i, (original, substitute) in enumerate(zip(originals, substitutes, strict=True))
        if original.requires_grad and (watch is not None or original is not substitute)
    ]
    if not chosen:
        return substitutes

    count = len(originals)

    def watch_chosen(grads: Grads) -> Grads:  # which must not keep the tensors: one may be written
        assert watch is not None
        every: list[Tensor | None] = [None] * count
        for i, grad in zip(chosen, grads, strict=True):
            every[i] = grad
        passed = watch(every)
        return [passed[i] for i in chosen]

    bound = _Boundary.apply(  # type: ignore[no-untyped-call]
        None if watch is None else watch_chosen,
        len(chosen),
        *(originals[i] for i in chosen),
        *(substitutes[i] for i in chosen),
    )
    result = list(substitutes)
    for i, tensor in zip(chosen, bound, strict=True):
        result[i] = tensor
    return result


def overwrite(target: Tensor, value: Tensor) -> Tensor:
    """Write to a tensor that the program holds, gradient included; returns that tensor."""
    if torch.is_grad_enabled() and (target.requires_grad or value.requires_grad):
        result: Tensor = _Overwrite.apply(target, value)  # type: ignore[no-untyped-call]
        return result
    return target.copy_(value)
