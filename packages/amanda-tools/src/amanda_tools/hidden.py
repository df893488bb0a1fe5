"""Operators that hide what a tool would change: they compute several steps as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import amanda

if TYPE_CHECKING:
    from collections.abc import Sequence

# What PyTorch runs in the place of layers of a transformer that are evaluated.
ENCODER = "torch::_transformer_encoder_layer_fwd"
ATTENTION = "torch::_native_multi_head_attention"
FAST_PATH = "run the model after torch.backends.mha.set_fastpath_enabled(False)"


def hidden(ctx: amanda.OpContext, way_out: str, option: str) -> amanda.UnsupportedError:
    """The error for an operator that hides its operands.

    Args:
        ctx: of its analysis.
        way_out: what else to do.
        option: the option of the tool that leaves operators out.
    """
    return amanda.UnsupportedError(
        f"{ctx.op.named} multiplies what no tool can replace; {way_out}, or leave it out by "
        f"{option}="
    )


def refuse_fast_path(tool: amanda.Tool, types: Sequence[str], scopes: Sequence[str] | None) -> None:
    """Have a tool, which takes ``scopes``, refuse to run with these layers on the fast path."""

    def refuse(ctx: amanda.OpContext) -> None:
        raise hidden(ctx, FAST_PATH, "scopes")

    tool.add_inst_for_op(refuse, ops=types, scopes=scopes)
