"""A substitute has to fit the tensor of the program that it stands for."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from amanda_torch.tensors.straight import carries_gradient, is_strided_nested


def incompatible(original: Any, substitute: Any) -> str | None:
    """Tell why ``substitute`` cannot stand for ``original``; None if it can.

    It must be a tensor of the same dtype and device. Of None it only has to be a tensor.
    """
    if not isinstance(substitute, Tensor):
        return f"returned {type(substitute).__name__}, not a tensor"
    if original is None:
        return None
    if original.dtype != substitute.dtype:
        return f"returned dtype {substitute.dtype} for {original.dtype}"
    if original.device != substitute.device:
        return f"returned device {substitute.device} for {original.device}"
    return None


def incompatible_gradient(original: Any, substitute: Any) -> str | None:
    """Tell why a substitute cannot stand for a gradient, which has the shape of its tensor."""
    reason = incompatible(original, substitute)
    if reason is None and original is not None and original.shape != substitute.shape:
        expected, given = tuple(original.shape), tuple(substitute.shape)
        return f"returned shape {given} for a gradient of shape {expected}"
    return reason


def stops_gradient(original: Any, substitute: Any) -> str | None:
    """Tell why a substitute cannot have the gradient pass straight through it."""
    reason = incompatible(original, substitute)
    if reason is not None or original is None or not carries_gradient(original):
        return reason
    if original.is_nested and is_strided_nested(original):
        return (
            "returned a substitute for a nested tensor of the strided layout, through which "
            "no gradient passes; use layout=torch.jagged"
        )
    if original.shape != substitute.shape:
        return (
            f"returned shape {tuple(substitute.shape)} for {tuple(original.shape)}, through "
            "which no gradient passes; insert it with differentiable=True"
        )
    return None
