"""What the tools decide about the operators behind one call.

The engine is asked about every operator in every frame, and about its gradient. What comes back
is a list of stages: routines that run together at one point of one operator. The list tells all
there is to know for rewriting a graph, and two equal lists give the same graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda.driving import Execution, Point

from amanda_tensorflow.body import input_names, split
from amanda_tensorflow.identity import ON_REQUEST, operators_of
from amanda_tensorflow.routines import PureRoutine, Stage, read_attrs
from amanda_tensorflow.state import keeps_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amanda.driving import Action, Engine

    from amanda_tensorflow.frames import Frame
    from amanda_tensorflow.history import GradientCall
    from amanda_tensorflow.identity import TensorFlowOperator


class Decisions:
    """The stages for one call, in a stable order.

    Attributes:
        stages: all of them.
        is_current: whether an engine still holds the decisions. It does not refer to the engine,
            which is not to live as long as a graph.
    """

    def __init__(self, stages: list[Stage], is_current: Callable[[Engine], bool]) -> None:
        self.stages = stages
        self.is_current = is_current

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for decisions that lead to the same graph."""
        return tuple(stage.key for stage in self.stages)


def decide(root: Frame, engine: Engine, analyzing: Callable[..., Any]) -> Decisions:
    """Ask the tools about all operators behind one call.

    Args:
        root: the outermost frame, whose operators are identified.
        engine: the tools in force.
        analyzing: a context manager, called with frame, node and shown tensors, within which
            tools look at an operator.

    Raises:
        RoutineError: a pure routine cannot be traced, or an analysis routine failed.
        ActionError, UnsupportedError: an insertion that cannot be.
    """
    return _Inquiry(root, engine, analyzing).run()


class _Inquiry:
    def __init__(self, root: Frame, engine: Engine, analyzing: Callable[..., Any]) -> None:
        self.frames = list(root.walk())
        self.engine = engine
        self.analyzing = analyzing
        self.stages: list[Stage] = []
        self.check: Callable[[Engine], bool] | None = None

    def run(self) -> Decisions:
        for index, frame in enumerate(self.frames):
            for name in frame.forward_nodes():
                if name in frame.running and self.engine.wants(frame.body.nodes[name].op):
                    self._forward(index, frame, name)
        for index, frame in enumerate(self.frames):
            for number, call in enumerate(frame.gradients.calls):
                graph = call.forward_graph()
                operator = None if graph is None else operators_of(graph).get(call.forward)
                runs = not frame.running.isdisjoint(frame.gradients.nodes_of[call])
                if operator is not None and runs and self.engine.wants(operator.type):
                    self._gradient(index, frame, number, call, operator, graph)
        if self.frames[0].function is None:
            self._read_variables_in_order()
        return Decisions(self.stages, self.check or (lambda engine: True))

    def _read_variables_in_order(self) -> None:
        """Have pure routines see what host routines assign in the same run of a session.

        A session has none of the tools' variables, it is given their values when it begins.
        """
        if any(stage.pure is None for stage in self.stages):
            for stage in self.stages:
                if stage.pure is not None and stage.pure.reads_variables:
                    stage.pure = None

    def _forward(self, index: int, frame: Frame, name: str) -> None:
        operation = frame.operations[name]
        operator = operators_of(frame.graph)[operation.name]
        engine = self.engine
        plan = engine.plans.get(operator.serial)
        node = frame.body.nodes[name]
        inputs, outputs = list(operation.inputs), list(operation.outputs)
        if plan is None or plan.pending:
            with self.analyzing(frame, name, inputs):
                shown = Execution(
                    operator, inputs, input_names(node, operation.op_def), read_attrs(operation)
                )
                if plan is None:
                    plan = engine.analyze(shown)
                if plan.pending:
                    shown.outputs = outputs
                    plan = engine.complete(plan, shown)
        if self.check is None:
            self.check = lambda engine: engine.plans.get(operator.serial) is plan
        add = _Adder(self.stages, index, name, operator, frame.in_loop(name))
        add.fixed = _taken_with_others(frame, operation)
        add.chain(Point.BEFORE_OP, plan.before, inputs)
        add.fixed = []
        if plan.replace is not None:
            add.replacement(Point.REPLACE_OP, plan.replace, inputs, outputs)
        add.chain(Point.AFTER_OP, plan.after, outputs)

    def _gradient(
        self,
        index: int,
        frame: Frame,
        number: int,
        call: GradientCall,
        operator: TensorFlowOperator,
        forward_graph: Any,
    ) -> None:
        engine = self.engine
        operation = forward_graph.get_operation_by_name(call.forward)
        inputs, outputs = list(operation.inputs), list(operation.outputs)
        names = input_names(operation.node_def, operation.op_def)
        grad_outputs = [_by_name(frame, gradient) for gradient in call.grad_outputs]
        grad_inputs = [_by_name(frame, gradient) for gradient in call.grad_inputs]
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
            with self.analyzing(frame, None, []):
                plan = engine.gradient_plan(shown)
            if self.check is None:
                self.check = lambda engine: engine.known_gradient_plan(operator) is plan
            in_loop = frame.in_loop(frame.gradients.nodes_of[call][0])
            add = _Adder(self.stages, index, number, operator, in_loop)
            add.chain(Point.ON_GRAD_OUTPUTS, plan.on_outputs, grad_outputs)
            add.chain(Point.ON_GRAD_INPUTS, plan.on_inputs, grad_inputs)
        for name, positions in carrying(frame, call):
            if name in frame.running:
                self._backward(index, frame, name, positions, shown, operator)

    def _backward(
        self,
        index: int,
        frame: Frame,
        name: str,
        positions: Sequence[int],
        forward: Execution,
        operator: TensorFlowOperator,
    ) -> None:
        engine = self.engine
        node = frame.body.nodes[name]
        if node.op in ON_REQUEST:
            return
        number = frame.gradients.number_of(name, node.op)
        backward_operator = operator.gradient_operator(frame.operations[name], number)
        operation = frame.operations[name]
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
        with self.analyzing(frame, None, []):
            plan = engine.backward_plan(shown)
            if plan.pending:
                shown.grad_inputs = outputs
                plan = engine.complete_backward(plan, shown)
        add = _Adder(self.stages, index, name, backward_operator, frame.in_loop(name))
        add.chain(Point.BEFORE_BACKWARD_OP, plan.before, gradients)
        if plan.replace is not None:
            add.replacement(Point.REPLACE_BACKWARD_OP, plan.replace, gradients, outputs)
        add.chain(Point.AFTER_BACKWARD_OP, plan.after, outputs)


def carrying(frame: Frame, call: GradientCall) -> Iterator[tuple[str, list[int]]]:
    """The nodes of a gradient function that depend on the gradients which came in.

    Yields:
        Name of the node, and the positions of its inputs that are gradients.
    """
    reached = {frame.tensor(gradient) for gradient in call.grad_outputs if gradient is not None}
    nodes: set[str] = set()
    for name in frame.gradients.nodes_of[call]:
        positions = [
            position
            for position, tensor in enumerate(frame.inputs[name])
            if tensor in reached or split(tensor)[0] in nodes
        ]
        if positions:
            nodes.add(name)
            yield name, positions


def _by_name(frame: Frame, name: str | None) -> Any:
    """A gradient by its name in the graph; None if it does not flow or nothing asks for it."""
    if name is None:
        return None
    tensor = frame.tensor(name)
    computed = frame.body.argument(tensor) is not None or split(tensor)[0] in frame.running
    return frame.graph.get_tensor_by_name(name) if computed else None


def _taken_with_others(frame: Frame, operation: Any) -> list[int]:
    """The inputs of an operator that no routine may replace.

    An operator that holds state of its own runs as it is, in a session, and what it takes is then
    exchanged for all who take it. That cannot be done for what is fed, or what several of them
    take.
    """
    if frame.function is not None or frame.parent is not None or not keeps_state(operation.type):
        return []
    return [
        position
        for position, tensor in enumerate(operation.inputs)
        if tensor.name in frame.fed
        or any(keeps_state(o.type) and o is not operation for o in tensor.consumers())
    ]


class _Adder:
    """Makes the stages at one operator or gradient.

    Attributes:
        fixed: positions of tensors that host routines cannot replace.
    """

    def __init__(
        self,
        stages: list[Stage],
        frame: int,
        anchor: str | int,
        operator: TensorFlowOperator,
        in_loop: bool,
    ) -> None:
        self.stages = stages
        self.frame = frame
        self.anchor = anchor
        self.operator = operator
        self.in_loop = in_loop
        self.fixed: list[int] = []

    def chain(self, point: Point, actions: Sequence[Action], tensors: Sequence[Any]) -> None:
        """Routines one after the other; neighbours of one kind are one stage."""
        groups: list[list[Action]] = []
        for action in actions:
            if groups and groups[-1][0].pure == action.pure:
                groups[-1].append(action)
            else:
                groups.append([action])
        for group in groups:
            self._add(point, group, tensors, None)

    def replacement(
        self, point: Point, action: Action, tensors: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        """One routine instead of the operator."""
        self._add(point, [action], tensors, outputs)

    def _add(
        self,
        point: Point,
        actions: Sequence[Action],
        tensors: Sequence[Any],
        outputs: Sequence[Any] | None,
    ) -> None:
        stage = Stage(self.frame, self.anchor, point, actions, tensors, outputs, self.operator)
        if not actions[0].pure:
            stage.fix(self.fixed)
        else:
            stage.pure = PureRoutine.trace(stage, tensors)
            if outputs is None and not stage.pure.changed:
                return  # it only looks, at nothing that it could see
            if self.in_loop and stage.pure.captures:
                stage.pure = None  # what it captured does not get into the loop
        self.stages.append(stage)
