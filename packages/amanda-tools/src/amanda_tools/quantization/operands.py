"""Which tensors of an operator are quantized: those that it multiplies with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from amanda_tools.hidden import ATTENTION, ENCODER, FAST_PATH, hidden

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import amanda


class _Role(NamedTuple):
    """What is known of an operand by its name.

    Attributes:
        channel: the axis of the output's channels, in a parameter of several axes.
        summed: the axis along which products are summed up, if it is one for all of them.
    """

    channel: int | None = None
    summed: int | None = None


_RECURRENT = {"X": _Role(), "W": _Role(channel=-2), "R": _Role(channel=-2)}
_OPERANDS: dict[str, dict[str, _Role]] = {
    "Conv": {"X": _Role(), "W": _Role(channel=0)},
    "ConvTranspose": {"X": _Role(), "W": _Role(channel=1)},
    "Gemm": {"A": _Role(summed=-1), "B": _Role(channel=0)},
    "MatMul": {"A": _Role(channel=-2, summed=-1), "B": _Role(channel=-1, summed=-2)},
    "Attention": {"Q": _Role(summed=-1), "K": _Role(summed=-1), "V": _Role(summed=-2)},
    # ONNX has none that multiply and add at once but of matrices
    "torch::baddbmm": {"batch1": _Role(summed=-1), "batch2": _Role(summed=-2)},
    "torch::addbmm": {"batch1": _Role(), "batch2": _Role()},
    "torch::addmv": {"mat": _Role(channel=0, summed=-1), "vec": _Role()},
    "Gather": {"data": _Role(channel=0)},
    "LSTM": _RECURRENT,
    "GRU": _RECURRENT,
    "RNN": _RECURRENT,
}
# Tables of embeddings are left out: rows are looked up in them, and nothing is multiplied.
PRODUCTS = tuple(type for type in _OPERANDS if type != "Gather")

# Operators that multiply operands which no tool gets to see one by one, and a way out.
_LAYERS = "make the recurrent network of modules of one layer each, without projections"
_WHOLE = {
    ENCODER: FAST_PATH,
    ATTENTION: FAST_PATH,
    "torch::lstm": _LAYERS,
    "torch::gru": _LAYERS,
    "torch::rnn_tanh": _LAYERS,
    "torch::rnn_relu": _LAYERS,
    "torch::bilinear": "write it as products of matrices",
}
HIDDEN = tuple(_WHOLE)


class Operand(NamedTuple):
    """A tensor that an operator is given.

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
    """The types of operators to quantize, by default all that multiply.

    Raises:
        ValueError: one has no operands that could be quantized.
    """
    if types is None:
        return PRODUCTS
    for type in types:
        if type not in _OPERANDS:
            known = ", ".join(_OPERANDS)
            raise ValueError(f"ops={type}: what can be quantized are operands of {known}")
    return tuple(types)


def operands_of(ctx: amanda.OpContext, ignored: Collection[str]) -> list[Operand]:
    """The operands of an operator of the model that are floating-point numbers.

    Args:
        ctx: of its analysis.
        ignored: globs of the scopes of operators that have none.
    """
    if ctx.driver.purpose(ctx.op) != "model" or ctx.op.within(*ignored):
        return []
    roles, parameters = _OPERANDS[ctx.op.type], ctx.parameters
    found = []
    for index, (name, tensor) in enumerate(zip(ctx.input_names, ctx.inputs, strict=True)):
        role = name.partition("[")[0]  # W[1] is W of the other direction
        if role not in roles or tensor is None:
            continue
        info = ctx.describe(tensor)
        if "float" not in info.dtype:
            continue
        is_weight = index in parameters
        has_axes = info.shape is not None and len(info.shape) > 1
        channel, summed = roles[role] if has_axes else _Role()
        found.append(Operand(index, name, is_weight, channel if is_weight else None, summed))
    return found


def refusal(ctx: amanda.OpContext) -> amanda.UnsupportedError:
    """The error for an operator that hides its operands; it names a way out."""
    return hidden(ctx, _WHOLE[ctx.op.type], "ignored")
