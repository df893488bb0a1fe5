"""What an operator or a module sends to its inputs is looked at where it leaves, and not changed.

A module may use what it is given many times. Behind a boundary, what these uses send there would be
added up before what the rest of the program sends, and the last bits of a sum depend on that. So
where routines only look at gradients of inputs there is no boundary ahead: what is sent is looked
at as it leaves, and added up for the routines alone. That also costs less than a boundary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from amanda_torch._internals import will_run
from amanda_torch.backward.edges import sent_by
from amanda_torch.backward.nodes import made_since
from amanda_torch.backward.probing import probe
from amanda_torch.tensors.straight import in_graph
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor
    from torch.autograd.graph import Node
    from torch.utils.hooks import RemovableHandle

    Grads = Sequence[Tensor | None]
    # A node, and which of what it sends is sent to which input.
    _Sender = tuple[Node, list[tuple[int, int]]]


class Senders:
    """These are the nodes of one execution that send gradients to its inputs.

    It keeps none of them, since their hooks keep it, but only what lies ahead of them.

    Args:
        number: what ``sequence_number()`` gave before it ran.
        inputs: what it is given.
    """

    def __init__(self, number: int, inputs: Sequence[Tensor]) -> None:
        self._number = number
        self._count = len(inputs)
        self._places: dict[object, int] = {}
        for i, tensor in enumerate(inputs):
            tensor = in_graph(tensor)
            if tensor.requires_grad:
                node = tensor.grad_fn
                self._places[id(tensor) if node is None else (node, tensor.output_nr)] = i
        self._ahead: list[Node] = []
        self._handles: list[RemovableHandle] = []

    def attach(self, outputs: Sequence[Tensor], sees: Callable[[Grads], object]) -> bool:
        """Have all that is sent seen in every pass, if it is one node that sends it.

        Args:
            outputs: what the execution gave.
            sees: is given a gradient for each input, None where none was sent.

        Returns:
            Whether it is one.
        """
        nodes = {node for t in outputs if (node := t.grad_fn) is not None}
        if len(nodes) != 1:
            return False
        (node,) = nodes
        if not made_since(self._number, node):
            return False
        sent: list[tuple[int, int]] = []
        ahead: list[Node] = []
        for slot, edge in enumerate(node.next_functions):
            i = self._place(edge)
            if i is not None:
                sent.append((slot, i))
                ahead.append(edge[0])  # type: ignore[arg-type]
            elif edge[0] is not None:
                return False
        self._ahead = ahead
        count = self._count

        def see(grads: tuple[Tensor | None, ...], _: Any) -> None:
            found: list[Tensor | None] = [None] * count
            for slot, i in sent:
                found[i] = _sum(found[i], grads[slot])
            sees(found)

        node.register_hook(see)
        return True

    def sends_all(self) -> bool:
        """Tell whether the pass that runs takes a gradient to all inputs that one may go to.

        It may be for some tensors alone (``torch.autograd.grad``).
        """
        try:
            return all(map(will_run, self._ahead))
        except RuntimeError:  # PyTorch does not tell of leaves in a pass for some tensors
            return False

    def watch(self, after: Node, sees: Callable[[Grads], object]) -> bool:
        """Have all that is sent in the pass that runs seen at once, when all of it has been sent.

        Args:
            after: the boundary after the execution, to which gradients have come.
            sees: see :meth:`attach`.

        Returns:
            Whether all is sent; else nothing is watched.
        """
        self.forget()
        senders = self._found(after)
        self._ahead = [node.next_functions[s][0] for node, sent in senders for s, _ in sent]  # type: ignore[misc]
        if not self.sends_all():
            return False
        sums: list[Tensor | None] = [None] * self._count
        missing = len(senders)

        def hook(node: Node, sent: list[tuple[int, int]]) -> RemovableHandle:
            def see(grads: tuple[Tensor | None, ...], _: Any) -> None:
                nonlocal missing
                for slot, i in sent:
                    sums[i] = _sum(sums[i], grads[slot])
                missing -= 1
                if not missing:
                    all_sent, sums[:] = list(sums), [None] * len(sums)
                    sees(all_sent)

            return node.register_hook(see)

        self._handles += [hook(node, sent) for node, sent in senders]
        return True

    def forget(self) -> None:
        """Watch no longer what an earlier pass would send."""
        while self._handles:
            self._handles.pop().remove()

    def sent_alone(self, after: Node, places: Sequence[int], grads: Grads) -> Grads:
        """Return what is sent for the gradients of the outputs, and nothing else.

        Args:
            after: the boundary after the execution.
            places: which outputs lie behind it.
            grads: the gradients of the outputs.
        """
        flowing = [(slot, place) for slot, place in enumerate(places) if grads[place] is not None]
        edges = {i: sent_by(node, slot) for node, sent in self._found(after) for slot, i in sent}
        result: list[Tensor | None] = [None] * self._count
        if not edges:  # it is only made of parameters
            return result
        found = probe(
            [sent_by(after, slot) for slot, _ in flowing],
            list(edges.values()),
            [grads[place] for _, place in flowing],
        )
        for i, grad in zip(edges, found, strict=True):
            result[i] = grad
        return result

    def _found(self, after: Node) -> list[_Sender]:
        """Find the senders that gradients come to from the boundary after the execution."""
        nodes = dict.fromkeys([after])
        queue = [after]
        found: list[_Sender] = []
        for node in queue:
            sent: list[tuple[int, int]] = []
            for slot, edge in enumerate(node.next_functions):
                source = edge[0]
                i = self._place(edge)
                if i is not None:
                    sent.append((slot, i))
                elif source not in nodes and made_since(self._number, source):
                    assert source is not None
                    nodes[source] = None
                    queue.append(source)
            if sent:
                found.append((node, sent))
        return found

    def _place(self, edge: tuple[Node | None, int]) -> int | None:
        """Return which input an edge leads to, if it leads to one."""
        i = self._places.get(edge)
        if i is None and edge[0] is not None:
            variable = getattr(edge[0], "variable", None)  # which the node of a leaf has
            i = None if variable is None else self._places.get(id(variable))
        return i


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    with torch.no_grad(), unshown():
        return a + b
