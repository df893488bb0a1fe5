"""What an operator sends to its inputs is computed between the boundaries that it lies between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.autograd.graph import GradientEdge

from amanda_torch._internals import current_node
from amanda_torch.backward.edges import sent_by
from amanda_torch.backward.probing import probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.autograd.graph import Node

    from amanda_torch.tensors.batches import Batches

    Grads = Sequence[Tensor | None]


def grad_inputs_of(
    inputs: Sequence[GradientEdge | None],
    places: Sequence[int],
    grads: Grads,
    batches: Batches | None,
) -> list[Tensor | None]:
    """Compute the operator's gradients of its inputs, while those of its outputs are passed on.

    Args:
        inputs: the :func:`edges` of what it was given. In a pass of another transform of
            ``torch.func`` the boundary ahead is another node, with the same watch.
        places: which outputs lie behind the boundary after it.
        grads: the gradients of its outputs.
        batches: how ``vmap`` has wrapped its tensors, None if it has not.
    """
    result: list[Tensor | None] = [None] * len(inputs)
    ahead = next((edge.node for edge in inputs if edge is not None), None)
    after: Node = current_node()
    boundary = _boundary_ahead(after, ahead)
    if boundary is None:
        return result
    if batches is not None:
        ins, outs = batches.of_pass(innermost=boundary is ahead)
        grads = [batches.of_batch(g, w) for g, w in zip(grads, outs, strict=True)]
    flowing = [(slot, place) for slot, place in enumerate(places) if grads[place] is not None]
    wanted = [i for i, edge in enumerate(inputs) if edge is not None]
    found = probe(
        [sent_by(after, slot) for slot, _ in flowing],
        [GradientEdge(boundary, inputs[i].output_nr) for i in wanted],  # type: ignore[union-attr]
        [grads[place] for _, place in flowing],
    )
    for i, grad in zip(wanted, found, strict=True):
        result[i] = grad if batches is None else batches.of_sample(grad, ins[i])
    return result


def _boundary_ahead(after: Node, ahead: Node | None) -> Node | None:
    """Find the boundary nearest to a node, towards the inputs, that has the watch of ``ahead``.

    None if its gradients lead to none.
    """
    watch = getattr(ahead, "watch", None)
    nodes: dict[Node, None] = {after: None}
    queue = [after] if watch is not None else []
    for node in queue:
        for source, _ in node.next_functions:
            if source is not None and source not in nodes:
                if getattr(source, "watch", None) is watch:
                    return source
                nodes[source] = None
                queue.append(source)
    return None
