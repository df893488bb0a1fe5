"""An operator's operands are the tensors that it multiplies with each other."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from amanda_contextmap import Factor, products

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import amanda


# Tables of embeddings are no default: rows are looked up in them, and nothing is multiplied.
_TABLES = {"Gather": {"data": Factor(channel=0)}}
_FEW_BITS = tuple(f"int{bits}" for bits in range(1, 9))  # as names of types end, uint8 too


class Operand(NamedTuple):
    """An operand is a tensor that an operator is given, and may be quantized.

    Attributes:
        position, name: among the operator's inputs.
        is_weight: whether it is a parameter of the model.
        channel: the axis of the output's channels, if it is a parameter and has one.
        summed: the axis along which its products are summed up, if there is one.
    """

    position: int
    name: str
    is_weight: bool
    channel: int | None
    summed: int | None


def checked_types(types: Sequence[str] | None) -> tuple[str, ...]:
    """Return the types of operators to quantize, by default all that multiply.

    Raises:
        ValueError: one has no operands that could be quantized.
    """
    if types is None:
        return tuple(products())
    for type in types:
        if type not in _factors():
            known = ", ".join(_factors())
            raise ValueError(f"ops={type}: what can be quantized are operands of {known}")
    return tuple(types)


def operands_of(ctx: amanda.OpContext, ignored: Collection[str]) -> list[Operand]:
    """List the operands of an operator of the model that are floating-point numbers.

    Args:
        ctx: of its analysis.
        ignored: globs of the scopes of operators that have none.
    """
    parameters = ctx.parameters
    found = []
    for index, name, info, factor in _multiplied(ctx, ignored):
        if "float" not in info.dtype:
            continue
        is_weight = index in parameters
        has_axes = info.shape is not None and len(info.shape) > 1
        channel, summed = factor if has_axes else Factor()
        found.append(Operand(index, name, is_weight, channel if is_weight else None, summed))
    return found


def is_quantized(ctx: amanda.OpContext, ignored: Collection[str]) -> bool:
    """Tell whether what an operator of the model multiplies are integers of a few bits already.

    Args:
        ctx: of its analysis.
        ignored: globs of the scopes of operators that are left out.
    """
    dtypes = [info.dtype for _, _, info, _ in _multiplied(ctx, ignored)]
    return bool(dtypes) and all(dtype.endswith(_FEW_BITS) for dtype in dtypes)


def _multiplied(
    ctx: amanda.OpContext, ignored: Collection[str]
) -> Iterator[tuple[int, str, amanda.TensorInfo, Factor]]:
    """List what an operator of the model multiplies: by position and name, and along which axes."""
    driver = ctx.driver
    if driver.purpose(ctx.op) != "model" or driver.computes_parameter(ctx.op):
        return
    if ctx.op.within(*ignored):
        return
    factors = _factors()[ctx.op.type]
    for index, (name, tensor) in enumerate(zip(ctx.input_names, ctx.inputs, strict=True)):
        role = name.partition("[")[0]  # W[1] is W of the other direction
        if role in factors and tensor is not None:
            yield index, name, ctx.describe(tensor), factors[role]


@functools.cache
def _factors() -> dict[str, Mapping[str, Factor]]:
    """Return what is multiplied, by the operator's type and the role of the input."""
    return {**products(), **_TABLES}
