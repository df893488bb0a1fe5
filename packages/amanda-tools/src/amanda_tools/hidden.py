"""Some operators hide what a tool would change, and others share it unnoticed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import amanda
from amanda_contextmap import lookups, wholes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def refuse_hidden(
    tool: amanda.Tool,
    types: Collection[str],
    scopes: Sequence[str] | None,
    option: str = "scopes",
    left_out: Sequence[str] = (),
) -> None:
    """Have a tool refuse to run with operators that compute some of its types as one.

    Args:
        tool: a tool that speaks ONNX.
        types: the types of operators that it changes.
        scopes: globs of the scopes that it looks at.
        option: the option of the tool that leaves operators out.
        left_out: globs of the scopes that are left out by it.
    """
    ways_out = wholes(types)

    def refuse(ctx: amanda.OpContext) -> None:
        if not ctx.op.within(*left_out):
            raise amanda.UnsupportedError(
                f"{tool.name}: {ctx.op.named} computes several steps as one, and hides what is to "
                f"be changed; {ways_out[ctx.op.type]}, or leave it out by {option}="
            )

    tool.add_inst_for_op(refuse, ops=ways_out.keys() - set(types), scopes=scopes)


def show_lookups(tool: amanda.Tool) -> None:
    """Have ``make_permanent`` know of embeddings that share a weight that a tool changes.

    Args:
        tool: a tool that speaks ONNX, and does not change what is looked up.
    """
    tool.add_inst_for_op(lambda ctx: None, ops=lookups())
