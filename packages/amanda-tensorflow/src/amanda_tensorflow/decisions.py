"""What the tools decide about the operators behind one call.

The engine is asked about every operator in every frame, and about its gradient. What comes back
is a list of stages: routines that run together at one point of one operator. The list tells all
there is to know for rewriting a graph, and two equal lists give the same graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda import UnsupportedError
from amanda.driving import Execution, Point

from amanda_tensorflow.body import input_names, split
from amanda_tensorflow.composites import (
    check_taken_as_a_whole,
    gradient_group,
    group_in,
    parts_of,
    wholes_of,
)
from amanda_tensorflow.custom import keep_to_custom_gradients
from amanda_tensorflow.identity import OPT_IN, operators_of
from amanda_tensorflow.routines import PureRoutine, Stage, read_attrs
from amanda_tensorflow.rows import Rows, with_rows
from amanda_tensorflow.state import keeps_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from amanda.driving import Action, Engine, Plan

    from amanda_tensorflow.composites import Anchor, Group, Whole
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
        analyzing: a context manager within which tools look at an operator; called with the frame
            whose tensors they see, or the graph where that does not run now.

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
        self.visited: set[Frame] = set()
        self.check: Callable[[Engine], bool] | None = None

    def run(self) -> Decisions:
        for frame in self.frames:
            self._forward_of_frame(frame)
        for index, frame in enumerate(self.frames):
            self._gradients_of_frame(index, frame)
        keep_to_custom_gradients(self.frames, self.stages)
        if self.frames[0].function is None:
            self._read_variables_in_order()
        return Decisions(self.stages, self.check or (lambda engine: True))

    def _forward_of_frame(self, frame: Frame) -> None:
        """Ask about a function's operators, those of a function that it calls where it does."""
        if frame in self.visited:
            return
        self.visited.add(frame)
        index = self.frames.index(frame)
        wholes = wholes_of(frame.graph, self.engine)
        parts = parts_of(wholes)
        by_root = {
            group.root: (whole, group)
            for whole in wholes
            if (group := group_in(frame, whole)) is not None
        }
        for name in frame.forward_nodes():
            if name not in frame.running:
                continue
            for child in frame.children.get(name, ()):
                self._forward_of_frame(child)
            if self.engine.wants(frame.body.nodes[name].op):
                self._forward(index, frame, name, parts)
            if name in by_root and self.engine.wants(by_root[name][0].operator.type):
                self._whole(index, frame, *by_root[name])

    def _gradients_of_frame(self, index: int, frame: Frame) -> None:
        for number, call in enumerate(frame.gradients.calls):
            graph = call.forward_graph()
            operator = None if graph is None else operators_of(graph).get(call.forward)
            if operator is None or frame.running.isdisjoint(frame.gradients.nodes_of[call]):
                continue
            wholes = wholes_of(graph, self.engine)
            parts = parts_of(wholes)
            for whole in wholes:
                is_root = whole.composite.parts[-1] == call.forward
                if is_root and self.engine.wants(whole.operator.type):
                    self._gradient_of_whole(index, frame, number, whole, graph)
            if self.engine.wants(operator.type):
                if call.forward in parts:
                    operator = operator.part(parts[call.forward])
                self._gradient(index, frame, number, call, operator, graph)

    def _read_variables_in_order(self) -> None:
        """Have pure routines see what host routines assign in the same run of a session.

        A session has none of the tools' variables, it is given their values when it begins.
        """
        if any(stage.pure is None for stage in self.stages):
            for stage in self.stages:
                if stage.pure is not None and stage.pure.reads_variables:
                    stage.pure = None

    def _forward(
        self, index: int, frame: Frame, name: str, parts: Mapping[str, frozenset[str]]
    ) -> None:
        operation = frame.operations[name]
        operator = operators_of(frame.graph)[operation.name]
        if operation.name in parts:
            operator = operator.part(parts[operation.name])
        node = frame.body.nodes[name]
        inputs, outputs = list(operation.inputs), list(operation.outputs)

        def shown() -> Execution:
            names = input_names(node, operation.op_def)
            return Execution(operator, inputs, names, read_attrs(operation))

        plan = self._plan(frame, operator, shown, outputs)
        add = _Adder(self.stages, index, name, operator, frame.in_loop(name))
        add.fixed = _taken_with_others(frame, operation)
        early = operation.op_def.allows_uninitialized_input
        add.around(
            plan,
            _with_values(inputs) if early else inputs,
            outputs if inputs else _with_values(outputs),
        )

    def _whole(self, index: int, frame: Frame, whole: Whole, group: Group) -> None:
        """A composite, for the tools to which it is one operator."""
        composite, operator = whole
        inputs = [frame.graph.get_tensor_by_name(f"{n}:{i}") for n, i in composite.inputs]
        outputs = [frame.operations[group.root].outputs[0]]

        def shown() -> Execution:
            return Execution(operator, inputs, composite.input_names, composite.attrs)

        plan = self._plan(frame, operator, shown, outputs)
        if plan.replace is not None:
            self._check_unwatched(index, group, plan.replace, operator)
        add = _Adder(self.stages, index, group, operator, frame.in_loop(group.root))
        add.around(plan, inputs, outputs)

    def _check_unwatched(
        self, index: int, group: Group, replace: Action, operator: TensorFlowOperator
    ) -> None:
        """Refuse to replace what another tool has inserted into."""
        for stage in self.stages:
            if stage.frame == index and stage.anchor in group.parts:
                raise UnsupportedError(
                    f"{replace.tool.name}: {operator.id!r} cannot be replaced while "
                    f"{stage.actions[0].tool.name} instruments {stage.operator.id!r}, a part of "
                    "it; apply the tools in scopes of their own"
                )

    def _plan(
        self,
        frame: Frame,
        operator: TensorFlowOperator,
        show: Callable[[], Execution],
        outputs: Sequence[Any],
    ) -> Plan:
        """What the tools decide about an operator of a frame."""
        engine = self.engine
        plan = engine.plan(operator)
        if plan is None or plan.pending:
            shown = show()
            with self.analyzing(frame):
                if plan is None:
                    plan = engine.analyze(shown)
                if plan.pending:
                    shown.outputs = outputs
                    plan = engine.complete(plan, shown)
        if self.check is None:
            self.check = lambda engine: engine.plan(operator) is plan
        return plan

    def _frame_of(self, graph: Any) -> Any:
        """The frame of a forward graph; the graph itself if that does not run now."""
        return next((frame for frame in self.frames if frame.graph is graph), graph)

    def _gradient_of_whole(
        self, index: int, frame: Frame, number: int, whole: Whole, graph: Any
    ) -> None:
        """The gradient of a composite as a whole."""
        composite, operator = whole
        group = gradient_group(frame, number, whole, graph)
        calls = frame.gradients.calls
        inputs = [graph.get_tensor_by_name(f"{n}:{i}") for n, i in composite.inputs]
        grad_outputs = [_by_name(frame, calls[number].grad_outputs[0])]
        parts = [
            [
                (use, gradient)
                for use in uses
                if (gradient := _by_name(frame, calls[use[0]].grad_inputs[use[1]])) is not None
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
        with self.analyzing(self._frame_of(graph)):
            plan = self.engine.gradient_plan(shown)
        if plan.after:
            check_taken_as_a_whole(frame, whole, graph)
        for action in plan.after:
            taken = [calls[use].grad_inputs[at] for uses in group.uses for use, at in uses]
            if action.whole and with_rows(frame.graph, taken)[1]:
                raise _no_whole(action, operator, "parts of it are added")
        if self.check is None:
            self.check = lambda engine: engine.known_gradient_plan(operator) is plan
        in_loop = frame.in_loop(frame.gradients.nodes_of[calls[number]][0])
        _Adder(self.stages, index, number, operator, in_loop).gradients(
            Point.ON_GRAD_OUTPUTS, plan.before, frame, calls[number].grad_outputs, outputs
        )
        _Adder(self.stages, index, group, operator, in_loop).chain(
            Point.ON_GRAD_INPUTS, plan.after, grad_inputs
        )

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
            with self.analyzing(self._frame_of(forward_graph)):
                plan = engine.gradient_plan(shown)
            if self.check is None:
                self.check = lambda engine: engine.known_gradient_plan(operator) is plan
            in_loop = frame.in_loop(frame.gradients.nodes_of[call][0])
            add = _Adder(self.stages, index, number, operator, in_loop)
            add.gradients(Point.ON_GRAD_OUTPUTS, plan.before, frame, call.grad_outputs, outputs)
            add.gradients(Point.ON_GRAD_INPUTS, plan.after, frame, call.grad_inputs, inputs)
        for name, positions in carrying(frame, call):
            if name in frame.running:
                self._backward(index, frame, name, positions, shown, operator, forward_graph)

    def _backward(
        self,
        index: int,
        frame: Frame,
        name: str,
        positions: Sequence[int],
        forward: Execution,
        operator: TensorFlowOperator,
        forward_graph: Any,
    ) -> None:
        engine = self.engine
        node = frame.body.nodes[name]
        if node.op in OPT_IN:
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
        with self.analyzing(self._frame_of(forward_graph)):
            plan = engine.backward_plan(shown)
            if plan.pending:
                shown.grad_inputs = outputs
                plan = engine.complete(plan, shown)
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


def _no_whole(action: Action, operator: TensorFlowOperator, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{action.tool.name}: of the gradient of {operator.id!r} there are some rows "
        f"(tf.IndexedSlices), and {why}; have a tool of TensorFlow's vocabulary look at the rows"
    )


def _first_size(tensor: Any) -> int | None:
    """The size of the first axis, None if that is known only when the graph runs."""
    shape = tensor.shape
    return shape[0] if shape.rank else None


def _with_values(tensors: Sequence[Any]) -> list[Any]:
    """Tensors where variables of version 1 may have no value yet: None in their place."""
    return [None if tensor.dtype._is_ref_dtype else tensor for tensor in tensors]


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
        anchor: Anchor,
        operator: TensorFlowOperator,
        in_loop: bool,
    ) -> None:
        self.stages = stages
        self.frame = frame
        self.anchor = anchor
        self.operator = operator
        self.in_loop = in_loop
        self.fixed: list[int] = []

    def gradients(
        self,
        point: Point,
        actions: Sequence[Action],
        frame: Frame,
        names: Sequence[str | None],
        of: Sequence[Any],
    ) -> None:
        """Routines on gradients, of which there may be some rows.

        Args:
            point: where they run.
            actions: the routines.
            frame: where the gradients are computed.
            names: the names of the gradients.
            of: what they are gradients of.

        Raises:
            UnsupportedError: a routine is to be given the whole of a gradient whose size nobody
                has told.
        """
        names, places = with_rows(frame.graph, names)
        tensors = [_by_name(frame, name) for name in names]
        rows = {
            position: Rows(indices, shape, _first_size(of[position]))
            for position, (indices, shape) in places.items()
        }
        for action in actions if rows else ():
            for position, (_, shape, number) in rows.items():
                chosen = action.indices is None or position in action.indices
                if action.whole and chosen and number is None and tensors[shape] is None:
                    raise _no_whole(action, self.operator, "nobody tells the shape of the whole")
        self.chain(point, actions, tensors, rows)

    def chain(
        self,
        point: Point,
        actions: Sequence[Action],
        tensors: Sequence[Any],
        rows: Mapping[int, Rows] | None = None,
    ) -> None:
        """Routines one after the other; neighbours of one kind are one stage."""
        groups: list[list[Action]] = []
        for action in actions:
            if groups and groups[-1][0].pure == action.pure:
                groups[-1].append(action)
            else:
                groups.append([action])
        for group in groups:
            self._add(point, group, tensors, None, rows)

    def around(self, plan: Plan, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """All that a plan says of an operator."""
        self.chain(Point.BEFORE_OP, plan.before, inputs)
        self.fixed = []
        if plan.replace is not None:
            self.replacement(Point.REPLACE_OP, plan.replace, inputs, outputs)
        self.chain(Point.AFTER_OP, plan.after, outputs)

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
        rows: Mapping[int, Rows] | None = None,
    ) -> None:
        stage = Stage(
            self.frame, self.anchor, point, actions, tensors, outputs, self.operator, rows
        )
        if not actions[0].pure:
            stage.fix(self.fixed)
        else:
            stage.pure = PureRoutine.trace(stage, tensors)
            if outputs is None and not stage.pure.changed:
                return  # it only looks, at nothing that it could see
            if self.in_loop and stage.pure.captures:
                stage.pure = None  # what it captured does not get into the loop
        self.stages.append(stage)
