"""Gradients arrive at leaves in the order in which an operator sends them.

Programs may tell: hooks on parameters draw random numbers, or update them. A boundary gets the
gradients of all inputs before it hands them on, and so is to do that in the order in which an
operator sends them that is made of several steps. It is found once for each kind, on copies.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from amanda_torch._internals import active_saved_hooks, transforms_active
from amanda_torch.tensors.straight import records_tangents
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.autograd.graph import Node

    Run = Callable[[Sequence[Tensor]], Sequence[Tensor]]

_PLAIN = (Tensor, torch.nn.Parameter)
# By the operator's type, and of each input what tells the steps apart of which it is made.
_found: dict[tuple[object, ...], Sequence[int] | None] = {}


def order_of(type: str, inputs: Sequence[Tensor], run: Run) -> Sequence[int] | None:
    """Return the order in which an operator's inputs get their gradients, as far as it matters.

    Args:
        type: the operator's type.
        inputs: what it is given.
        run: runs it on other tensors, and may do so to see.

    Returns:
        Numbers of all inputs; None where it is theirs, or cannot be found.
    """
    if sum(t.requires_grad and t.is_leaf for t in inputs) < 2:
        return None
    if transforms_active() or records_tangents() or not all(t.__class__ in _PLAIN for t in inputs):
        return None
    kind = type, *map(_kind, inputs)
    if kind not in _found:
        _found[kind] = _tried(inputs, run)
    return _found[kind]


def _kind(tensor: Tensor) -> tuple[object, ...]:
    if tensor.layout is not torch.strided:
        return tensor.requires_grad, tensor.is_leaf, tensor.layout
    return tensor.requires_grad, tensor.is_leaf, tensor.dim(), tensor.is_contiguous()


def _tried(inputs: Sequence[Tensor], run: Run) -> Sequence[int] | None:
    try:
        with unshown():
            copies = [t.detach().requires_grad_(t.requires_grad) for t in inputs]
            if active_saved_hooks(True) is None:
                outputs = run(copies)
            else:  # those of the program
                with torch.autograd.graph.saved_tensors_hooks(_same, _same):
                    outputs = run(copies)
    except Exception:  # the program's own run will tell
        return None
    order = _order(outputs, {id(copy): i for i, copy in enumerate(copies)})
    order += [i for i in range(len(inputs)) if i not in order]
    return None if order == sorted(order) else order


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _order(outputs: Sequence[Tensor], leaves: dict[int, int]) -> list[int]:
    """Return the numbers of leaves, as the engine of autograd would come to them."""
    nodes: dict[Node, None] = dict.fromkeys(t.grad_fn for t in outputs if t.grad_fn is not None)
    awaited: Counter[Node] = Counter()
    roots, queue = list(nodes), list(nodes)
    for node in queue:
        for source, _ in node.next_functions:
            if source is not None:
                awaited[source] += 1
                if source not in nodes:
                    nodes[source] = None
                    queue.append(source)
    order: list[int] = []
    came = 0
    ready = [(-node._sequence_nr(), i, node) for i, node in enumerate(roots) if not awaited[node]]
    heapq.heapify(ready)
    while ready:
        _, _, node = heapq.heappop(ready)
        leaf = leaves.get(id(getattr(node, "variable", None)))
        if leaf is not None:
            order.append(leaf)
        for source, _ in node.next_functions:
            if source is not None:
                awaited[source] -= 1
                if not awaited[source]:
                    came += 1
                    heapq.heappush(ready, (-source._sequence_nr(), len(nodes) + came, source))
    return order
