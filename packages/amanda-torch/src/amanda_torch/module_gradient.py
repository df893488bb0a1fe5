"""The gradient of a module as a whole, which is looked at without changing how it is added up.

A module may use what it is given many times. Behind a boundary, what these uses send there would be
added up before what the rest of the program sends, and the last bits of a sum depend on that. So
where routines only look at gradients of inputs there is no boundary ahead: what the module sends is
looked at where it leaves the module, and added up for the routines alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import GradientEdge

from amanda_torch._internals import (
    current_node,
    sequence_number,
    transforms_active,
    will_run,
)
from amanda_torch.backward import made_since
from amanda_torch.gradient import Gradient
from amanda_torch.probing import probe
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda import Operator
    from amanda.driving import Engine, Plan
    from torch import Tensor
    from torch.autograd.graph import Node
    from torch.utils.hooks import RemovableHandle

    from amanda_torch.gradient import Batching, Grads

    # A node of the module, and which of what it sends is sent to which input.
    _Sender = tuple[Node, list[tuple[int, int]]]


class ModuleGradient(Gradient):
    """Watches the gradient of one call of a module.

    Args:
        engine: the tools that want it.
        operator: what the call is.
        plan: what to do.
    """

    def __init__(self, engine: Engine, operator: Operator, plan: Plan) -> None:
        super().__init__(engine, operator, plan)
        only_looks = all(action.observes for action in plan.after)
        self._bounded = not only_looks or transforms_active()
        self._number = 0
        self._handles: list[RemovableHandle] = []

    @property
    def needs_boundary_after(self) -> bool:
        """Whether what goes to the inputs is seen only once gradients come to a boundary."""
        return not self._bounded and bool(self.plan and self.plan.after)

    def enter(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """The inputs behind the boundary ahead of the module, where there has to be one."""
        self._number = sequence_number()
        return super().enter(inputs) if self._bounded else inputs

    def _came(
        self,
        inputs: Sequence[GradientEdge | None],
        places: Sequence[int],
        grads: Grads,
        batching: Batching | None,
    ) -> None:
        """Gradients have come to the outputs: see what is sent to the inputs."""
        if self._bounded:
            super()._came(inputs, places, grads, batching)
            return
        while self._handles:
            self._handles.pop().remove()
        if not self._has_routines_ahead(grads):
            return
        after: Node = current_node()
        if self._passes.is_later:
            self._on_inputs(_sent_alone(after, inputs, places, grads))
            return
        senders = [each for each in _senders(after, self._number, inputs) if will_run(each[0])]
        self._await(senders, len(inputs))

    def _await(self, senders: list[_Sender], count: int) -> None:
        """Call the routines when all that is sent in this pass has been seen."""
        sums: list[Tensor | None] = [None] * count
        missing = len(senders)

        def attach(node: Node, sent: list[tuple[int, int]]) -> RemovableHandle:
            def see(grads: tuple[Tensor | None, ...], _: Any) -> None:
                nonlocal missing
                for slot, i in sent:
                    sums[i] = _sum(sums[i], grads[slot])
                missing -= 1
                if not missing:
                    found, sums[:] = list(sums), [None] * count
                    self._on_inputs(found)

            return node.register_hook(see)

        self._handles += [attach(node, sent) for node, sent in senders]


def _senders(after: Node, number: int, inputs: Sequence[GradientEdge | None]) -> list[_Sender]:
    """The nodes of a module that send gradients to its inputs.

    Args:
        after: the boundary after it.
        number: what ``sequence_number()`` gave before it ran.
        inputs: where the gradients of its inputs go.
    """
    place = {(edge.node, edge.output_nr): i for i, edge in enumerate(inputs) if edge is not None}
    nodes = dict.fromkeys([after])
    queue = [after]
    found: list[_Sender] = []
    for node in queue:
        sent: list[tuple[int, int]] = []
        for slot, edge in enumerate(node.next_functions):
            source = edge[0]
            if edge in place:
                sent.append((slot, place[edge]))
            elif source is not None and source not in nodes and made_since(number, source):
                nodes[source] = None
                queue.append(source)
        if sent:
            found.append((node, sent))
    return found


def _sent_alone(
    after: Node, inputs: Sequence[GradientEdge | None], places: Sequence[int], grads: Grads
) -> Grads:
    """What the module sends to its inputs for the gradients of its outputs, and nothing else."""
    flowing = [(slot, place) for slot, place in enumerate(places) if grads[place] is not None]
    wanted = [i for i, edge in enumerate(inputs) if edge is not None]
    found = probe(
        [GradientEdge(*after.next_functions[slot]) for slot, _ in flowing],  # type: ignore[arg-type]
        [inputs[i] for i in wanted],
        [grads[place] for _, place in flowing],
    )
    result: list[Tensor | None] = [None] * len(inputs)
    for i, grad in zip(wanted, found, strict=True):
        result[i] = grad
    return result


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    with torch.no_grad(), unshown():
        return a + b
