"""The roles of an operator's inputs: which is its weight, and which flows through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amanda._drivers.tensors import TensorInfo

# The types of what flows through operators, and what schemas call it that takes more than that.
_FLOWING = ("float", "bfloat", "complex")
_MAIN = ("input", "X", "x")
# What schemas call a bias, each with the operands of which one is the weight beside it.
_BIASES = {
    "bias": {"weight", "scale"},
    "B": {"W", "scale", "Scale"},
    "C": {"B"},
    "self": {"mat1", "mat", "batch1"},
    "b_ih": {"w_ih"},
    "b_hh": {"w_hh"},
}


def weight_among(parameters: Sequence[int], names: Sequence[str]) -> int | None:
    """Return the first of the parameters that is no bias, by the names of all inputs."""
    plain = [name.partition("[")[0] for name in names]
    return next((i for i in parameters if _BIASES.get(plain[i], set()).isdisjoint(plain)), None)


def flowing_among(
    infos: Mapping[int, TensorInfo], names: Sequence[str], has_parameters: bool
) -> int | None:
    """Return the input that flows through an operator, among those that are no parameters."""
    flowing = [i for i, info in infos.items() if info.dtype.startswith(_FLOWING)]
    candidates = [i for i in flowing if infos[i].shape != ()] or flowing
    if len(candidates) > 1 and has_parameters:
        candidates = [i for i in candidates if names[i] in _MAIN]
    return candidates[0] if len(candidates) == 1 else None
