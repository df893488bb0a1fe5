"""What type checkers complain of, in the lines that say so, and nowhere else."""

from functools import partial

import amanda
from torch import Tensor


class Misspelt(amanda.Tool):
    def __init__(self) -> None:
        super().__init__()
        self.add_inst_for_op(self.analyze, op=["relu"])  # wrong
        self.add_inst_for_op(self.analyze, backwards=True)  # wrong
        self.add_inst_for_op(self.analyze, ops="relu", scope=["encoder"])  # wrong
        self.add_inst_for_gradient(self.analyze, types=["relu"])  # wrong
        self.add_inst_for_module(self.analyze, module=["encoder"])  # wrong
        self.add_inst_for_op(self.scale)  # wrong

    def analyze(self, ctx: amanda.OpContext[Tensor]) -> None:
        ctx.insert_before_op(self.one, input=[0])  # wrong
        ctx.insert_before_op(self.one, outputs=[0])  # wrong
        ctx.insert_before_op(self.one, with_inputz=["weight"])  # wrong
        ctx.insert_before_op(self.scale, factors=0.5)  # wrong
        ctx.insert_before_op(self.scale, factor="half")  # wrong
        ctx.insert_before_op(self.scale, purre=True, factor=0.5)  # wrong
        ctx.insert_before_op(partial(self.scale, factors=0.5))  # wrong
        ctx.insert_after_op(self.one, inputs=[0])  # wrong
        ctx.insert_after_op(self.beside, with_input=["weight"], share=0.5)  # wrong
        ctx.insert_after_op(self.beside, with_inputs=["weight"], shares=0.5)  # wrong
        ctx.insert_after_op(self.all_of_them, contxt=ctx)  # wrong
        ctx.insert_after_op(self.all_of_them, with_outputs=[0], context=ctx)  # wrong
        ctx.insert_after_op(lambda y: y * 2, diferentiable=True)  # wrong
        ctx.replace_op(self.one, originals=True)  # wrong
        ctx.insert_before_backward_op(self.one, outputs=[0])  # wrong
        ctx.insert_after_backward_op(self.scale, grad_outputs=[0], factor=0.5)  # wrong
        ctx.replace_backward_op(self.scale, factr=0.5)  # wrong
        ctx.insert_on_grad_outputs(self.scale, with_output=[0], factor=0.5)  # wrong
        ctx.insert_on_grad_inputs(self.one, with_grads=[0])  # wrong
        ctx.inputs[0].no_method()  # wrong
        ctx.grad_outputs[0].norm()  # wrong

    def one(self, x: Tensor) -> Tensor:
        return x

    def scale(self, x: Tensor, factor: float) -> Tensor:
        return x * factor

    def beside(self, y: Tensor, weight: Tensor, share: float = 1.0) -> Tensor:
        return y * weight * share

    def all_of_them(self, *tensors: Tensor, context: amanda.OpContext[Tensor]) -> None:
        print(context.op.id, len(tensors))
