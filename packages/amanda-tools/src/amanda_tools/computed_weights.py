"""A weight that the model computes is no parameter; tools that change weights leave it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_tools.left_alone import LeftAlone

if TYPE_CHECKING:
    from collections.abc import Collection

    import amanda

# Types of ONNX that have a weight wherever they stand, and what it is called. A product of matrices
# has one where a backend tells what is computed of parameters alone: it may be of two activations.
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
        driver = ctx.driver
        if driver.purpose(ctx.op) == "model" and not driver.computes_parameter(ctx.op):
            given = {ctx.input_names[index].partition("[")[0] for index in ctx.parameters}
            if given.isdisjoint(_WEIGHTS.get(ctx.op.type, ())) and _has_weight(ctx):
                super().note(ctx)


def _has_weight(ctx: amanda.OpContext) -> bool:
    if ctx.op.type in _WEIGHTS:
        return True
    computed = ctx.driver.is_computed_of_parameters
    return not ctx.parameters and any(computed(t) for t in ctx.inputs if t is not None)
