"""Weights that a quantized model has packed are left alone by tools that change factors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_contextmap import packed

from amanda_tools.left_alone import LeftAlone

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import amanda


class PackedWeights(LeftAlone):
    """This notes the operators that compute of packed weights, for a tool that leaves them alone.

    Args:
        tool: a tool that speaks ONNX.
        types: the types of operators that it changes.
        scopes: globs of the scopes that it looks at.
        option: the option of the tool that leaves operators out.
        left_out: globs of the scopes that are left out by it.
    """

    def __init__(
        self,
        tool: amanda.Tool,
        types: Collection[str],
        scopes: Sequence[str] | None,
        option: str = "scopes",
        left_out: Sequence[str] = (),
    ) -> None:
        super().__init__(
            tool,
            "its weights are packed there for a kernel of few bits, as in a model that was "
            "quantized before; run the model as it was ahead of that, or leave it out by "
            f"{option}=",
        )
        self._left_out = left_out
        tool.add_inst_for_op(self.note, ops=packed(types), scopes=scopes)

    def note(self, ctx: amanda.OpContext) -> None:
        """Take note of the operator under analysis, unless it is left out."""
        if not ctx.op.within(*self._left_out):
            super().note(ctx)
