"""The rewriter inserts stages into frames.

Every node that reads a tensor is given the version of it that S3 says: an operator and its own
gradient the substituted inputs, its own gradient the original outputs, and everybody else the
substituted outputs.
"""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING, Any

from amanda import UnsupportedError
from amanda.driving import Point

from amanda_tensorflow._internals import types_pb2
from amanda_tensorflow.composites import root_of
from amanda_tensorflow.graph.body import control_inputs, data_inputs, set_inputs, split
from amanda_tensorflow.graph.gradients import carrying
from amanda_tensorflow.graph.layers import LayerAnchor, LayerGradient
from amanda_tensorflow.graph.node_types import STRUCTURE
from amanda_tensorflow.graph.rows import with_rows
from amanda_tensorflow.notes import notes_of
from amanda_tensorflow.rewriting.arguments import Arguments, Capture
from amanda_tensorflow.rewriting.edits import Edits
from amanda_tensorflow.rewriting.groups import AroundGroups
from amanda_tensorflow.rewriting.layers import AroundLayers
from amanda_tensorflow.rewriting.versions import Versions
from amanda_tensorflow.routines.host import HostRoutine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from amanda.driving import Ask

    from amanda_tensorflow.composites import Anchor
    from amanda_tensorflow.graph.body import Body
    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.rewriting.versions import Wanted
    from amanda_tensorflow.routines.stages import Spec, Stage


_serials = itertools.count()


class Rewriter:
    """Inserts stages; afterwards the frames that are marked as edited are the result.

    Attributes:
        serial: a number that makes the names unique of all that is made for it.
        hosts: the host routines, with the number of the stage that each one runs.
        arguments: the new arguments of the outermost frame.
        returned: versions that the outermost frame returns beside its outputs, in order: beside
            which outputs they travel, and the operator whose gradient needs them.
        functions: the stages with pure routines, by the names of the functions that they call.
    """

    def __init__(
        self,
        root: Frame,
        stages: Sequence[Stage],
        stashed: Callable[[int, Wanted], int | None] = lambda *_: None,
    ) -> None:
        self.serial = next(_serials)
        self.root = root
        self.hosts: list[tuple[int, HostRoutine]] = []
        self.arguments = Arguments(root)
        self.returned: list[tuple[Sequence[int], Wanted]] = []
        self.functions: dict[str, Stage] = {}
        self._stages = stages
        self._frames = list(root.walk())
        self._edits = {frame: Edits(frame) for frame in self._frames}
        self._at: dict[tuple[int, Anchor], dict[Point, list[int]]] = {}
        for number, stage in enumerate(stages):
            points = self._at.setdefault((stage.frame, stage.anchor), collections.defaultdict(list))
            points[stage.point].append(number)
        self._versions = Versions(self._edits, root, self.arguments.of_versions(stashed))

    def run(self, returning_versions: bool = False) -> None:
        """Insert all stages, and have every node read what it is to read.

        Args:
            returning_versions: whether the outermost frame is to return what the backward function
                of a pair will need, beside what that is known to need.
        """
        around, layers = AroundGroups(self), AroundLayers(self)
        self._insert(self._after, around.after)
        self._insert(layers.after, inner_first=True)
        self._insert(self._on_grad_inputs, around.on_grad_inputs)
        self._insert(layers.on_grad_inputs, inner_first=True)
        self._insert(layers.before)
        for edits in self._edits.values():
            layers.read(edits)
        self._insert(around.before, self._before, layers.on_grad_outputs)
        self._insert(self._on_grad_outputs, self._before_backward)
        for (index, _), points in self._at.items():
            self._ask(self._edits[self._frames[index]], itertools.chain(*points.values()))
        for edits in self._edits.values():
            self._rewire(edits)
            if self.hosts:  # else nothing assigns what the others read
                edits.run_in_order()
        if returning_versions:
            self._return_versions()
        for edits in self._edits.values():
            edits.drop_unread()

    def _insert(
        self,
        *inserting: Callable[[Edits, Anchor, dict[Point, list[int]]], None],
        inner_first: bool = False,
    ) -> None:
        """Insert stages in some ways, one after the other; those of outer layers come first."""
        places = list(self._at.items())
        for insert in inserting:
            for (index, anchor), points in reversed(places) if inner_first else places:
                insert(self._edits[self._frames[index]], anchor, points)

    def is_given(self, number: int) -> bool:
        """Whether the routines of a stage are given any tensors."""
        return bool(self._stages[number].given)

    def has_effects(self, number: int) -> bool:
        """Whether the routines of a stage may do more than return tensors."""
        stage = self._stages[number]
        return stage.pure is None or stage.pure.stateful

    def externals(self, number: int) -> Sequence[str]:
        """The tensors that a stage is given beside those at its point, to run the original."""
        rerun = self._stages[number].rerun
        return () if rerun is None else rerun.externals

    def last_stage(self, name: str) -> str | None:
        """The node of the outermost frame that is done when an operator and its routines are."""
        return self._edits[self.root].last.get(name)

    def host_nodes(self) -> list[str]:
        """The nodes of the outermost frame that call back into Python."""
        return [name for _, name in self._edits[self.root].hosts]

    def read(self, tensor: str) -> str:
        """What a tensor of the outermost frame is for whoever asks for it."""
        return self._edits[self.root].current(tensor)

    # Stages, in an order in which all that they read is known

    def _after(self, edits: Edits, anchor: Anchor, points: dict[Point, list[int]]) -> None:
        if not isinstance(anchor, str):
            return
        node = edits.frame.body.nodes[anchor]
        raw = [f"{anchor}:{index}" for index in range(len(edits.frame.body.dtypes(node)))]
        outputs: list[str | None] = list(raw)
        for number in points[Point.REPLACE_OP] + points[Point.REPLACE_BACKWARD_OP]:
            name = self.place(edits, number)
            outputs = [f"{name}:{index}" for index in range(len(raw))]
            edits.last[anchor] = name
            edits.replaced.add(anchor)
        for number in points[Point.AFTER_OP] + points[Point.AFTER_BACKWARD_OP]:
            controls = () if self._stages[number].given else (anchor,)
            edits.last[anchor] = self.emit(edits, number, outputs, controls)
        for before, now in zip(raw, outputs, strict=True):
            if now is not None and now != before:
                edits.after[before] = now

    def _on_grad_inputs(self, edits: Edits, anchor: Anchor, points: dict[Point, list[int]]) -> None:
        if not isinstance(anchor, int) or not points[Point.ON_GRAD_INPUTS]:
            return
        call = edits.frame.gradients.calls[anchor]
        raw = edits.tensors(with_rows(edits.frame.graph, call.grad_inputs)[0])
        gradients = [None if t is None else edits.after.get(t, t) for t in raw]
        self._chain(edits, points[Point.ON_GRAD_INPUTS], gradients)
        for before, now in zip(raw, gradients, strict=True):
            if before is not None and now is not None:
                edits.outer[before] = now

    def _before(self, edits: Edits, anchor: Anchor, points: dict[Point, list[int]]) -> None:
        if not isinstance(anchor, str):
            return
        if not (points[Point.BEFORE_OP] or points[Point.REPLACE_OP]):
            return
        inputs: list[str | None] = [*edits.taken(anchor)]
        self._before_node(edits, anchor, points[Point.BEFORE_OP], inputs, range(len(inputs)))
        for number in points[Point.REPLACE_OP]:
            self.connect(edits, number, inputs, edits.controls(anchor))

    def _on_grad_outputs(
        self, edits: Edits, anchor: Anchor, points: dict[Point, list[int]]
    ) -> None:
        if not isinstance(anchor, int):
            return
        call = edits.frame.gradients.calls[anchor]
        raw = edits.tensors(with_rows(edits.frame.graph, call.grad_outputs)[0])
        gradients = [
            None if t is None else edits.grad_outputs.get((call, t)) or edits.current(t)
            for t in raw
        ]
        self._chain(edits, points[Point.ON_GRAD_OUTPUTS], gradients)
        for before, now in zip(raw, gradients, strict=True):
            if before is not None and now is not None:
                edits.grad_outputs[call, before] = now

    def _before_backward(
        self, edits: Edits, anchor: Anchor, points: dict[Point, list[int]]
    ) -> None:
        before, replace = points[Point.BEFORE_BACKWARD_OP], points[Point.REPLACE_BACKWARD_OP]
        if not isinstance(anchor, str) or not (before or replace):
            return
        call = edits.frame.gradients.of_node[anchor]
        positions = dict(carrying(edits.frame, call))[anchor]
        inputs: list[str | None] = [
            self._read(edits, anchor, t) for t in edits.frame.inputs[anchor]
        ]
        gradients = self._before_node(edits, anchor, before, inputs, positions)
        for number in replace:
            self.connect(edits, number, gradients, edits.controls(anchor))

    def _before_node(
        self,
        edits: Edits,
        anchor: str,
        numbers: Iterable[int],
        inputs: list[str | None],
        positions: Sequence[int],
    ) -> list[str | None]:
        """Run stages on some inputs of a node, and give it what they return."""
        chosen = [inputs[position] for position in positions]
        for number in numbers:
            name = self.emit(edits, number, chosen, edits.controls(anchor))
            edits.waits[anchor].append(name)
        for position, tensor in zip(positions, chosen, strict=True):
            inputs[position] = tensor
        edits.inputs_of[anchor] = [tensor for tensor in inputs if tensor is not None]
        return chosen

    def _chain(self, edits: Edits, numbers: Iterable[int], tensors: list[str | None]) -> None:
        for number in numbers:
            self.emit(edits, number, tensors, ())

    # One stage

    def emit(
        self, edits: Edits, number: int, tensors: list[str | None], controls: Iterable[str]
    ) -> str:
        """Add the node of a stage; what it returns takes its place in ``tensors``."""
        stage = self._stages[number]
        name = self.place(edits, number)
        self.connect(edits, number, tensors, controls)
        for output, position in enumerate(stage.changed):
            tensors[position] = f"{name}:{output}"
        return name

    def place(self, edits: Edits, number: int) -> str:
        """Add the node of a stage, without the tensors that the routines are given."""
        stage, frame = self._stages[number], edits.frame
        frame.mark_edited()
        name = _name(edits, stage, number)
        if stage.pure is None or stage.pure.reads_variables:
            edits.ordered.append((stage, name))
            frame.mark_ordered()
        if stage.pure is None:
            routine = HostRoutine(stage)
            self.hosts.append((number, routine))
            edits.hosts.append((stage, name))
            node = frame.body.add(name, "EagerPyFunc", ())
            node.attr["token"].s = routine.token.encode()
            node.attr["is_async"].b = False
            frame.body.controls.append(name)
            frame.mark_host()
            captures = []
        else:
            captures = stage.pure.capture_dtypes(by_value=self.arguments.by_value)
            captured = [
                self.arguments.add(frame, Capture(number, index), dtype)
                for index, dtype in enumerate(captures)
            ]
            op = "StatefulPartitionedCall" if stage.pure.stateful else "PartitionedCall"
            node = frame.body.add(name, op, captured)
            function = f"amanda_pure_{self.serial}_{number}"
            self.functions[function] = stage
            node.attr["f"].func.name = function
        returned = [stage.results[position] for position in stage.changed]
        node.attr["Tin"].list.type.extend(_dtypes(stage.given.values()))
        node.attr["Tin"].list.type.extend(_dtypes(asked.spec for asked in stage.asked.values()))
        node.attr["Tin"].list.type.extend(captures)
        node.attr["Tout"].list.type.extend(_dtypes(returned))
        return name

    def connect(
        self, edits: Edits, number: int, tensors: Sequence[str | None], controls: Iterable[str]
    ) -> None:
        """Give a stage's node the tensors that its routines ask for."""
        stage = self._stages[number]
        name = _name(edits, stage, number)
        given = []
        for position in stage.given:
            tensor = tensors[position]
            assert tensor is not None
            given.append(_by_value(edits, tensor, f"{name}/value_{position}"))
        node = edits.frame.body.nodes[name]
        set_inputs(node, [*given, *data_inputs(node)], controls)

    def _ask(self, edits: Edits, numbers: Iterable[int]) -> None:
        """Give the nodes of stages what their routines ask for of the forward side.

        Raises:
            UnsupportedError: it does not get to where they run.
        """
        for number in numbers:
            stage = self._stages[number]
            if not stage.asked:
                continue
            name = _name(edits, stage, number)
            node = edits.frame.body.nodes[name]
            asked = []
            for place, (ask, (spec, wanted)) in enumerate(stage.asked.items()):
                dtype = spec.dtype.as_datatype_enum
                tensor = self._versions.asked(edits.frame, wanted, dtype, stage.on_gradient)
                if tensor is None:
                    raise _unreachable(stage, ask)
                asked.append(_by_value(edits, tensor, f"{name}/asked_{place}"))
            data, count = data_inputs(node), len(stage.given)
            set_inputs(node, [*data[:count], *asked, *data[count:]], control_inputs(node))

    # Who reads what

    def _return_versions(self) -> None:
        for index, tensor in enumerate(self.root.outputs):
            for operator in dict.fromkeys(self._versions.operators(self.root, tensor)):
                version = self._versions.find(self.root, tensor, operator)
                if version is not None:
                    self._return((index,), operator, version)
        captured = {
            id(tensor)
            for graph in notes_of(self.root.graph).gradients_in
            for tensor in graph.external_captures
        }
        outputs = self.root.graph.outputs
        beside = [i for i, tensor in enumerate(outputs) if id(tensor) in captured]
        for wanted, dtype in self.root.handed.items() if beside else ():
            self._return_asked(wanted, dtype, beside)

    def _return_asked(self, wanted: Wanted, dtype: int, beside: Sequence[int]) -> None:
        """Return what routines on gradients ask for beside tensors that get to the gradients.

        Beside one that has come the way that it has come; beside any if it comes by itself.
        """
        found: dict[str, list[int]] = collections.defaultdict(list)
        for index in beside:
            version = self._versions.find(self.root, self.root.outputs[index], wanted)
            if version is not None:
                found[version].append(index)
        if not found:
            asked = self._versions.asked(self.root, wanted, dtype, in_gradient=True)
            if asked is not None:
                found[asked] = list(beside)
        for version, indices in found.items():
            self._return(indices, wanted, version)

    def _return(self, beside: Sequence[int], operator: Wanted, version: str) -> None:
        self.root.body.outputs.append(version)
        self.returned.append((beside, operator))

    def _read(self, edits: Edits, reader: str, tensor: str) -> str:
        gradients = edits.frame.gradients
        call = gradients.of_node.get(reader)
        if call is None:
            return edits.seen_by(tensor, reader)
        version = self._versions.of_call(edits.frame, reader, tensor, call)
        if version is not None:
            return version
        if (call, tensor) in edits.grad_outputs:
            return edits.grad_outputs[call, tensor]
        if gradients.of_node.get(split(tensor)[0]) is call:
            return edits.after.get(tensor, tensor)
        return edits.seen_by(tensor, reader)

    def _rewire(self, edits: Edits) -> None:
        frame, body = edits.frame, edits.frame.body
        for name, inputs in frame.inputs.items():
            node = body.nodes[name]
            data = edits.inputs_of.get(name) or [self._read(edits, name, t) for t in inputs]
            added = list(node.input)[len(inputs) :]  # what passing values down has added
            data = [*data, *(tensor for tensor in added if not tensor.startswith("^"))]
            control = [edits.last.get(n, n) for n in control_inputs(node)]
            control += edits.waits.get(name, ())
            if node.op not in STRUCTURE:
                control += self._unread_stages(edits, name, data)
            if node.op == "LoopCond" and edits.hosts:
                data = [_both(body, f"{name}/amanda/condition", data[0])]
            if data != inputs or control != control_inputs(node):
                set_inputs(node, data, control)
                frame.mark_edited()
        count = len(frame.outputs)
        body.outputs[:count] = [edits.current(tensor) for tensor in frame.outputs]
        body.controls = [edits.last.get(name, name) for name in body.controls]
        if frame.attr == "cond" and frame.host:
            body.outputs = [_both(body, "amanda/condition", body.outputs[0])]

    def _unread_stages(self, edits: Edits, reader: str, data: Sequence[str]) -> list[str]:
        """Stages after an operator that a reader must wait for, since they return nothing to it."""
        if not edits.last:
            return []
        call = edits.frame.gradients.of_node.get(reader)
        producers = {split(tensor)[0] for tensor in data}
        if call is not None:
            producers.discard(edits.frame.node(call.forward) or "")
        return [edits.last[name] for name in sorted(producers) if name in edits.last]


def _unreachable(stage: Stage, ask: Ask) -> UnsupportedError:
    """The error for a tensor that does not get to where a routine asks for it."""
    tool = next(action.tool.name for action in stage.actions if ask in action.asked)
    return UnsupportedError(
        f"{tool}: at {stage.point.value} of {stage.operator.named} a routine asks for "
        f"{ask.what}[{ask.index}], which nothing brings from the forward graph to the graph of "
        "the gradient; take the gradient in the function that the operator is in, keep what is "
        "needed in a ctx.variable by a routine after the operator, or ask for what the "
        "operator's own gradient reads"
    )


def _both(body: Body, name: str, condition: str) -> str:
    """The condition of a loop, twice: TensorFlow crashes on a comparison that reads no constant."""
    body.add(name, "LogicalAnd", [condition] * 2)
    return f"{name}:0"


def _name(edits: Edits, stage: Stage, number: int) -> str:
    anchor: str | int
    if isinstance(stage.anchor, (LayerAnchor, LayerGradient)):
        anchor = stage.operator.scope
    else:
        anchor = root_of(stage.anchor)
    if isinstance(anchor, int):
        anchor = edits.frame.gradients.calls[anchor].forward
    return f"{anchor}/amanda/{stage.point.value}_{number}"


def _dtypes(specs: Iterable[Spec]) -> list[int]:
    """The data types of the values of tensors."""
    return [spec.dtype.base_dtype.as_datatype_enum for spec in specs]


def _by_value(edits: Edits, tensor: str, name: str) -> str:
    """A tensor, or the value of a reference to one."""
    dtype = edits.frame.body.dtype(tensor)
    if dtype < types_pb2.DT_FLOAT_REF:
        return tensor
    node: Any = edits.frame.body.add(name, "Identity", [tensor])
    node.attr["T"].type = dtype - 100
    return f"{name}:0"
