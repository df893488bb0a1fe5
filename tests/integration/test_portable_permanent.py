"""What tools make of weights is written into models that run without gradients.

There PyTorch does not tell what a copy was made of; where a tool speaks another vocabulary the
driver takes note of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import amanda
import keras_process
import pytest
import torch
from amanda.testing.probes import before, under
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable


class Portable(amanda.Tool):
    """Looks at products in the portable vocabulary, for which copies are noted."""

    def __init__(self) -> None:
        super().__init__(namespace="onnx")
        self.add_inst_for_op(lambda ctx: None, ops=["MatMul", "Gemm"])


class Own(nn.Module):
    """A function of one weight."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x @ w.t(),
        lambda x, w: x @ w[1:].t(),
        lambda x, w: x @ w.view(2, 2, 3)[1].t(),
        lambda x, w: x @ w.to(torch.float64).to(torch.float32).t(),
        lambda x, w: x @ w.t().contiguous(),
        lambda x, w: x @ w[1:].to(torch.float64).view(3, 3).float().t(),
    ],
    ids=["transposed", "sliced", "viewed", "cast", "copied", "copied_part"],
)
def test_where_a_weight_is_given_as_a_view_or_a_copy(
    function: Callable[[Tensor, Tensor], Tensor],
) -> None:
    model, x = Own(function), torch.randn(2, 3)
    tool = before("matmul", lambda weight: weight * 0.5, inputs=[1])
    tool.depends_on(Portable())
    original = model.weight.detach().clone()
    with torch.no_grad():
        expected = under(tool, lambda: model(x)).clone()
        tool.make_permanent(model)
        assert torch.equal(model(x), expected)
    changed = original != model.weight
    assert changed.any()
    assert torch.equal(model.weight[changed], original[changed] * 0.5)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_weights_that_a_layer_of_keras_got_late_are_written_too(backend):
    assert float(keras_process.run(backend, "keras_late_program.py").split()[-1]) < 1e-6
