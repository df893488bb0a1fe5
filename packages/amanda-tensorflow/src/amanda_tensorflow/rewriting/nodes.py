"""Stages are run by nodes, which are added here and given what the routines are to get."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from amanda import UnsupportedError

from amanda_tensorflow.composites import root_of
from amanda_tensorflow.graph.body import REFERENCE, control_inputs, data_inputs, set_inputs, split
from amanda_tensorflow.graph.layers import LayerAnchor, LayerGradient
from amanda_tensorflow.rewriting.arguments import Arguments, Capture
from amanda_tensorflow.routines.host import HostRoutine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from amanda.driving import Ask

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.rewriting.edits import Edits
    from amanda_tensorflow.rewriting.versions import Versions
    from amanda_tensorflow.routines.stages import Spec, Stage

_serials = itertools.count()

# These run whether or not what they give runs.
_SWITCHES = frozenset(["RefSwitch", "Switch"])


class StageNodes:
    """This adds the nodes of stages to frames.

    Attributes:
        serial: a number that makes the names unique of all that is made for them.
        hosts: the host routines, with the number of the stage that each one runs.
        arguments: the new arguments of the outermost frame.
        functions: the stages with pure routines, by the names of the functions that they call.
    """

    def __init__(self, root: Frame, stages: Sequence[Stage]) -> None:
        self.serial = next(_serials)
        self.hosts: list[tuple[int, HostRoutine]] = []
        self.arguments = Arguments(root)
        self.functions: dict[str, Stage] = {}
        self._stages = stages

    def has_effects(self, number: int) -> bool:
        """Tell whether the routines of a stage may do more than return tensors."""
        stage = self._stages[number]
        return stage.pure is None or stage.pure.stateful

    def externals(self, number: int) -> Sequence[str]:
        """List the tensors that a stage is given beside those at its point, to run the original."""
        rerun = self._stages[number].rerun
        return () if rerun is None else rerun.externals

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
        """Give a stage's node the tensors that its routines ask for.

        Where they ask for none it waits for those that there are: it runs as often as these are
        computed, which in a loop or branch of version 1 is not as often as what is around it runs.
        """
        stage = self._stages[number]
        name = _name(edits, stage, number)
        if not stage.given:
            controls = [*controls, *_computing(edits, name, tensors)]
        given = []
        for position in stage.given:
            tensor = tensors[position]
            assert tensor is not None
            given.append(_by_value(edits, tensor, f"{name}/value_{position}"))
        node = edits.frame.body.nodes[name]
        set_inputs(node, [*given, *data_inputs(node)], controls)

    def ask(self, edits: Edits, numbers: Iterable[int], versions: Versions) -> None:
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
                tensor = versions.asked(edits.frame, wanted, dtype, stage.on_gradient)
                if tensor is None:
                    raise _unreachable(stage, ask)
                asked.append(_by_value(edits, tensor, f"{name}/asked_{place}"))
            data, count = data_inputs(node), len(stage.given)
            set_inputs(node, [*data[:count], *asked, *data[count:]], control_inputs(node))


def _unreachable(stage: Stage, ask: Ask) -> UnsupportedError:
    """Make the error for a tensor that does not get to where a routine asks for it."""
    tool = next(action.tool.name for action in stage.actions if ask in action.asked)
    return UnsupportedError(
        f"{tool}: at {stage.point.value} of {stage.operator.named} a routine asks for "
        f"{ask.what}[{ask.index}], which nothing brings from the forward graph to the graph of "
        "the gradient; take the gradient in the function that the operator is in, keep what is "
        "needed in a ctx.variable by a routine after the operator, or ask for what the "
        "operator's own gradient reads"
    )


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
    """List the data types of the values of tensors."""
    return [spec.dtype.base_dtype.as_datatype_enum for spec in specs]


def _computing(edits: Edits, name: str, tensors: Iterable[str | None]) -> Iterator[str]:
    """List the nodes to wait for so that a stage runs where some tensors are computed."""
    body = edits.frame.body
    for number, tensor in enumerate(tensors):
        if tensor is None or tensor in edits.frame.fed or body.argument(tensor) is not None:
            continue
        producer = split(tensor)[0]
        if body.nodes[producer].op in _SWITCHES:
            producer = f"{name}/there_{number}"
            node = body.add(producer, "Identity", [tensor])
            node.attr["T"].type = body.dtype(tensor) % REFERENCE
        yield producer


def _by_value(edits: Edits, tensor: str, name: str) -> str:
    """Return a tensor, or the value of a reference to one."""
    dtype = edits.frame.body.dtype(tensor)
    if dtype < REFERENCE:
        return tensor
    node: Any = edits.frame.body.add(name, "Identity", [tensor])
    node.attr["T"].type = dtype - REFERENCE
    return f"{name}:0"
