"""The tools decide about calls of layers, forward and as to their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda import UnsupportedError
from amanda.driving import Execution, Point

from amanda_tensorflow.decisions.asked import LayerSide
from amanda_tensorflow.graph.body import split
from amanda_tensorflow.graph.layers import LayerAnchor, tensors
from amanda_tensorflow.graph.node_types import READING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda.driving import Plan

    from amanda_tensorflow.decisions.asking import Asking
    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.layers import Layer
    from amanda_tensorflow.graph.operators import TensorFlowOperator
    from amanda_tensorflow.routines.stages import Stage

_TWICE = (
    "the layer takes this tensor twice, and who reads it in the layer cannot be told apart; "
    "replace the first of them, which stands for all, or insert at the layers inside of it"
)
_HANDED_ON = (
    "the layer hands on a tensor that it was given, and who reads that after it cannot be told "
    "apart; insert at the layer before or after it"
)


class LayerDecisions:
    """This asks the tools about the calls of layers in frames.

    Attributes:
        replaced: the frames in which nobody sees the operators, since a layer that calls them is
            replaced.
    """

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._engine = asking.engine
        self._asked: set[tuple[Frame, int]] = set()
        self._plans: dict[tuple[Any, int], Plan] = {}
        self._replaced: dict[Frame, set[int]] = {}
        self.replaced: set[Frame] = set()

    def up_to(self, frame: Frame, node: str | None = None) -> None:
        """Ask about all calls in a frame that begin before a node, or about the rest of them."""
        if not self._engine.wants_modules:
            return
        end = None if node is None else frame.operations[node]._id
        for number, layer in frame.layers.calls.items():
            if end is not None and layer.call.made[0] >= end:
                return
            if (frame, number) not in self._asked:
                self._asked.add((frame, number))
                if self._replaced.get(frame, set()).isdisjoint(layer.path):
                    self._layer(frame, layer)

    def hides(self, frame: Frame, node: str) -> bool:
        """Tell whether a node is in a layer that is replaced, of which nobody sees the inside."""
        numbers = self._replaced.get(frame, set())
        return bool(numbers) and not numbers.isdisjoint(frame.layers.path(node))

    def hides_operator(self, graph: Any, name: str) -> bool:
        """Tell whether an operator is in a layer that is replaced, wherever its graph runs."""
        frames = [frame for frame in self._asking.frames if frame.graph is graph]
        return bool(frames) and all(
            frame in self.replaced
            or ((node := frame.node(name)) is not None and self.hides(frame, node))
            for frame in frames
        )

    def known(self, frame: Frame, layer: Layer) -> Plan | None:
        """Return the tools' plan for a layer that may not run now; None for one nobody wants."""
        operator = self._wanted(layer)
        if operator is None or not self._replaced.get(frame, set()).isdisjoint(layer.path):
            return None
        return self._plan(frame, layer, operator)

    def _plan(self, frame: Frame, layer: Layer, operator: TensorFlowOperator) -> Plan:
        """Return the tools' plan for a layer, asking once a call even where no plan is kept."""
        if (frame.graph, layer.number) not in self._plans:
            inputs, outputs = tensors(frame, layer.inputs), tensors(frame, layer.outputs)

            def show() -> Execution:
                return Execution(operator, inputs, layer.input_names, layer.call.attrs)

            plan = self._asking.plan(frame, operator, show, outputs, layer.output_names)
            self._plans[frame.graph, layer.number] = plan
        return self._plans[frame.graph, layer.number]

    def _layer(self, frame: Frame, layer: Layer) -> None:
        operator = self._wanted(layer)
        if operator is None or not _runs(frame, layer):
            return
        plan = self._plan(frame, layer, operator)
        if plan.is_noop:
            return
        inputs, outputs = tensors(frame, layer.inputs), tensors(frame, layer.outputs)
        self._check_placed(frame, layer, plan, operator)
        side = LayerSide(frame, layer)
        first = len(self._asking.stages)
        anchor = LayerAnchor(layer.number)
        self._asking.inserting(frame, anchor, operator, None, (), side).around(
            plan, _there(frame, inputs), _there(frame, outputs)
        )
        for stage in self._asking.stages[first:]:
            self._keep(stage, layer)
        if plan.replace is not None:
            self._check_closed(frame, layer, plan.replace.tool.name, operator)
            self._replaced.setdefault(frame, set()).add(layer.number)
            for node in layer.nodes:
                for child in frame.children.get(node, ()):
                    self.replaced.update(child.walk())

    def _wanted(self, layer: Layer) -> TensorFlowOperator | None:
        operator = layer.call.operator()
        if operator is None or not self._engine.wants_module(operator.type, operator.scope):
            return None
        return operator

    def _check_placed(
        self, frame: Frame, layer: Layer, plan: Plan, operator: TensorFlowOperator
    ) -> None:
        """Refuse layers whose nodes, or the tensors that they take, cannot be told."""
        if layer.mixed:
            tool = plan.actions[0].tool.name
            raise UnsupportedError(
                f"{tool}: {operator.named} is called by several replicas at once, and what each of "
                "them runs cannot be told apart; run one replica, or register with add_inst_for_op"
            )
        if any(frame.in_loop(node) for node in layer.nodes):
            tool = plan.actions[0].tool.name
            raise UnsupportedError(
                f"{tool}: {operator.named} is called in a loop of version 1, where nothing can be "
                "inserted at layers; register with add_inst_for_op, or build the loop with control "
                "flow of version 2 (tf.compat.v1.enable_control_flow_v2)"
            )

    def _keep(self, stage: Stage, layer: Layer) -> None:
        """Have no routine replace what cannot be told from other tensors."""
        fixed: dict[int, str] = {}
        handed_on = {t for t, own in zip(layer.outputs, layer.own, strict=True) if not own}
        if stage.point is Point.BEFORE_OP:
            for position, tensor in enumerate(layer.inputs):
                if tensor in handed_on:
                    fixed[position] = _HANDED_ON
                elif layer.inputs.index(tensor) < position:
                    fixed[position] = _TWICE
        else:
            fixed = {i: _HANDED_ON for i, own in enumerate(layer.own) if not own}
        for position, why in fixed.items():
            stage.keep([position], why)

    def _check_closed(
        self, frame: Frame, layer: Layer, tool: str, operator: TensorFlowOperator
    ) -> None:
        """Refuse to replace a layer of which the program reads more than it returns."""
        inside = set(layer.nodes)
        returned = {frame.tensor(name) for name in layer.outputs}
        for node in frame.forward_nodes():
            if node in inside or node not in frame.running:
                continue
            for tensor in frame.inputs[node]:
                if split(tensor)[0] in inside and tensor not in returned:
                    raise UnsupportedError(
                        f"{tool}: {operator.named} cannot be replaced, since {node!r} reads "
                        f"{tensor!r}, which is made in it and that it does not return (as losses "
                        "do that take the logits of probabilities: give those from_logits=True); "
                        "replace a layer that has both in it, or insert after this one"
                    )


def _runs(frame: Frame, layer: Layer) -> bool:
    """Tell whether a layer runs: a node of it that does more than read variables.

    One that has no nodes counts as running, since nothing tells otherwise.
    """
    running = (node for node in layer.nodes if node in frame.running)
    return not layer.nodes or any(frame.body.nodes[node].op not in READING for node in running)


def _there(frame: Frame, given: Sequence[Any]) -> list[Any]:
    """List tensors, None for those that a session does not compute, since nobody reads them."""
    found = []
    for tensor in given:
        name = frame.tensor(tensor.name)
        is_there = frame.body.argument(name) is not None or split(name)[0] in frame.body.nodes
        found.append(tensor if is_there or tensor.name in frame.fed else None)
    return found
