"""Tools see nothing of some gradients in graphs built before anyone took notes; these are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_tensorflow.graph.node_types import OPT_IN, STRUCTURE
from amanda_tensorflow.notes import notes_of, title

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
                self._tell(
                    f"tools do not see {', nor '.join(missing)} in {title(frame.graph)!r}, "
                    "which was loaded, or built before amanda_tensorflow was imported; "
                    "import that before the graph is built",
                    engine,
                )
                return
            if many := _for_many(frame, engine):
                self._tell(
                    f"tools do not see {_listed(_of(engine), many)} in {title(frame.graph)!r} "
                    "where they are computed for many elements at once, as for a Jacobian; pass "
                    "experimental_use_pfor=False to GradientTape.jacobian, or map by tf.map_fn",
                    engine,
                )
                return

    def in_graph(self, root: Frame, engine: Engine) -> None:
        """Say that tools see nothing of gradients that a graph being built takes with versions.

        The function that computes them has arguments more then, and is one that nobody noted.
        """
        if engine.wants_backward or engine.wants_gradients:
            calls = [call for frame in root.walk() for call in frame.gradients.calls]
            if found := _wanted(calls, engine):
                self._tell(
                    f"tools do not see {_listed(_of(engine), found)} where a Jacobian, or a "
                    "tf.function that asks a tape around it, computes them and tools have changed "
                    "what they are computed of; pass experimental_use_pfor=False to "
                    "GradientTape.jacobian, or take the gradient outside of the tf.function, or "
                    "with the tape in it",
                    engine,
                )

    def _tell(self, reason: str, engine: Engine) -> None:
        met = self._unseen.met_by(engine)
        if not met.told_of_gradients:
            met.told_of_gradients = True
            self._unseen.tell(reason)


def _of(engine: Engine) -> str:
    what = "gradients as a whole" if engine.wants_gradients else "backward operators"
    return f"the {what} of"


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
    computes_gradients: dict[Any, Callable[[int], bool]] = {}
    for call in calls:
        graph = call.forward_graph()
        if graph is not None:
            if graph not in computes_gradients:
                computes_gradients[graph] = notes_of(graph).computes_gradients()
            operation = graph.get_operation_by_name(call.forward)
            # a Jacobian computes gradients of how it takes the elements apart, too
            seen = engine.wants(operation.type) and operation.type not in _UNSEEN_ANYWHERE
            if seen and not computes_gradients[graph](operation._id):
                found.append(operation)
    return found


def _listed(what: str, operations: Sequence[Any]) -> str:
    shown = ", ".join(f"{each.name} ({each.type})" for each in operations[:_SHOWN])
    return f"{what} {shown}" + (" and others" if len(operations) > _SHOWN else "")
