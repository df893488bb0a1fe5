"""The tools decide about gradients as a whole, and about the operators that compute them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda.driving import Execution

from amanda_tensorflow.composites import (
    check_taken_as_a_whole,
    gradient_group,
    parts_of,
    wholes_of,
)
from amanda_tensorflow.decisions.asked import ForwardSide
from amanda_tensorflow.decisions.inserting import no_whole
from amanda_tensorflow.decisions.layer_gradients import LayerGradientDecisions
from amanda_tensorflow.graph.attributes import read_attrs
from amanda_tensorflow.graph.body import input_names
from amanda_tensorflow.graph.frames import Frame
from amanda_tensorflow.graph.gradients import carrying
from amanda_tensorflow.graph.node_types import OPT_IN
from amanda_tensorflow.graph.operators import operators_of
from amanda_tensorflow.graph.rows import with_rows
from amanda_tensorflow.notes import notes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from amanda.driving import Plan

    from amanda_tensorflow.composites import GradientGroup, Whole
    from amanda_tensorflow.decisions.asking import Asking
    from amanda_tensorflow.decisions.layers import LayerDecisions
    from amanda_tensorflow.graph.operators import TensorFlowOperator
    from amanda_tensorflow.notes import GradientCall
    from amanda_tensorflow.routines.stages import Asked


class GradientDecisions:
    """This asks the tools about the gradients that frames compute."""

    def __init__(self, asking: Asking, layers: LayerDecisions) -> None:
        self._asking = asking
        self._layers = layers
        self._of_layers = LayerGradientDecisions(asking, layers)
        self._engine = asking.engine

    def of_frame(self, frame: Frame) -> None:
        """Ask about the gradients of all operators and layers, wherever those are."""
        if self._engine.wants_modules:
            self._of_layers.of_frame(frame)
        for number, call in enumerate(frame.gradients.calls):
            graph = call.forward_graph()
            operator = None if graph is None else operators_of(graph).get(call.forward)
            if operator is None or frame.running.isdisjoint(frame.gradients.nodes_of[call]):
                continue
            if self._layers.hides_operator(graph, call.forward):
                continue
            wholes = wholes_of(graph, self._engine)
            parts = parts_of(wholes)
            for whole in wholes:
                is_root = whole.composite.parts[-1] == call.forward
                if is_root and self._engine.wants(whole.operator.type):
                    self._whole(frame, number, whole, graph)
            if self._engine.wants(operator.type) and self._engine.sees(operator):
                if call.forward in parts:
                    operator = operator.part(parts[call.forward])
                if self._may_be_watched(operator):
                    self._operator(frame, number, operator, graph)

    def asked_elsewhere(self) -> Iterator[Asked]:
        """List what routines ask for of operators here whose gradients other functions compute.

        These run later, with what is handed to them then; so the tools decide about those gradients
        now.
        """
        for frame in self._asking.frames:
            for graph in list(notes_of(frame.graph).gradients_in):
                yield from self._asked_in(Frame.of_graph(graph), frame.graph)
            if self._engine.wants_modules and notes_of(frame.graph).gradients_in:
                yield from self._of_layers.asked_elsewhere(frame.graph)

    def _asked_in(self, frame: Frame, graph: Any) -> Iterator[Asked]:
        """List what routines ask for of a graph's operators, given a frame of the gradients."""
        operators: Mapping[str, TensorFlowOperator] = operators_of(graph)
        wholes = wholes_of(graph, self._engine)
        parts = parts_of(wholes)
        for number, call in enumerate(frame.gradients.calls):
            operator = operators.get(call.forward)
            if operator is None or call.forward_graph() is not graph or graph is None:
                continue
            for whole in wholes:
                if whole.composite.parts[-1] == call.forward and self._watched(whole.operator):
                    found = self._shown_whole(frame, number, whole, graph)
                    if found is not None:
                        asked = self._gradient_plan(found[0], graph).asked
                        yield from ForwardSide.of_whole(whole, graph).asked(asked).values()
            if call.forward in parts:
                operator = operator.part(parts[call.forward])
            operation = graph.get_operation_by_name(call.forward)
            side = ForwardSide.of_operation(operation)
            shown = self._shown(frame, call, operator, operation)
            if self._watched(operator) and _is_aligned(call, operation):
                asked = self._gradient_plan(shown, graph).asked
                yield from side.asked(asked).values()

    def _watched(self, operator: TensorFlowOperator) -> bool:
        plan = self._engine.plan(operator)
        return plan is not None and plan.gradient

    def _may_be_watched(self, operator: TensorFlowOperator) -> bool:
        """Tell whether a tool may want to see what computes an operator's gradient."""
        plan = self._engine.plan(operator)
        return plan is None or plan.backward or plan.gradient

    def _gradient_plan(self, shown: Execution, graph: Any) -> Plan:
        with self._asking.looking_back_at(graph):
            return self._engine.gradient_plan(shown)

    def _whole(self, frame: Frame, number: int, whole: Whole, graph: Any) -> None:
        """Ask about the gradient of a composite as a whole."""
        found = self._shown_whole(frame, number, whole, graph)
        if found is None:
            return
        shown, group, grad_inputs = found
        calls, operator = frame.gradients.calls, whole.operator
        plan = self._gradient_plan(shown, graph)
        if plan.after:
            check_taken_as_a_whole(frame, whole, graph)
        for action in plan.after:
            taken = [calls[use].grad_inputs[at] for uses in group.uses for use, at in uses]
            if action.whole and with_rows(frame.graph, taken)[1]:
                raise no_whole(action, operator, "parts of it are added")
        node = frame.gradients.nodes_of[calls[number]][0]
        forward = ForwardSide.of_whole(whole, graph)
        self._asking.inserting(frame, number, operator, node, (), forward).gradients(
            plan.before, frame, calls[number].grad_outputs, forward.outputs
        )
        inserting = self._asking.inserting(frame, group, operator, node, (), forward)
        inserting.chain(plan.after, grad_inputs)

    def _shown_whole(
        self, frame: Frame, number: int, whole: Whole, graph: Any
    ) -> tuple[Execution, GradientGroup, list[Any]] | None:
        """Return what tools are shown of a composite's gradient, its calls, and the gradients.

        That is None where names alone tell of the calls, and so not which gradient is which.
        """
        composite, operator = whole
        group = gradient_group(frame, number, whole, graph)
        calls = frame.gradients.calls
        taken = [(calls[use].grad_inputs, at) for uses in group.uses for use, at in uses]
        if not calls[number].grad_outputs or any(at >= len(grads) for grads, at in taken):
            return None
        parts = [
            [
                (use, gradient)
                for use in uses
                if (gradient := frame.computed(calls[use[0]].grad_inputs[use[1]])) is not None
            ]
            for uses in group.uses
        ]
        group = group._replace(uses=tuple(tuple(use for use, _ in found) for found in parts))
        grad_inputs = [found[0][1] if found else None for found in parts]
        shown = Execution(
            operator,
            [graph.get_tensor_by_name(f"{n}:{i}") for n, i in composite.inputs],
            composite.input_names,
            composite.attrs,
            [graph.get_operation_by_name(composite.parts[-1]).outputs[0]],
            grad_outputs=[frame.computed(calls[number].grad_outputs[0])],
            grad_inputs=grad_inputs,
        )
        return shown, group, grad_inputs

    def _shown(
        self, frame: Frame, call: GradientCall, operator: TensorFlowOperator, operation: Any
    ) -> Execution:
        """Return what tools are shown of the gradient of an operator."""
        return Execution(
            operator,
            list(operation.inputs),
            input_names(operation.node_def, operation.op_def),
            read_attrs(operation),
            list(operation.outputs),
            grad_outputs=[frame.computed(gradient) for gradient in call.grad_outputs],
            grad_inputs=[frame.computed(gradient) for gradient in call.grad_inputs],
        )

    def _operator(
        self, frame: Frame, number: int, operator: TensorFlowOperator, forward_graph: Any
    ) -> None:
        """Ask about the gradient of an operator as a whole, and each operator that computes it."""
        call = frame.gradients.calls[number]
        operation = forward_graph.get_operation_by_name(call.forward)
        inputs, outputs = list(operation.inputs), list(operation.outputs)
        shown = self._shown(frame, call, operator, operation)
        if _is_aligned(call, operation):
            plan = self._gradient_plan(shown, forward_graph)
            node = frame.gradients.nodes_of[call][0]
            side = ForwardSide.of_operation(operation)
            inserting = self._asking.inserting(frame, number, operator, node, (), side)
            inserting.gradients(plan.before, frame, call.grad_outputs, outputs)
            inserting.gradients(plan.after, frame, call.grad_inputs, inputs)
        for name, positions in carrying(frame, call):
            if name in frame.running and frame.body.nodes[name].op not in OPT_IN:
                self._backward(frame, name, positions, operator, shown, forward_graph)

    def _backward(
        self,
        frame: Frame,
        name: str,
        positions: Sequence[int],
        operator: TensorFlowOperator,
        forward: Execution,
        forward_graph: Any,
    ) -> None:
        """Ask about one operator that computes a gradient, and takes those at some positions."""
        operation = frame.operations[name]
        number = frame.gradients.number_of(name, frame.body.nodes[name].op)
        backward_operator = operator.gradient_operator(operation, number)
        gradients = [operation.inputs[position] for position in positions]
        outputs = list(operation.outputs)
        shown = Execution(
            operator,
            forward.inputs,
            forward.input_names,
            forward.attrs,
            forward.outputs,
            backward_operator=backward_operator,
            grad_outputs=gradients,
        )
        with self._asking.looking_back_at(forward_graph):
            plan = self._engine.backward_plan(shown)
            if plan.pending:
                shown.grad_inputs = outputs
                plan = self._engine.complete(plan, shown)
        inserting = self._asking.inserting(frame, name, backward_operator, name)
        inserting.around(plan, gradients, outputs)


def _is_aligned(call: GradientCall, operation: Any) -> bool:
    """Tell whether there is a gradient, or None, for each output and for each input."""
    outgoing, incoming = len(call.grad_inputs), len(call.grad_outputs)
    return incoming == len(operation.outputs) and outgoing == len(operation.inputs)
