"""The map on whole models: what it says is in ONNX's schemas, and looking changes nothing."""

import amanda
import pytest
import torch
from amanda import Tool
from amanda_contextmap.testing import assert_in_schema
from architectures import ARCHITECTURES, loss_of


class LookAtAll(Tool):
    """Looks at every operator and every gradient."""

    def __init__(self):
        super().__init__(namespace="onnx")
        self.types = []
        self.add_inst_for_op(self.analyze)
        self.add_inst_for_gradient(self.analyze_gradient)

    def analyze(self, ctx):
        self.types.append(ctx.op.type)
        if "::" not in ctx.op.type:
            assert_in_schema(ctx.op.type, ctx.input_names, ctx.attrs)

    def analyze_gradient(self, ctx):
        for tensor, gradient in zip(ctx.inputs, ctx.grad_inputs, strict=True):
            assert gradient is None or gradient.shape == tensor.shape


def step(build, *tools):
    """The loss and the gradients of one step of training."""
    torch.manual_seed(0)
    model, inputs = build()
    with amanda.apply(*tools):
        loss = loss_of(model(**inputs))
        loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("build", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_a_tool_that_looks_at_everything(build):
    tool = LookAtAll()
    found, plain = step(build, tool), step(build)
    assert all(torch.equal(one, other) for one, other in zip(found, plain, strict=True))
    known = [type for type in tool.types if not type.startswith("torch::")]
    assert len(known) >= len(tool.types) / 2
