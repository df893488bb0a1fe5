"""The tool ``AttentionPruning`` prunes probabilities of attention."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import amanda

from amanda_tools.arrays import like, widened
from amanda_tools.hidden import refuse_hidden
from amanda_tools.pruning.attending import for_each_head, gradients, of_shared_heads, probabilities
from amanda_tools.pruning.values import ZeroingValues, check_one, kept

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from amanda_tools.pruning.layers import PrunedValues

# Inputs and attributes of a fused attention that are computed here.
_INPUTS = {"Q", "K", "V", "attn_mask"}
_ATTRS = {"is_causal", "scale", "q_num_heads", "kv_num_heads", "attn_mask"}


class AttentionPruning(ZeroingValues):
    """Takes small attention probabilities for zero, of each query.

    Those of a fused operator are pruned as those are that a model computes by a Softmax of three or
    four axes, and both are trained alike: what is pruned gets no gradient. (Wang et al., "SpAtten",
    HPCA 2021, prunes by top-k, Zadeh et al., 2019, and others by a threshold.) What is left of a
    query is not scaled up.

    Args:
        threshold: what is pruned is smaller than this.
        topk: how many of each query are kept, the largest ones. Of equal ones that are the last to
            stay, all do.
        scopes: globs of the scopes whose attention is pruned, all by default.
        count: count what is pruned. That takes routines on the host, which costs time in a graph.
        out: a file to write when the scope is left, a row for each operator, as JSON or CSV, or
            a picture (.svg), by its ending; then
            what is pruned is counted.

    Raises:
        OSError: it cannot be written there.
        ValueError: not one of ``threshold`` and ``topk`` is given, or one is out of range.
    """

    def __init__(
        self,
        threshold: float | None = None,
        topk: int | None = None,
        *,
        scopes: list[str] | None = None,
        count: bool = False,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        check_one(threshold, topk, "topk")
        if topk is not None and topk < 1:
            raise ValueError(f"topk is {topk}, and has to be 1 or more")
        super().__init__(count, out)
        self._threshold = threshold
        self._topk = topk
        refuse_hidden(self, ["Softmax", "Attention"], scopes)
        self.add_inst_for_op(self._analyze_softmax, ops=["Softmax"], scopes=scopes)
        self.add_inst_for_gradient(self._analyze_softmax_gradient, ops=["Softmax"], scopes=scopes)
        self.add_inst_for_op(self._analyze_fused, ops=["Attention"], scopes=scopes)
        self.add_inst_for_gradient(self._analyze_fused_gradient, ops=["Attention"], scopes=scopes)

    def masked(self, tensor: Any, values: Any, xp: Any) -> Any:
        """Return a tensor with zeros where probabilities are pruned."""
        mask = kept(values, self._threshold, self._topk, xp)
        return xp.where(mask, tensor, xp.zeros_like(tensor))

    def _analyze_softmax(self, ctx: amanda.OpContext) -> None:
        if _is_of_attention(ctx):
            self.prune(ctx)

    def _analyze_softmax_gradient(self, ctx: amanda.OpContext) -> None:
        if _is_of_attention(ctx):
            self.prune_gradient(ctx)

    def _analyze_fused(self, ctx: amanda.OpContext) -> None:
        known = _INPUTS.issuperset(ctx.input_names) and _ATTRS.issuperset(ctx.attrs)
        if not known:
            raise amanda.UnsupportedError(
                f"{self.name}: {ctx.op.named} does more than {sorted(_INPUTS)} say; have the model "
                "compute its probabilities by a Softmax (attn_implementation='eager' in "
                "transformers)"
            )
        ctx.replace_op(self._attend, pure=self.pure, row=self.row(ctx), ctx=ctx, **_how(ctx))

    def _analyze_fused_gradient(self, ctx: amanda.OpContext) -> None:
        ctx.insert_on_grad_outputs(self._take, outputs=[0], state=ctx.state(self))
        ctx.insert_on_grad_inputs(
            self._differentiated,
            inputs=["Q", "K", "V"],
            with_inputs=[*ctx.input_names],
            ctx=ctx,
            **_how(ctx),
        )

    def _attend(
        self,
        *tensors: Any,
        row: PrunedValues,
        ctx: amanda.OpContext,
        xp: Any,
        **how: Any,
    ) -> Any:
        q, k, v, *masks = _wide(tensors, ctx, xp)
        k, v = (for_each_head(each, q, xp) for each in (k, v))
        found = self.pruned(probabilities(q, k, *masks, xp=xp, **how), row, xp, ctx.numpy)
        return like(xp.matmul(found, v), tensors[0], xp)

    def _take(self, grad: Any, state: dict[str, Any]) -> Any:
        state["grad"] = grad
        return grad

    def _differentiated(self, *tensors: Any, ctx: amanda.OpContext, xp: Any, **how: Any) -> Any:
        given, inputs = tensors[:3], tensors[3:]
        grad, q, k, v, *masks = _wide((ctx.state(self).pop("grad"), *inputs), ctx, xp)
        keys, values = (for_each_head(each, q, xp) for each in (k, v))
        mask = functools.partial(self.masked, xp=xp)
        found = gradients(grad, q, keys, values, *masks, mask=mask, xp=xp, **how)
        return [
            None if old is None else like(of_shared_heads(new, wide, xp), old, xp)
            for old, new, wide in zip(given, found, (q, k, v), strict=True)
        ]


def _is_of_attention(ctx: amanda.OpContext) -> bool:
    rank = len(ctx.describe(ctx.inputs[0]).shape or ())
    return rank in (3, 4) and ctx.attrs.get("axis", -1) in (-1, rank - 1)


def _wide(tensors: Sequence[Any], ctx: amanda.OpContext, xp: Any) -> list[Any]:
    """Return tensors in single precision where they are of half, as fused operators compute."""
    return [
        widened(tensor, dtype, xp) if "float" in (dtype := ctx.describe(tensor).dtype) else tensor
        for tensor in tensors
    ]


def _how(ctx: amanda.OpContext) -> dict[str, Any]:
    """Return what a fused attention computes by, beside its tensors."""
    size = (ctx.describe(ctx.input("Q")).shape or (None,))[-1]
    scale = ctx.attrs.get("scale")
    if scale is None and size is not None:
        scale = size**-0.5
    return {"scale": scale, "causal": bool(ctx.attrs.get("is_causal")), "xp": ctx.xp}
