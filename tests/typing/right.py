"""Tools that type checkers have nothing to say of, in all ways of inserting a routine."""

from functools import partial

import amanda
import torch
from torch import Tensor


class Watch(amanda.Tool):
    """Its routines take torch's tensors, which need no casts."""

    def __init__(self) -> None:
        super().__init__()
        self.zeros: dict[str, float] = {}
        self.add_inst_for_op(self.analyze, ops=["relu", "linear"], scopes=["encoder.*"])
        self.add_inst_for_op(self.analyze_backward, backward=True, require_outputs=True)
        self.add_inst_for_gradient(self.analyze_gradient, ops=["linear"])
        self.add_inst_for_module(self.analyze, modules=["encoder"])

    def analyze(self, ctx: amanda.OpContext[Tensor]) -> None:
        first: Tensor = ctx.inputs[0]
        factor = first.abs().max().item()
        ctx.insert_before_op(self.look)
        ctx.insert_before_op(self.scale, inputs=["weight"], factor=factor)
        ctx.insert_before_op(self.scale, [1], pure=True, differentiable=True, factor=factor)
        ctx.insert_before_op(partial(self.scale, factor=factor), inputs=[1])
        ctx.insert_after_op(self.show, id=ctx.op.id)
        ctx.insert_after_op(self.beside, outputs=[0], with_inputs=["weight"], share=0.5)
        ctx.insert_after_op(self.beside, with_given=[1])
        ctx.insert_after_op(self.all_of_them, context=ctx)
        ctx.insert_after_op(self.all_of_them, pure=True, context=ctx)
        ctx.insert_after_op(lambda y: y * factor, pure=True)
        ctx.insert_after_op(lambda y, factor: y * factor, factor=factor)
        ctx.insert_after_op(torch.relu)
        ctx.replace_op(torch.nn.functional.linear)
        ctx.replace_op(torch.nn.functional.linear, differentiable=True)
        ctx.replace_op(self.through, original=True)

    def analyze_backward(self, ctx: amanda.OpContext[Tensor]) -> None:
        gradient = ctx.grad_outputs[0]
        if gradient is not None:
            ctx.insert_before_backward_op(self.scale, factor=gradient.norm().item())
        ctx.insert_after_backward_op(self.scale, grad_inputs=[0], factor=0.5)
        ctx.replace_backward_op(self.all_of_them, context=ctx)

    def analyze_gradient(self, ctx: amanda.OpContext) -> None:
        ctx.insert_on_grad_outputs(self.scale, outputs=[0], factor=0.5)
        ctx.insert_on_grad_inputs(
            self.beside, inputs=["weight"], with_inputs=["weight"], with_outputs=[0], share=0.1
        )
        print(ctx.inputs[0].shape, ctx.xp.abs(ctx.inputs[0]))  # of any backend

    def look(self, *inputs: Tensor) -> None:
        self.zeros["all"] = sum(int((x == 0).sum()) for x in inputs)

    def scale(self, x: Tensor, factor: float) -> Tensor:
        return x * factor

    def show(self, y: Tensor, id: str) -> None:
        self.zeros[id] = (y == 0).float().mean().item()

    def beside(self, y: Tensor, weight: Tensor, *more: Tensor, share: float = 1.0) -> Tensor:
        return torch.where(weight.abs() > share, y, torch.zeros_like(y))

    def through(self, original: "type[Tensor]", *inputs: Tensor) -> None:
        print(original, len(inputs))

    def all_of_them(self, *tensors: Tensor, context: amanda.OpContext[Tensor]) -> None:
        print(context.op.id, len(tensors))
