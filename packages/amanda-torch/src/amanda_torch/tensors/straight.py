"""Gradients pass straight through a substitute to what it replaced, or past a watch."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from amanda_torch._internals import (
    AUTOGRAD,
    FunctionBase,
    forward_ad,
    is_key_excluded,
    is_wrapped,
    keeping_version,
    transforms_active,
    unpack_dual,
    unwrap_if_dead,
    unwrapped,
    without_transforms,
)
from amanda_torch.overrides import keeping_classes
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Grads = Sequence[Tensor | None]


class _Boundary(torch.autograd.Function):
    """At a boundary tensors stand for others, to which their gradients go.

    Those that they stand for are given first, as many as ``count``; none if they stand for
    themselves. ``watch``, if given, sees the gradients on their way, all at once, and may replace
    them.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        watch: Callable[[Grads], Grads] | None, count: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        # A detached tensor is no view for autograd, so that the model may write to it.
        return tuple(map(Tensor.detach, tensors[count:]))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.watch, ctx.count = inputs[:2]
        ctx.materialize_grads = False
        if forward_ad._current_level >= 0:
            ctx.kinds = [(tensor.shape, tensor.dtype, tensor.device) for tensor in output]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        passed: Grads = grads if ctx.watch is None else ctx.watch(grads)
        return (None, None, *passed, *(None for _ in range(ctx.count)))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        # Forward mode does not take None for the tangent of one output among several.
        return tuple(
            torch.zeros(shape, dtype=dtype, device=device) if t is None else t.view_as(t)
            for t, (shape, dtype, device) in zip(tangents[2:], ctx.kinds, strict=False)
        )


class _Rebase(torch.autograd.Function):
    """This gives a tensor of the program the gradient of another one that shares its memory."""

    @staticmethod
    def forward(target: Tensor, source: Tensor) -> Tensor:
        return target

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.set_materialize_grads(False)
        ctx.of_view = inputs[0]._is_view()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        # The base of a view has a gradient elsewhere; None would stand for all of it.
        return torch.zeros_like(grad) if ctx.of_view and grad is not None else None, grad

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        target, source = tangents
        return source if target is None else target.copy_(source)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *tensors: Any) -> Any:
        return _Rebase.apply(*tensors), in_dims[0]  # type: ignore[no-untyped-call]


_apply_boundary = vars(FunctionBase)["apply"].__get__(None, _Boundary)
_nodes = (vars(_Boundary)["_backward_cls"], vars(_Rebase)["_backward_cls"])


def is_ours(node: object) -> bool:
    """Tell whether an autograd node belongs to no operator, but stands between them."""
    return isinstance(node, _nodes)


def records_tangents() -> bool:
    """Tell whether gradients are computed in forward mode (``torch.func.jvp``), at this moment."""
    return bool(forward_ad._current_level >= 0)


def in_graph(tensor: Tensor) -> Tensor:
    """Return the tensor that autograd knows: itself, or what ``torch.func`` wraps in it.

    ``vmap`` wraps tensors that say that they need no gradient, whatever is in them.
    """
    while not tensor.requires_grad and is_wrapped(tensor):
        tensor = unwrapped(tensor)
    return tensor


def has_graph(tensor: Tensor) -> bool:
    """Tell whether a backward pass may come through a tensor."""
    return tensor.requires_grad or (is_wrapped(tensor) and in_graph(tensor).requires_grad)


def carries_gradient(tensor: Tensor) -> bool:
    """Tell whether a gradient flows through a tensor, in either mode."""
    if has_graph(tensor):
        return True
    if not records_tangents() or not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    return is_wrapped(tensor) or _has_tangent(tensor)


def _has_tangent(tensor: Tensor) -> bool:
    """Tell whether a tensor that no transform of ``torch.func`` has wrapped has a tangent.

    One that has none is not to be given a zero: some operators take none for all that they take.
    """
    try:
        with unshown(), without_transforms():
            return unpack_dual(tensor, level=forward_ad._current_level)[1] is not None
    except RuntimeError:  # of a batch of torch.autograd.functional's, say, nobody can tell
        return True


is_below_autograd: Callable[[], bool] = functools.partial(is_key_excluded, AUTOGRAD)
"""Tell whether what runs is part of an operator whose gradient is its own, at this moment."""


def is_strided_nested(tensor: Tensor) -> bool:
    """Tell whether a tensor is of the kind for which PyTorch has no custom autograd Functions."""
    return tensor.is_nested and tensor.layout is torch.strided


def straight_through(
    originals: Sequence[Tensor], substitutes: Sequence[Tensor]
) -> Sequence[Tensor]:
    """Return the substitutes, with their gradients passing straight to the originals.

    Args:
        originals: what they stand for.
        substitutes: the same tensors, which stay so, or others.
    """
    if is_below_autograd():
        return substitutes
    chosen = []
    for i, original in enumerate(originals):
        if original is not substitutes[i] and _can_be_bound(original):
            chosen.append(i)
    return _bound(None, chosen, originals, substitutes)


def watched(
    tensors: Sequence[Tensor],
    watch: Callable[[list[Tensor | None], Sequence[int]], Sequence[Tensor | None]],
    order: Sequence[int] = (),
) -> Sequence[Tensor]:
    """Return the same tensors, past a watch on their gradients.

    Args:
        tensors: what is watched.
        watch: called in the backward pass with the gradients of all of them, None where none
            flows or none can, and with which of the tensors lie behind the boundary; what it
            returns flows on instead.
        order: numbers of leaves among them, to which gradients are to flow on one after the other.
    """
    count = len(tensors)
    chosen = [i for i in dict.fromkeys([*order, *range(count)]) if _can_be_bound(tensors[i])]
    # Of two leaves to which one node sends gradients none passes the other, of more they may.
    for start in reversed(range(2, len(order), 2)):
        tensors = _bound(None, list(order[start:]), tensors, tensors)
    if not order and len(chosen) == count:
        return _bound(lambda grads: watch(list(grads), chosen), chosen, tensors, tensors)

    def watch_chosen(grads: Grads) -> Grads:  # which must not keep the tensors: one may be written
        every: list[Tensor | None] = [None] * count
        for i, grad in zip(chosen, grads, strict=True):
            every[i] = grad
        passed = watch(every, chosen)
        return [passed[i] for i in chosen]

    return _bound(watch_chosen, chosen, tensors, tensors)


def _can_be_bound(tensor: Tensor) -> bool:
    return carries_gradient(tensor) and not is_strided_nested(tensor)


def _bound(
    watch: Callable[[Grads], Grads] | None,
    chosen: list[int],
    originals: Sequence[Tensor],
    substitutes: Sequence[Tensor],
) -> Sequence[Tensor]:
    if not chosen:
        return substitutes
    tensors = [substitutes[i] for i in chosen]
    ahead = [] if originals is substitutes else [originals[i] for i in chosen]
    bound: Sequence[Tensor]
    with unshown():
        if transforms_active():
            bound = _Boundary.apply(watch, len(ahead), *ahead, *tensors)  # type: ignore[no-untyped-call]
        else:  # the same, without the search for defaults of arguments
            alive = map(unwrap_if_dead, (*ahead, *tensors))
            bound = keeping_classes(_apply_boundary, watch, len(ahead), *alive)
    if chosen == [*range(len(substitutes))]:
        return bound
    result = list(substitutes)
    for i, tensor in zip(chosen, bound, strict=True):
        result[i] = tensor
    return result


def rebase(target: Tensor, source: Tensor) -> None:
    """Have a tensor of the program continue the graph of another one that shares its memory."""
    with keeping_version(target):  # what is saved of this memory is as it was saved
        _Rebase.apply(target, source)  # type: ignore[no-untyped-call]
    # A view notes the version for which its node holds; have it note the one that was kept.
    _ = target.grad_fn
