"""A weight that the model computes is no parameter; tools that change weights leave it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_tools.left_alone import LeftAlone

if TYPE_CHECKING:
    from collections.abc import Collection

    import amanda

# Types of ONNX that have a weight wherever they stand, and what it is called. A product of matrices
# has none: what it is given may all be activations, and none of it can be told for a weight.
_WEIGHTS: dict[str, Collection[str]] = {
    "Conv": ("W",),
    "ConvTranspose": ("W",),
    "Gemm": ("A", "B"),
    "GRU": ("W", "R"),
    "LSTM": ("W", "R"),
    "RNN": ("W", "R"),
}


class ComputedWeights(LeftAlone):
    """This notes the operators whose weight is no parameter, for a tool that leaves them alone.

    Args:
        tool: a tool that speaks ONNX.
        option: the option of the tool that leaves operators out.
    """

    def __init__(self, tool: amanda.Tool, option: str = "scopes") -> None:
        super().__init__(
            tool,
            "what is given there as the weight is no parameter, as where the model computes it of "
            "others (weight_norm, spectral_norm, a parametrization, an adapter); make it one "
            "ahead, by removing the parametrization or merging the adapter, or leave it out by "
            f"{option}=",
        )

    def note(self, ctx: amanda.OpContext) -> None:
        """Take note of the operator under analysis if it is one of them."""
        roles = _WEIGHTS.get(ctx.op.type)
        driver = ctx.driver
        if roles is None or driver.purpose(ctx.op) != "model" or driver.computes_parameter(ctx.op):
            return
        given = (ctx.input_names[index].partition("[")[0] for index in ctx.parameters)
        if not any(name in roles for name in given):
            super().note(ctx)
