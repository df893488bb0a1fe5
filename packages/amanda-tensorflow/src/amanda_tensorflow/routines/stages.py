"""A stage is the routines that run together at one point of one operator."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf
from amanda import UnsupportedError
from amanda.driving import Forward, Point

from amanda_tensorflow.graph.rows import State
from amanda_tensorflow.routines.actions import call_action
from amanda_tensorflow.routines.substitutes import (
    as_tensor,
    incompatible_reason,
    incompatible_shape,
    is_replaceable,
)
from amanda_tensorflow.thread import active

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from amanda.driving import Action, Ask

    from amanda_tensorflow.composites import Anchor
    from amanda_tensorflow.graph.operators import TensorFlowOperator
    from amanda_tensorflow.graph.rows import Rows
    from amanda_tensorflow.graph.wanted import Wanted
    from amanda_tensorflow.routines.originals import LayerRerun, Rerun
    from amanda_tensorflow.routines.pure import PureRoutine

_FIXED = (
    "this input is fed, or taken by other operators that hold state, so it cannot be replaced in a "
    "session; replace the operator's outputs, or insert the routine with pure=True"
)
_FORWARD = frozenset([Point.BEFORE_OP, Point.REPLACE_OP, Point.AFTER_OP])
_NOTHING = Forward()
_RESOURCE = "the variable or resource that the operator works on cannot be replaced"


class Spec(NamedTuple):
    """A spec is what is known of a tensor while its graph does not run."""

    dtype: Any
    shape: Any

    @classmethod
    def of(cls, tensor: Any) -> Spec:
        """Describe a symbolic tensor, without keeping its graph alive."""
        return cls(tensor.dtype, tensor.shape)


class Replaceable(NamedTuple):
    """This is a tensor that a routine may replace; ``fixed`` says why it may not, if it may not.

    It may always return the one that it was ``given``, whatever that is.
    """

    dtype: Any
    shape: Any
    fixed: str | None = None
    given: Any = None


class Asked(NamedTuple):
    """This is a tensor of the forward side that a routine asks for: what it is like, and where."""

    spec: Spec
    wanted: Wanted


class Stage:
    """A stage is the routines that run together at one point of one operator.

    Attributes:
        frame: number of the frame that it is in.
        anchor: name of the node, number of the gradient call among those of the frame, or what
            these are of a composite.
        point: where they run.
        given: the tensors that the routines get, by their positions among all at that point; for a
            gradient that does not flow, and for a list or dataset, which Python cannot see, they
            get None.
        results: the tensors that they may replace, by their positions, or all outputs.
        rows: which of them are gradients of which there are some rows, and routines get the whole.
        replaces: whether it takes the place of the operator.
        pure: the traced routines, None for host routines.
        asked: what they are given beside these, of the forward side.
        rerun: runs the operator itself for a routine that replaces it.
    """

    def __init__(
        self,
        frame: int,
        anchor: Anchor,
        actions: Sequence[Action],
        tensors: Sequence[Any],
        outputs: Sequence[Any] | None,
        operator: TensorFlowOperator,
        rows: Mapping[int, Rows],
        asked: Mapping[Ask, Asked],
        rerun: Rerun | LayerRerun | None = None,
    ) -> None:
        self.frame = frame
        self.anchor = anchor
        self.point = actions[0].point
        self.actions = actions
        self.operator = operator.snapshot()  # not itself: a traced routine, a cycle, refers to it
        self.pure: PureRoutine | None = None
        self.asked = dict(asked)
        self.rerun = rerun
        self.replaces = outputs is not None
        externals = () if rerun is None else rerun.tensors
        self._count = len(tensors) - 2 * len(rows)
        self._externals = range(len(tensors), len(tensors) + len(externals))
        tensors = [*tensors, *externals]
        self._fixed: dict[int, str] = {}
        given = [
            position
            for position in sorted(self._chosen(actions))
            if position < self._count
            and tensors[position] is not None
            and tensors[position].dtype != tf.variant
        ]
        whole = self._chosen(action for action in actions if action.whole).intersection(given)
        self.rows = {position: rows[position] for position in sorted(whole & rows.keys())}
        for of in self.rows.values():
            given += [of.indices] if of.number is not None else [of.indices, of.shape]
        given += self._externals
        self.given = {position: Spec.of(tensors[position]) for position in given}
        if outputs is not None:
            self.results = {position: Spec.of(output) for position, output in enumerate(outputs)}
        else:
            shapes = {of.shape for of in self.rows.values()}
            self.results = {
                position: spec
                for position, spec in self.given.items()
                if is_replaceable(spec.dtype) and position not in shapes
            }

    def _chosen(self, actions: Iterable[Action]) -> set[int]:
        """Return positions of the tensors that some routines select."""
        every = range(self._count)
        chosen = {i for a in actions for i in (every if a.indices is None else a.indices)}
        if any(action.original for action in actions):
            chosen.update(every)
        if self.point is Point.BEFORE_OP:  # given as the routine before has left them
            chosen |= {ask.index for a in actions for ask in a.asked if ask.what == "inputs"}
        return chosen

    @property
    def is_forward(self) -> bool:
        """Tell whether they run before, after or in place of an operator."""
        return self.point in _FORWARD

    def fix(self, positions: Sequence[int], why: str = _FIXED) -> None:
        """Have no routine before or after the operator replace the tensors at some positions."""
        if not self.replaces:
            self._fixed |= dict.fromkeys(positions, why)
            self.results = {p: spec for p, spec in self.results.items() if p not in self._fixed}

    def keep(self, positions: Sequence[int], why: str) -> None:
        """Have no routine replace the tensors at some positions.

        Of routines on the host it is known only as they run whether they do.

        Raises:
            UnsupportedError: others do, or take the place of the operator.
        """
        if self.pure is None and not self.replaces:
            self.fix(positions, why)
        elif not set(positions).isdisjoint(self.changed):
            tool = self.actions[0].tool.name
            raise UnsupportedError(f"{tool}: {self.operator.named} cannot be changed: {why}")

    @property
    def key(self) -> tuple[Any, ...]:
        """Return a key that is equal for stages that lead to the same nodes."""
        kind = "host" if self.pure is None else self.pure.digest
        return (
            self.frame,
            self.anchor,
            self.point,
            tuple(self.given),
            tuple(self.results),
            tuple(asked.wanted for asked in self.asked.values()),
            self.replaces,
            kind,
        )

    @property
    def on_gradient(self) -> bool:
        """Tell whether the routines run on gradients of an operator as a whole."""
        return self.point in (Point.ON_GRAD_OUTPUTS, Point.ON_GRAD_INPUTS)

    @property
    def changed(self) -> Iterable[int]:
        """Return positions of the tensors that the stage's node returns."""
        return self.results if self.pure is None else self.pure.changed

    def run(self, given: Sequence[Any]) -> list[Any]:
        """Run the routines.

        Args:
            given: the tensors at the positions of :attr:`given`, and those that are
                :attr:`asked` for.

        Returns:
            The tensors at the positions of :attr:`results`.

        Raises:
            RoutineError: a routine failed, or returned what cannot be used.
        """
        count = len(self.given)
        at = dict(zip(self.given, given[:count], strict=True))
        forward = self._forward(at, given[count:]) if self.asked or self.rerun else _NOTHING
        run = self._replacement if self.replaces else self._chain
        if active.engine is None:  # as in TensorFlow's own threads: nobody sees what it runs
            return run(at, forward)
        with active.paused():
            return run(at, forward)

    def _forward(self, at: Mapping[int, Any], asked: Sequence[Any]) -> Forward:
        """Return what the routines may ask for, and what runs the operator itself."""
        rerun: Callable[[Sequence[Any]], Sequence[Any]] | None = self.rerun
        if self.rerun is not None and self._externals:
            externals = [at[position] for position in self._externals]
            rerun = functools.partial(self.rerun, externals=externals)
        return Forward.of(dict(zip(self.asked, asked, strict=True)), rerun)

    def _chain(self, given: Mapping[int, Any], forward: Forward) -> list[Any]:
        """Run the routines one after the other."""
        state = State(given, self._count, self.rows)
        for action in self.actions:
            before = state.shown(action.whole)
            result = call_action(action, before, self.operator, forward)
            if result is not None:
                like = [self._replaceable(*at) for at in enumerate(before)]
                found = action.substituted(result, like, self.operator, _reason)
                both = zip(before, like, found, strict=True)
                after = [tensor if new is old else as_tensor(new) for tensor, old, new in both]
                state.replace(before, after, action.whole)
        return [state.result(position) for position in self.results]

    def _replaceable(self, position: int, tensor: Any) -> Replaceable | None:
        """Describe what may stand for a tensor; None for a gradient that does not flow.

        Nodes behind an operator were made for the shape that is known while the graph does not run,
        and take any that fits. A gradient has exactly the shape of the one that it replaces.
        """
        if tensor is None or position not in self.given:
            return None
        spec, why = self.given[position], self._fixed.get(position)
        if not is_replaceable(spec.dtype):
            why = why or _RESOURCE
        in_forward = self.point in (Point.BEFORE_OP, Point.AFTER_OP)
        shape = spec.shape if in_forward else tf.TensorShape(tensor.shape)
        return Replaceable(spec.dtype, shape, why, tensor)

    def _replacement(self, given: Mapping[int, Any], forward: Forward) -> list[Any]:
        """Run the one routine that takes the place of the operator."""
        (action,) = self.actions
        tensors = [given.get(position) for position in range(self._count)]
        like = [Replaceable(*spec) for spec in self.results.values()]
        result = call_action(action, tensors, self.operator, forward)
        values = action.substituted(result, like, self.operator, _reason)
        if any(isinstance(value, Replaceable) for value in values):
            raise action.error("returned None, which is no tensor", self.operator)
        return list(values)


def _reason(original: Replaceable | None, substitute: Any) -> str | None:
    """Tell why ``substitute`` cannot stand for ``original``; None if it can."""
    if original is not None and substitute is original.given:
        return None
    if original is not None and original.fixed is not None:
        return original.fixed
    reason = incompatible_reason(original, substitute)
    if reason is None and original is not None:
        reason = incompatible_shape(original.shape, substitute)
    return reason
