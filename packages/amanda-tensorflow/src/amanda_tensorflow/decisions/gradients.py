"""What the tools decide about gradients: as a whole, and about the operators that compute them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda.driving import Execution

from amanda_tensorflow.composites import (
    check_taken_as_a_whole,
    gradient_group,
    parts_of,
    wholes_of,
)
from amanda_tensorflow.decisions.inserting import no_whole
from amanda_tensorflow.graph.attributes import read_attrs
from amanda_tensorflow.graph.body import input_names
from amanda_tensorflow.graph.gradients import carrying
from amanda_tensorflow.graph.node_types import OPT_IN
from amanda_tensorflow.graph.operators import operators_of
from amanda_tensorflow.graph.rows import with_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda_tensorflow.composites import Whole
    from amanda_tensorflow.decisions.asking import Asking
    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.operators import TensorFlowOperator


class GradientDecisions:
    """Asks the tools about the gradients that frames compute."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._engine = asking.engine

    def of_frame(self, frame: Frame) -> None:
        """Ask about the gradients of all operators, wherever those are."""
        for number, call in enumerate(frame.gradients.calls):
            graph = call.forward_graph()
            operator = None if graph is None else operators_of(graph).get(call.forward)
            if operator is None or frame.running.isdisjoint(frame.gradients.nodes_of[call]):
                continue
            wholes = wholes_of(graph, self._engine)
            parts = parts_of(wholes)
            for whole in wholes:
                is_root = whole.composite.parts[-1] == call.forward
                if is_root and self._engine.wants(whole.operator.type):
                    self._whole(frame, number, whole, graph)
            if self._engine.wants(operator.type):
                if call.forward in parts:
                    operator = operator.part(parts[call.forward])
                self._operator(frame, number, operator, graph)

    def _whole(self, frame: Frame, number: int, whole: Whole, graph: Any) -> None:
        """The gradient of a composite as a whole."""
        composite, operator = whole
        group = gradient_group(frame, number, whole, graph)
        calls = frame.gradients.calls
        inputs = [graph.get_tensor_by_name(f"{n}:{i}") for n, i in composite.inputs]
        grad_outputs = [frame.computed(calls[number].grad_outputs[0])]
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
        outputs = [graph.get_operation_by_name(composite.parts[-1]).outputs[0]]
        shown = Execution(
            operator,
            inputs,
            composite.input_names,
            composite.attrs,
            outputs,
            grad_outputs=grad_outputs,
            grad_inputs=grad_inputs,
        )
        with self._asking.looking_back_at(graph):
            plan = self._engine.gradient_plan(shown)
        if plan.after:
            check_taken_as_a_whole(frame, whole, graph)
        for action in plan.after:
            taken = [calls[use].grad_inputs[at] for uses in group.uses for use, at in uses]
            if action.whole and with_rows(frame.graph, taken)[1]:
                raise no_whole(action, operator, "parts of it are added")
        node = frame.gradients.nodes_of[calls[number]][0]
        self._asking.inserting(frame, number, operator, node).gradients(
            plan.before, frame, calls[number].grad_outputs, outputs
        )
        self._asking.inserting(frame, group, operator, node).chain(plan.after, grad_inputs)

    def _operator(
        self, frame: Frame, number: int, operator: TensorFlowOperator, forward_graph: Any
    ) -> None:
        """The gradient of an operator as a whole, and each operator that computes it."""
        call = frame.gradients.calls[number]
        operation = forward_graph.get_operation_by_name(call.forward)
        inputs, outputs = list(operation.inputs), list(operation.outputs)
        names = input_names(operation.node_def, operation.op_def)
        grad_outputs = [frame.computed(gradient) for gradient in call.grad_outputs]
        grad_inputs = [frame.computed(gradient) for gradient in call.grad_inputs]
        shown = Execution(
            operator,
            inputs,
            names,
            read_attrs(operation),
            outputs,
            grad_outputs=grad_outputs,
            grad_inputs=grad_inputs,
        )
        if len(grad_outputs) == len(outputs) and len(grad_inputs) == len(inputs):
            with self._asking.looking_back_at(forward_graph):
                plan = self._engine.gradient_plan(shown)
            node = frame.gradients.nodes_of[call][0]
            inserting = self._asking.inserting(frame, number, operator, node)
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
        """One operator that computes a gradient, and takes gradients at some positions."""
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
