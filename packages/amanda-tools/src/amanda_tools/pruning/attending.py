"""Attention, and its gradients, are computed by hand, with some of its probabilities pruned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_tools.arrays import like

if TYPE_CHECKING:
    from collections.abc import Callable

_FAR_BELOW = float("-inf")


def for_each_head(keys: Any, queries: Any, xp: Any) -> Any:
    """Return keys or values for each head of the queries, of which neighbours share one."""
    if len(queries.shape) != 4 or keys.shape[1] == queries.shape[1]:
        return keys
    return xp.repeat(keys, int(queries.shape[1]) // int(keys.shape[1]), axis=1)


def of_shared_heads(gradient: Any, keys: Any, xp: Any) -> Any:
    """Return the gradient of keys or values, given that for each head of the queries."""
    if len(keys.shape) != 4 or gradient.shape[1] == keys.shape[1]:
        return gradient
    examples, heads, *rest = gradient.shape
    shared = int(keys.shape[1])
    return xp.sum(xp.reshape(gradient, (examples, shared, heads // shared, *rest)), axis=2)


def probabilities(q: Any, k: Any, *masks: Any, scale: float, causal: bool, xp: Any) -> Any:
    """Return each query's probabilities, (..., queries, keys): zeros for one that sees no key."""
    scores = xp.matmul(q, xp.matrix_transpose(k)) * scale
    far_below = xp.zeros_like(scores) + _FAR_BELOW
    if causal:
        ones = xp.ones_like(scores)
        later = xp.cumulative_sum(ones, axis=-1) > xp.cumulative_sum(ones, axis=-2)
        scores = xp.where(later, far_below, scores)
    for mask in masks:
        if mask.dtype == xp.bool:
            scores = xp.where(mask, scores, far_below)
        else:
            scores = scores + like(mask, scores, xp)
    largest = xp.max(scores, axis=-1, keepdims=True)
    unseeing = largest == _FAR_BELOW
    exponentials = xp.exp(scores - xp.where(unseeing, xp.zeros_like(largest), largest))
    sums = xp.sum(exponentials, axis=-1, keepdims=True)
    return exponentials / xp.where(unseeing, xp.ones_like(sums), sums)


def gradients(
    grad: Any,
    q: Any,
    k: Any,
    v: Any,
    *masks: Any,
    mask: Callable[[Any, Any], Any],
    scale: float,
    causal: bool,
    xp: Any,
) -> tuple[Any, Any, Any]:
    """Return the gradients of queries, keys and values.

    Args:
        grad: that of the product of the pruned probabilities and the values.
        q, k, v: queries, keys and values.
        *masks: as for :func:`probabilities`, and so are ``scale`` and ``causal``.
        mask: gives a tensor with zeros where given probabilities are pruned.
        xp: the array namespace.
    """
    found = probabilities(q, k, *masks, scale=scale, causal=causal, xp=xp)
    of_found = mask(xp.matmul(grad, xp.matrix_transpose(v)), found)
    mean = xp.sum(of_found * found, axis=-1, keepdims=True)
    of_scores = found * (of_found - mean) * scale
    return (
        xp.matmul(of_scores, k),
        xp.matmul(xp.matrix_transpose(of_scores), q),
        xp.matmul(xp.matrix_transpose(mask(found, found)), grad),
    )
