"""Gradients arrive at leaves in the order in which an operator sends them.

Programs may tell: hooks on parameters draw random numbers, or update them. A boundary gets the
gradients of all inputs before it hands them on, and so is to do that in the order in which an
operator sends them that is made of several steps. It is found once for each kind, on copies.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from amanda_torch._internals import active_saved_hooks, transforms_active
from amanda_torch.backward.ready import Ready
from amanda_torch.tensors.straight import records_tangents
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch.autograd.graph import Node

    Run = Callable[[Sequence[Tensor]], Sequence[Tensor]]

_PLAIN = (Tensor, torch.nn.Parameter)
# The steps of these depend on how large their inputs are.
_BY_SIZE = frozenset(
    ["cdist", "chain_matmul", "einsum", "linalg_multi_dot", "scaled_dot_product_attention"]
)
# By the operator's type and settings, and of each input what tells the steps apart of which it is
# made. Settings may be others in each step of a program, so that not all are kept.
_found: dict[tuple[object, ...], Sequence[int]] = {}
_MANY = 1024


def order_of(
    operator: tuple[str, object], inputs: Sequence[Tensor], run: Run, has_state: bool
) -> Sequence[int]:
    """Return the order in which the leaves among an operator's inputs get their gradients.

    Args:
        operator: its type, and what it is given beside tensors.
        inputs: the tensors.
        run: runs it on other tensors, and may do so to see.
        has_state: whether it writes to inputs that have no gradient.

    Returns:
        Numbers of these inputs; none where one step sends all gradients, in the order in which any
        does, or where it cannot be found.
    """
    if transforms_active() or records_tangents() or not all(t.__class__ in _PLAIN for t in inputs):
        return ()
    kind = *operator, *(_kind(t, operator[0] in _BY_SIZE) for t in inputs)
    order = _found.get(kind)
    if order is None:
        try:
            copies, outputs = _run_unseen(run, inputs, has_state)
        except Exception:  # the program's own run will tell
            return ()
        order = _arrivals(outputs, inputs, copies)
        if len(_found) >= _MANY:
            _found.clear()
        _found[kind] = order
    return order


def _kind(tensor: Tensor, by_size: bool) -> tuple[object, ...]:
    device = tensor.device.type
    return (
        *(tensor.requires_grad, tensor.is_leaf, tensor.layout, tensor.dtype, device),
        torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device),
        tensor.shape if by_size else tensor.dim(),
        tensor.layout is torch.strided and tensor.is_contiguous(),
    )


def _run_unseen(
    run: Run, inputs: Sequence[Tensor], has_state: bool
) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Run an operator on copies of its inputs; return these, and what it gives."""
    caches = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # which would keep what the copies are cast to
    try:
        with unshown(), torch.random.fork_rng({t.device.index for t in inputs if t.is_cuda}):
            unique = {id(t): _copy(t, has_state) for t in inputs}
            copies = [unique[id(t)] for t in inputs]
            if active_saved_hooks(True) is None:
                return copies, run(copies)
            # those of the program
            with torch.autograd.graph.saved_tensors_hooks(_same, _same):
                return copies, run(copies)
    finally:
        torch.set_autocast_cache_enabled(caches)


def _copy(tensor: Tensor, has_state: bool) -> Tensor:
    copy = tensor.detach()
    if tensor.requires_grad:
        return copy.requires_grad_()
    return copy.clone() if has_state else copy


def _arrivals(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], copies: Sequence[Tensor]
) -> Sequence[int]:
    """List the leaves among the inputs in the order of arrival, none where one step would do so."""
    numbers = {id(copy): i for i, copy in reversed([*enumerate(copies)])}
    order = [i for i in _order(outputs, inputs, numbers) if inputs[i].is_leaf]
    at_once: Ready[int] = Ready()
    for i in sorted(numbers.values()):
        if inputs[i].requires_grad:
            at_once.push(_priority(inputs[i].grad_fn), i)
    return () if order == [i for i in at_once.popped() if inputs[i].is_leaf] else order


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _priority(node: Node | None) -> int:
    """Return what tells the node that comes first of those that are ready; None is of a leaf."""
    return Ready.FIRST if node is None else node._sequence_nr()


def _order(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], numbers: dict[int, int]
) -> list[int]:
    """List inputs as the engine of autograd comes to their nodes.

    Args:
        outputs: what the operator has made of copies of its inputs.
        inputs: what it is given.
        numbers: of the inputs, by the identity of their copies.
    """
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
    ready: Ready[Node] = Ready()
    for node in roots:
        if not awaited[node]:
            ready.push(_priority(node), node)
    for node in ready.popped():
        number = numbers.get(id(getattr(node, "variable", None)))
        if number is not None:
            order.append(number)
        for source, _ in node.next_functions:
            if source is not None:
                awaited[source] -= 1
                if not awaited[source]:
                    leaf = numbers.get(id(getattr(source, "variable", None)))
                    ready.push(_priority(source if leaf is None else inputs[leaf].grad_fn), source)
    return order
