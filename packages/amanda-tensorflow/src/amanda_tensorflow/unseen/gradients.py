"""Tools see nothing of some gradients in graphs built before anyone took notes; these are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_tensorflow.graph.node_types import OPT_IN, STRUCTURE
from amanda_tensorflow.notes import title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda.driving import Engine

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.notes import GradientCall
    from amanda_tensorflow.unseen import Unseen

# They bring gradients together, and belong to no operator in any graph.
_BETWEEN = frozenset(["AddN", "Fill", "OnesLike", "ZerosLike"])
_UNSEEN_ANYWHERE = _BETWEEN | OPT_IN | STRUCTURE
_SHOWN = 3


class UnseenGradients:
    """This notices gradients that nobody noted, and that names do not tell.

    Args:
        unseen: is told of them.
    """

    def __init__(self, unseen: Unseen) -> None:
        self._unseen = unseen

    def look_at(self, root: Frame, engine: Engine) -> None:
        """Look for such gradients in a graph and in all that it calls."""
        met = self._unseen.met_by(engine)
        if met.told_of_gradients or not (engine.wants_backward or engine.wants_gradients):
            return
        for frame in root.walk():
            found = {
                "the backward operators": _lost(frame) if engine.wants_backward else [],
                "the gradients as a whole of": (
                    _not_whole(frame, engine) if engine.wants_gradients else []
                ),
            }
            missing = [
                _listed(what, operations) for what, operations in found.items() if operations
            ]
            if missing:
                met.told_of_gradients = True
                self._unseen.tell(
                    f"tools do not see {', nor '.join(missing)} in {title(frame.graph)!r}, "
                    "which was loaded, or built before amanda_tensorflow was imported; "
                    "import that before the graph is built"
                )
                return
            if engine.wants_gradients and (many := _for_many(frame, engine)):
                met.told_of_gradients = True
                self._unseen.tell(
                    f"tools do not see {_listed('the gradients as a whole of', many)} in "
                    f"{frame.graph.name!r} where they are computed for many elements at once, as "
                    "for a Jacobian; pass experimental_use_pfor=False to GradientTape.jacobian, or "
                    "map by tf.map_fn"
                )
                return


def _lost(frame: Frame) -> list[Any]:
    """List backward operators that tools see nothing of, since nobody knows what they belong to."""
    operations = (frame.operations[name] for name in frame.gradients.unnoted.get(None, ()))
    return [
        operation
        for operation in operations
        if operation.type not in _UNSEEN_ANYWHERE and operation.outputs[0].dtype.is_floating
    ]


def _not_whole(frame: Frame, engine: Engine) -> list[Any]:
    """List the operators whose gradients as a whole are not known."""
    unnoted = frame.gradients.unnoted
    calls = [call for call in frame.gradients.calls if call.forward in unnoted]
    return _wanted([call for call in calls if not call.grad_inputs], engine)


def _for_many(frame: Frame, engine: Engine) -> list[Any]:
    """List the operators whose gradients are computed for many elements at once."""
    calls = [call for call in frame.gradients.calls if call.vectorized]
    return list(dict.fromkeys(_wanted(calls, engine)))


def _wanted(calls: Sequence[GradientCall], engine: Engine) -> list[Any]:
    """List the forward operators of gradients as far as a tool wants them."""
    found = []
    for call in calls:
        graph = call.forward_graph()
        if graph is not None:
            operation = graph.get_operation_by_name(call.forward)
            if engine.wants(operation.type) and operation.type not in _UNSEEN_ANYWHERE:
                found.append(operation)
    return found


def _listed(what: str, operations: Sequence[Any]) -> str:
    shown = ", ".join(f"{each.name} ({each.type})" for each in operations[:_SHOWN])
    return f"{what} {shown}" + (" and others" if len(operations) > _SHOWN else "")
