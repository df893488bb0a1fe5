"""The gradient of an operator that gives views is seen by hooks on its autograd nodes.

What shares the memory of an input must stay linked to it, since a program may write through it, so
that no boundary may lie between them. Each view has one node, or a row of them, by which its
gradient goes to the input: hooks see what comes in at the first one and what leaves the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from torch.autograd.graph import GradientEdge

from amanda_torch._internals import current_node
from amanda_torch.backward.edges import sent_by
from amanda_torch.backward.probing import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor
    from torch.autograd.graph import Node

    from amanda_torch.tensors.batches import Batches

    Grads = Sequence[Tensor | None]
    OfNode = tuple[Tensor | None, ...]


class WayOut(NamedTuple):
    """A way out is how a gradient that comes in at a view's node gets to an input.

    Attributes:
        edges: which edge it takes at each node.
        source: which input it gets to.
        total: how many inputs there are.
    """

    edges: Sequence[int]
    source: int
    total: int

    @classmethod
    def of(cls, node: Node, inputs: Sequence[GradientEdge | None]) -> WayOut | None:
        """Find the one way out that a view has; None if it leads to none of the inputs."""
        waiting: list[tuple[Node, list[int]]] = [(node, [])]
        for node, path in waiting:
            for edge, (next_node, place) in enumerate(node.next_functions):
                for i, source in enumerate(inputs):
                    if source is not None and (source.node, source.output_nr) == (next_node, place):
                        return cls([*path, edge], i, len(inputs))
                if next_node is not None:
                    waiting.append((next_node, [*path, edge]))
        return None

    def last(self, node: Node) -> Node:
        """Return the node that the gradient leaves."""
        for edge in self.edges[:-1]:
            next_node, _ = node.next_functions[edge]
            assert next_node is not None
            node = next_node
        return node

    def among_inputs(self, grad: Tensor | None) -> list[Tensor | None]:
        """Return gradients of all inputs, of which one alone is sent anything."""
        grads: list[Tensor | None] = [None] * self.total
        grads[self.source] = grad
        return grads

    def grad_of_current_node(self, grads: Grads) -> Tensor | None:
        """Compute what leaves it of the gradients that come to the node that is about to run."""
        node: Node = current_node()
        flowing = [place for place, grad in enumerate(grads) if grad is not None]
        (found,) = probe(
            [GradientEdge(node, place) for place in flowing],
            [sent_by(self.last(node), self.edges[-1])],
            [grads[place] for place in flowing],
        )
        return found


def hook_outputs(
    node: Node,
    places: Sequence[int | None],
    way_out: WayOut | None,
    batches: Batches,
    sees: Callable[[Grads, Callable[[], Grads]], Grads],
) -> None:
    """Have the gradients seen that come in at a node, and replaced by what is returned.

    Args:
        node: the node.
        places: for each output of the operator, which of the node's it is; None for none of them.
        way_out: how they get to an input; None where nobody asks for gradients of inputs.
        batches: how ``vmap`` has wrapped the tensors of the execution.
        sees: is given the gradients of the outputs, and what computes those of the inputs.
    """
    ins, outs = batches.of_pass()

    def before(grads: OfNode) -> OfNode:
        def grad_inputs() -> Grads:
            assert way_out is not None
            found = way_out.grad_of_current_node(grads)
            return way_out.among_inputs(batches.of_sample(found, ins[way_out.source]))

        passed = list(grads)
        with batches.entered():
            seen = [
                None if place is None else batches.of_sample(grads[place], wrapped)
                for place, wrapped in zip(places, outs, strict=True)
            ]
            given = sees(seen, grad_inputs)
            for place, grad, old, wrapped in zip(places, given, seen, outs, strict=True):
                if place is not None and grad is not old:
                    passed[place] = batches.of_batch(grad, wrapped)
        return tuple(passed)

    node.register_prehook(before)


def hook_inputs(
    node: Node, way_out: WayOut, batches: Batches, sees: Callable[[Grads], Grads]
) -> None:
    """Have the gradient seen that goes from a node to an input, and replaced by what is returned.

    Args:
        node: the first node on its way.
        way_out: the way.
        batches: how ``vmap`` has wrapped the tensors of the execution.
        sees: is given the gradients of the inputs.
    """
    edge, source = way_out.edges[-1], way_out.source
    wrapped = batches.of_pass()[0][source]

    def after(grads: OfNode, _: Any) -> OfNode:
        with batches.entered():
            seen = batches.of_sample(grads[edge], wrapped)
            passed = sees(way_out.among_inputs(seen))[source]
            if passed is seen:
                return grads
            return (*grads[:edge], batches.of_batch(passed, wrapped), *grads[edge + 1 :])

    way_out.last(node).register_hook(after)
