"""The record of TensorFlow's profiler names the node of each kernel; operators are told by that."""

from __future__ import annotations

import importlib
import pathlib
import re
import tempfile
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from amanda import UnsupportedError
from amanda.driving import Kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amanda import OpContext

_HOST = "/host:CPU"
_KERNEL = re.compile(r"(?P<node>[^:\s]+):(?P<type>\w+)")
# A call of a function, or a loop's or branch's of one, in the name of a node that was inlined.
_CALL = re.compile(r"PartitionedCall(_\d+)?/|/_\d+/")
_RECORD = "tensorflow.tsl.profiler.protobuf.xplane_pb2"


class TensorFlowProfiler:
    """This records with ``tf.profiler``; a kernel is of the node in whose name it ran.

    Nothing is inserted. Kernels of nodes whose names two operators have, as those of two models of
    one name, are left out.
    """

    def __init__(self) -> None:
        self._folder: Any = None
        self._keys: dict[str, tuple[str, str] | None] = {}  # by node, with the operator's id

    def start(self) -> None:
        """Record from now on.

        Raises:
            UnsupportedError: the program uses the profiler itself.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="amanda")
        try:
            tf.profiler.experimental.start(self._folder.name)
        except tf.errors.AlreadyExistsError:
            self._folder.cleanup()
            raise UnsupportedError(
                "the program uses tf.profiler itself, which can record for one only; take that "
                "out, or leave out the tool"
            ) from None

    def watch(self, ctx: OpContext, key: str) -> None:
        """Know the node of the operator under analysis, on its forward or backward side."""
        operator = ctx.backward_op or ctx.op
        known = self._keys.setdefault(operator.name, (key, operator.id))
        if known is not None and known[1] != operator.id:
            self._keys[operator.name] = None

    def stop(self) -> list[Kernel]:
        """Record no more, and return the kernels of the nodes that are known."""
        tf.profiler.experimental.stop()
        message = importlib.import_module(_RECORD).XSpace
        found = []
        for path in pathlib.Path(self._folder.name).rglob("*.xplane.pb"):
            space = message()
            space.ParseFromString(path.read_bytes())
            found += [kernel for plane in space.planes for kernel in self._of_plane(plane)]
        self._folder.cleanup()
        return found

    def _of_plane(self, plane: Any) -> Iterator[Kernel]:
        """List the kernels of one device."""
        is_host = plane.name == _HOST
        if not is_host and not plane.name.startswith("/device:"):
            return
        device = "cpu" if is_host else plane.name.removeprefix("/device:")
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                of = name if is_host else _node_of(plane, event)
                match = _KERNEL.fullmatch(of)
                key = None if match is None else self._key(match["node"])
                if match is not None and key is not None:
                    kernel = match["type"] if is_host else name
                    yield Kernel(key, kernel, device, event.duration_ps // 1000)

    def _key(self, node: str) -> str | None:
        """Find the operator whose node this is; an inlined one has the name of its call ahead."""
        names = [node, *(node[call.end() :] for call in _CALL.finditer(node))]
        known = next((self._keys[name] for name in names if name in self._keys), None)
        return None if known is None else known[0]


def _node_of(plane: Any, event: Any) -> str:
    """Return the node that had a device run something, as ``name:type``."""
    for stat in event.stats:
        if plane.stat_metadata[stat.metadata_id].name == "tf_op":
            return str(stat.str_value or plane.stat_metadata[stat.ref_value].name)
    return ""
