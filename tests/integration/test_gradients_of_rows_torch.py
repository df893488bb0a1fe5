"""Gradients of which PyTorch has some rows: portable tools see, and change, the whole."""

import amanda
import amanda_torch  # noqa: F401
import numpy as np
import pytest
import torch
from torch.nn.functional import embedding

IDS = torch.tensor([1, 2, 3, 1, 1])
UP = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
WHOLE = torch.zeros(10, 4).index_add(0, IDS, UP)


class OnTables(amanda.Tool):
    """Runs a routine on the gradient of every table, and keeps what an analysis sees of it."""

    def __init__(self, routine, namespace="onnx", op="Gather"):
        super().__init__(namespace=namespace)
        self.shown = []

        def analyze(ctx):
            self.shown.append(ctx.grad_inputs[0])
            ctx.insert_on_grad_inputs(routine, inputs=[0])

        self.add_inst_for_gradient(analyze, ops=[op])


def table_after_backward(*tools, make=lambda table: embedding(IDS, table, sparse=True)):
    table = torch.ones(10, 4, requires_grad=True)
    with amanda.apply(*tools):
        (make(table) * UP).sum().backward()
    return table


def test_a_portable_tool_sees_the_whole_and_leaves_the_rows():
    seen = []
    tool = OnTables(lambda gradient: seen.append(gradient.numpy()))
    gradient = table_after_backward(tool).grad
    plain = table_after_backward().grad
    assert tool.shown[0].layout is torch.strided
    np.testing.assert_allclose(seen, WHOLE[None])
    assert gradient.is_sparse
    assert torch.equal(gradient._indices(), plain._indices())
    assert torch.equal(gradient._values(), plain._values())


def test_a_native_tool_sees_the_rows():
    layouts = []
    table_after_backward(OnTables(lambda g: layouts.append(g.layout), None, "embedding"))
    assert layouts == [torch.sparse_coo]


@pytest.mark.parametrize("sparse", [True, False])
def test_what_it_returns_is_the_gradient_of_all_rows(sparse):
    table = table_after_backward(
        OnTables(lambda gradient: gradient * 2 + 1),
        make=lambda table: embedding(IDS, table, sparse=sparse),
    )
    assert table.grad.is_sparse is sparse
    torch.testing.assert_close(table.grad.to_dense(), WHOLE * 2 + 1)


def test_an_optimizer_of_sparse_gradients_takes_it():
    table = table_after_backward(OnTables(lambda gradient: gradient * 2))
    torch.optim.SparseAdam([table], lr=0.1).step()
    plain = table_after_backward()
    plain.grad = (WHOLE * 2).to_sparse(1)
    torch.optim.SparseAdam([plain], lr=0.1).step()
    torch.testing.assert_close(table, plain)


def test_native_and_portable_tools_see_what_the_other_returned():
    table = table_after_backward(
        OnTables(lambda rows: rows * 2, None, "embedding"),
        OnTables(lambda whole: whole + 1),
        OnTables(lambda rows: rows * 3, None, "embedding"),
    )
    torch.testing.assert_close(table.grad.to_dense(), (WHOLE * 2 + 1) * 3)
