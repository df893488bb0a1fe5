"""The gradient of an operator as a whole, however many autograd nodes compute it.

The operator is put between two boundaries, identities in the autograd graph: the one after it
sees the gradients of its outputs, all at once, and the one ahead of it the gradients that this
operator alone sends to its inputs. What shares the memory of an input (a view) must stay linked
to it, since a program may write through it; there, hooks on the autograd nodes see the same
gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from amanda_torch._internals import current_node, node_of, share_memory
from amanda_torch.asked import Kept
from amanda_torch.backward import in_force, made_since, run_on_gradients
from amanda_torch.batches import Batches, layers
from amanda_torch.straight import in_graph, is_strided_nested, watched
from amanda_torch.thread import unwatched
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda import Operator
    from amanda.driving import Action, Engine, Execution, Plan
    from torch.autograd.graph import Node

    from amanda_torch.batches import Layer

    Grads = Sequence[Tensor | None]
    _Batching = tuple[Batches, list[list[Layer]], list[list[Layer]]]


class Gradient:
    """Watches the gradient of one execution.

    What hangs on the boundary ahead of the operator keeps nothing that has a graph, and what
    hangs on the one after it only what lies ahead of it, so that there is no cycle.

    Args:
        engine: the tools that want it.
        operator: the operator.
        plan: what to do, None when that is still to be analyzed.
    """

    def __init__(self, engine: Engine, operator: Operator, plan: Plan | None) -> None:
        self._engine = engine
        self._operator = operator
        self.plan = plan
        self.kept = Kept(plan)

    def enter(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """The inputs behind the boundary ahead of the operator."""
        return watched(inputs, self._on_inputs)

    def leave(
        self,
        inputs: Sequence[GradientEdge | None],
        given: Sequence[Tensor],
        outputs: Sequence[Tensor],
        shown: Callable[..., Execution],
    ) -> Sequence[Tensor]:
        """The outputs behind the boundary after the operator.

        Args:
            inputs: the :func:`edges` of what :meth:`enter` gave, from before the operator ran,
                which may have written to them.
            given: what it gave.
            outputs: what the operator made of them.
            shown: shows the execution for analysis.
        """
        execution = self._execution(shown, outputs)
        if self.kept.wants_some:
            self.kept.batched_as(Batches([*given, *outputs]))
        if execution is None:
            return watched(outputs, self._on_outputs)

        behind = edges(outputs)
        batches, ins, outs = _batches(given, outputs)

        def analyzed(grads: Grads) -> Grads:
            def grad_inputs() -> Grads:
                whole = [batches.of_batch(g, w) for g, w in zip(grads, outs, strict=True)]
                found = _grad_inputs(behind, inputs, whole)
                return [batches.of_sample(g, w) for g, w in zip(found, ins, strict=True)]

            return self._on_outputs(grads, execution, grad_inputs)

        return watched(outputs, analyzed)

    def hook(
        self,
        number: int,
        inputs: Sequence[GradientEdge | None],
        given: Sequence[Tensor],
        outputs: Sequence[Tensor],
        shown: Callable[..., Execution],
    ) -> None:
        """Watch without boundaries an operator that gives views of what it is given.

        Outputs with autograd nodes of their own get their gradients at different times: the
        routines run for each of them, with None for the others.

        Args:
            number: what ``sequence_number()`` gave before the operator ran.
            inputs: the :func:`edges` of what the operator was given, from before it ran.
            given: what that was.
            outputs: what it returned.
            shown: shows the execution for analysis.
        """
        execution = self._execution(shown, outputs)
        batching = _batches(given, outputs)
        self.kept.batched_as(batching[0])
        outputs = [in_graph(t) for t in outputs]
        for node in dict.fromkeys(t.grad_fn for t in outputs):
            if made_since(number, node):  # else it is an input that was returned
                assert node is not None
                places = [t.output_nr if t.grad_fn is node else None for t in outputs]
                self._hook(node, places, inputs, execution, batching)

    def _hook(
        self,
        node: Node,
        places: Sequence[int | None],
        inputs: Sequence[GradientEdge | None],
        execution: Execution | None,
        batching: _Batching,
    ) -> None:
        """Watch the gradients that come in at one node, for the outputs that have ``places``."""
        way_out = _way_out(node, inputs)
        if way_out is None:
            return
        path, source = way_out
        count = len(inputs)
        batches, ins, outs = batching

        def among_inputs(grad: Tensor | None) -> list[Tensor | None]:
            grads: list[Tensor | None] = [None] * count
            grads[source] = grad
            return grads

        def before(grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
            def grad_inputs() -> list[Tensor | None]:
                found = _grad_of_current_node(path, grads)
                return among_inputs(batches.of_sample(found, ins[source]))

            passed = list(grads)
            with batches.entered():
                seen = [
                    None if place is None else batches.of_sample(grads[place], wrapped)
                    for place, wrapped in zip(places, outs, strict=True)
                ]
                given = self._on_outputs(seen, execution, grad_inputs)
                for place, grad, before, wrapped in zip(places, given, seen, outs, strict=True):
                    if place is not None and grad is not before:
                        passed[place] = batches.of_batch(grad, wrapped)
            return tuple(passed)

        def after(grads: tuple[Tensor | None, ...], _: Any) -> tuple[Tensor | None, ...]:
            edge, wrapped = path[-1], ins[source]
            with batches.entered():
                seen = batches.of_sample(grads[edge], wrapped)
                passed = self._on_inputs(among_inputs(seen))[source]
                if passed is seen:
                    return grads
                return (*grads[:edge], batches.of_batch(passed, wrapped), *grads[edge + 1 :])

        node.register_prehook(before)
        _follow(node, path[:-1]).register_hook(after)

    def _execution(
        self, shown: Callable[..., Execution], outputs: Sequence[Tensor]
    ) -> Execution | None:
        if self.plan is not None:
            return None
        with unshown():
            execution = shown([t.detach() for t in outputs])
            execution.inputs = [t.detach() for t in execution.inputs]
        return execution

    def _on_outputs(
        self,
        grads: Grads,
        execution: Execution | None = None,
        grad_inputs: Callable[[], Grads] | None = None,
    ) -> Grads:
        if not in_force(self._engine):
            return grads
        if self.plan is None:
            assert execution is not None
            execution.grad_outputs, execution.grad_inputs = grads, grad_inputs
            self.plan = self._engine.gradient_plan(execution)
            execution.grad_outputs = execution.grad_inputs = None  # they may have a graph
        return self._run(self.plan, self.plan.before, grads)

    def _on_inputs(self, grads: Grads) -> Grads:
        if self.plan is None or not in_force(self._engine):
            return grads
        return self._run(self.plan, self.plan.after, grads)

    def _run(self, plan: Plan, actions: tuple[Action, ...], grads: Grads) -> Grads:
        forward = self.kept.forward(plan, self._operator)
        return run_on_gradients(self._engine, actions, grads, self._operator, forward)


def edges(tensors: Sequence[Tensor]) -> list[GradientEdge | None]:
    """Where gradients of tensors go, None for those that have none.

    An edge does not keep the graph alive that it is part of.
    """
    return [
        GradientEdge(node_of(t), t.output_nr)
        if t.requires_grad and not is_strided_nested(t)
        else None
        for t in map(in_graph, tensors)
    ]


def _batches(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> _Batching:
    """How ``vmap`` has wrapped the tensors of an execution, if it has."""
    return (
        Batches([*inputs, *outputs]),
        [layers(t) for t in inputs],
        [layers(t) for t in outputs],
    )


def _grad_inputs(
    outputs: Sequence[GradientEdge | None], inputs: Sequence[GradientEdge | None], grads: Grads
) -> list[Tensor | None]:
    """The operator's gradients of its inputs, for the gradients of its outputs that come in."""
    wanted = [i for i, edge in enumerate(inputs) if edge is not None]
    flowing = [i for i, grad in enumerate(grads) if grad is not None]
    found = _probe(
        [outputs[i] for i in flowing], [inputs[i] for i in wanted], [grads[i] for i in flowing]
    )
    result: list[Tensor | None] = [None] * len(inputs)
    for i, grad in zip(wanted, found, strict=True):
        result[i] = grad
    return result


def _grad_of_current_node(path: Sequence[int], grads: Grads) -> Tensor | None:
    """What leaves at the end of a path from the node that autograd is about to run."""
    node: Node = current_node()
    last = _follow(node, path[:-1])
    flowing = [place for place, grad in enumerate(grads) if grad is not None]
    source, number = last.next_functions[path[-1]]
    assert source is not None
    (found,) = _probe(
        [GradientEdge(node, place) for place in flowing],
        [GradientEdge(source, number)],
        [grads[place] for place in flowing],
    )
    return found


def _probe(outputs: Sequence[Any], inputs: Sequence[Any], grads: Grads) -> Grads:
    """Gradients that are computed only to be shown; tools see nothing of how."""
    # The program's own run will tell of an anomaly, and is what its modes are to count.
    with unwatched(), torch.autograd.set_detect_anomaly(False), unshown():
        return torch.autograd.grad(outputs, inputs, grads, retain_graph=True, allow_unused=True)


def _follow(node: Node, path: Sequence[int]) -> Node:
    for edge in path:
        next_node, _ = node.next_functions[edge]
        assert next_node is not None
        node = next_node
    return node


def _way_out(node: Node, inputs: Sequence[GradientEdge | None]) -> tuple[list[int], int] | None:
    """How a gradient that comes in at ``node`` gets out: edges to follow, and to which input.

    A view has one way out. None if it leads to none of the inputs.
    """
    paths: list[tuple[Node, list[int]]] = [(node, [])]
    for node, path in paths:
        for edge, (next_node, place) in enumerate(node.next_functions):
            for i, source in enumerate(inputs):
                if source is not None and (source.node, source.output_nr) == (next_node, place):
                    return [*path, edge], i
            if next_node is not None:
                paths.append((next_node, [*path, edge]))
    return None


def alias(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> bool:
    """Whether any output is an input or shares its memory."""
    memory = [in_graph(tensor) for tensor in inputs]
    return any(a is b or share_memory(a, b) for a in map(in_graph, outputs) for b in memory)
