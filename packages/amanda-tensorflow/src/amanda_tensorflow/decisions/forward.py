"""The tools decide about forward operators, and about composites of them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from amanda import AmandaWarning, UnsupportedError
from amanda.driving import Execution

from amanda_tensorflow.composites import group_in, parts_of, wholes_of
from amanda_tensorflow.decisions.asked import ForwardSide
from amanda_tensorflow.decisions.producing import Producing
from amanda_tensorflow.graph.attributes import read_attrs
from amanda_tensorflow.graph.body import input_names
from amanda_tensorflow.graph.gradients import unreturned
from amanda_tensorflow.graph.operators import operators_of
from amanda_tensorflow.graph.state import keeps_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amanda.driving import Plan

    from amanda_tensorflow.composites import Group, Whole
    from amanda_tensorflow.decisions.asking import Asking
    from amanda_tensorflow.decisions.layers import LayerDecisions
    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.operators import TensorFlowOperator
    from amanda_tensorflow.routines.stages import Stage

_UNRETURNED = (
    "nobody returns its result from tf.vectorized_map, so that it does not run there, while its "
    "gradient does, and would read what the program gives the operator; return the result too, map "
    "by tf.map_fn, or exclude the operator by ops="
)


class ForwardDecisions:
    """This asks the tools about the forward operators of frames.

    Attributes:
        producing: what makes the inputs of these.
    """

    def __init__(self, asking: Asking, layers: LayerDecisions) -> None:
        self._asking = asking
        self._layers = layers
        self._engine = asking.engine
        self._visited: set[Frame] = set()
        self.producing = Producing()

    def of_frame(self, frame: Frame) -> None:
        """Ask about a function's operators; a called function's come where it is called."""
        if frame in self._visited or frame in self._layers.replaced:
            return
        self._visited.add(frame)
        wholes = wholes_of(frame.graph, self._engine)
        parts = parts_of(wholes)
        by_root = {
            group.root: (whole, group)
            for whole in wholes
            if (group := group_in(frame, whole)) is not None
        }
        for name in frame.forward_nodes():
            if name not in frame.running:
                continue
            self._layers.up_to(frame, name)
            if self._layers.hides(frame, name):
                continue
            for child in frame.children.get(name, ()):
                self.of_frame(child)
            if self._engine.wants(frame.body.nodes[name].op):
                self._operator(frame, name, parts)
            if name in by_root and self._engine.wants(by_root[name][0].operator.type):
                self._whole(frame, *by_root[name])
        self._layers.up_to(frame)
        for name, read in unreturned(frame):
            if self._engine.wants(frame.body.nodes[name].op) and not self._layers.hides(
                frame, name
            ):
                self._unreturned(frame, name, parts, read)

    def _operator(self, frame: Frame, name: str, parts: Mapping[str, frozenset[str]]) -> None:
        asked = self._asked(frame, name, parts)
        if asked is None:
            return
        operator, plan = asked
        operation = frame.operations[name]
        inputs, outputs = list(operation.inputs), list(operation.outputs)
        self.producing.met(frame, name, operator, plan, frame.inputs[name])
        fixed = _taken_with_others(frame, operation)
        early = operation.op_def.allows_uninitialized_input
        forward = ForwardSide.of_operation(operation)
        self._asking.inserting(frame, name, operator, name, fixed, forward).around(
            plan,
            _with_values(inputs) if early else inputs,
            outputs if inputs else _with_values(outputs),
        )

    def _asked(
        self, frame: Frame, name: str, parts: Mapping[str, frozenset[str]]
    ) -> tuple[TensorFlowOperator, Plan] | None:
        """Ask about one operator; None for one that no tool sees."""
        operation = frame.operations[name]
        operator = operators_of(frame.graph)[operation.name]
        if not self._engine.sees(operator):
            return None
        if operation.name in parts:
            operator = operator.part(parts[operation.name])

        def shown() -> Execution:
            names = input_names(frame.body.nodes[name], operation.op_def)
            return Execution(operator, list(operation.inputs), names, read_attrs(operation))

        return operator, self._asking.plan(frame, operator, shown, list(operation.outputs))

    def _unreturned(
        self, frame: Frame, name: str, parts: Mapping[str, frozenset[str]], read: set[int]
    ) -> None:
        """Refuse to have an operator that does not run given what its gradient would read.

        Raises:
            UnsupportedError: a pure routine would change that, or one on the host that is annotated
                to return something. Others on the host might; of that the program is warned.
        """
        asked = self._asked(frame, name, parts)
        if asked is None:
            return
        operator, plan = asked
        stages: list[Stage] = []
        inserting = self._asking.inserting(frame, name, operator, name, into=stages)
        inserting.chain(plan.before, list(frame.operations[name].inputs))
        for stage in stages:
            stage.keep(sorted(read), _UNRETURNED)
            changing = [action for action in stage.actions if not action.observes]
            if stage.pure is None and changing and not read.isdisjoint(stage.given):
                sure = [action for action in changing if action.always_returns]
                tool = (sure or changing)[0].tool.name
                reason = f"{tool}: {operator.named} cannot be changed: {_UNRETURNED}"
                if sure:
                    raise UnsupportedError(reason)
                warnings.warn(reason, AmandaWarning, stacklevel=2)

    def _whole(self, frame: Frame, whole: Whole, group: Group) -> None:
        """Ask about a composite, for the tools to which it is one operator."""
        composite, operator = whole
        inputs = [frame.graph.get_tensor_by_name(f"{n}:{i}") for n, i in composite.inputs]
        outputs = [frame.operations[group.root].outputs[0]]

        def shown() -> Execution:
            return Execution(operator, inputs, composite.input_names, composite.attrs)

        plan = self._asking.plan(frame, operator, shown, outputs)
        taken = [frame.tensor(f"{name}:{index}") for name, index in composite.inputs]
        self.producing.met(frame, group.root, operator, plan, taken)
        if plan.replace is not None:
            self._check_unwatched(frame, group, plan.replace.tool.name, operator)
        forward = ForwardSide.of_whole(whole, frame.graph)
        inserting = self._asking.inserting(frame, group, operator, group.root, (), forward)
        inserting.around(plan, inputs, outputs)

    def _check_unwatched(
        self, frame: Frame, group: Group, replacing: str, operator: TensorFlowOperator
    ) -> None:
        """Refuse to have a tool replace what another one has inserted into."""
        index = self._asking.number(frame)
        for stage in self._asking.stages:
            if stage.frame == index and stage.anchor in group.parts:
                raise UnsupportedError(
                    f"{replacing}: {operator.named} cannot be replaced while "
                    f"{stage.actions[0].tool.name} instruments {stage.operator.named}, a part of "
                    "it; apply the tools in scopes of their own"
                )


def _with_values(tensors: Sequence[Any]) -> list[Any]:
    """Return tensors, with None for variables of version 1, which may have no value yet."""
    return [None if tensor.dtype._is_ref_dtype else tensor for tensor in tensors]


def _taken_with_others(frame: Frame, operation: Any) -> list[int]:
    """List the inputs of an operator that no routine may replace.

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
