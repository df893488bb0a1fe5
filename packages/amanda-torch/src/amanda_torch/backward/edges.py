"""An edge is where gradients of a tensor go, which several tensors may have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.autograd.graph import GradientEdge

from amanda_torch._internals import node_of, share_memory
from amanda_torch.tensors.straight import in_graph, is_strided_nested
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.autograd.graph import Node


def edges(tensors: Sequence[Tensor]) -> list[GradientEdge | None]:
    """Return the edges of tensors, None for those to which no gradients go.

    An edge does not keep the graph alive that it is part of.
    """
    return [_edge(in_graph(tensor)) for tensor in tensors]


def sent_by(node: Node, slot: int) -> GradientEdge:
    """Return where an autograd node sends the gradient that it has at a place, if it sends one."""
    source, number = node.next_functions[slot]
    assert source is not None
    return GradientEdge(source, number)


def come_twice(tensors: Sequence[Tensor]) -> bool:
    """Tell whether gradients of several of the tensors go to one place."""
    found = [(id(t.grad_fn or t), t.output_nr) for t in tensors if t.requires_grad]
    return len(found) > 1 and len(set(found)) < len(found)


def _edge(tensor: Tensor) -> GradientEdge | None:
    if not tensor.requires_grad or is_strided_nested(tensor):
        return None
    node = tensor.grad_fn
    if node is None:
        with unshown():
            node = node_of(tensor)
    return GradientEdge(node, tensor.output_nr)


def alias(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> bool:
    """Tell whether any output is an input or shares its memory."""
    memory = [in_graph(tensor) for tensor in inputs]
    return any(a is b or share_memory(a, b) for a in map(in_graph, outputs) for b in memory)
