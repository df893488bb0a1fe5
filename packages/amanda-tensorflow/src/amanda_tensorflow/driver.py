"""The driver: has TensorFlow graphs obey the tools."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from amanda import AmandaError, Driver, UnsupportedError, ValueUnavailableError
from amanda.driving import alike

from amanda_tensorflow import namespace, replicas, routines, tracebacks
from amanda_tensorflow._internals import context
from amanda_tensorflow.eager import EagerOperators
from amanda_tensorflow.frames import Frame
from amanda_tensorflow.functions import Functions
from amanda_tensorflow.identity import STRUCTURE, Identities
from amanda_tensorflow.parameters import describe, is_parameter, parameter
from amanda_tensorflow.pipelines import Pipelines
from amanda_tensorflow.rows import shown_whole
from amanda_tensorflow.sessions import Sessions
from amanda_tensorflow.values import ToolVariable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from amanda.driving import Action, Engine, Execution, Parameter, TensorInfo

    from amanda_tensorflow.values import Values

    Patch = tuple[Any, str, Any, Any]  # where, which attribute, what it was, what it becomes


class _State:
    """What a thread is at: within a scope that a routine opens, it begins anew.

    Attributes:
        depth: how many such scopes are open.
        engine: the tools in force, None for none.
        showing: what tools are looking at.
    """

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.engine: Engine | None = None
        self.showing: tuple[Values, Any] | None = None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.state = _State()


class TensorFlowDriver(Driver):
    """Instruments what sessions run, and every call of a tf.function.

    Attributes:
        identities: the operators of all graphs.
        eager: notices operators that are in no graph.
        pipelines: notices operators in functions of tf.data.
        preparing: held while a graph is looked at, decided about and copied. Threads share graphs,
            functions and what is known of their operators, and may meet a new one at once.
    """

    backend = "tensorflow"
    vocabulary = "tensorflow"

    def __init__(self) -> None:
        self.identities = Identities()
        self.preparing = threading.RLock()
        self._thread = _Thread()
        self._patches: list[Patch] = []
        self._active: set[tuple[int, int]] = set()
        self._lock = threading.RLock()  # tensors may be freed while it is held
        self._functions = Functions(self)
        self._sessions = Sessions(self)
        self.eager = EagerOperators(self)
        self.pipelines = Pipelines(self)

    @property
    def xp(self) -> Any:
        """The array namespace of its tensors."""
        return namespace

    def activate(self, engine: Engine | None) -> None:
        """From now on this thread runs under ``engine``; None for no tools at all."""
        state = self._thread.state
        before, state.engine = state.engine, engine
        if before is not None and before is not engine:
            self.eager.left(before)
        with self._lock:
            if engine is None:
                self._active.discard((threading.get_ident(), state.depth))
            else:
                self._active.add((threading.get_ident(), state.depth))
        self.refresh()

    def suspend(self) -> tuple[_State, routines.OwnScope]:
        """Begin anew: the routine's scope knows nothing of the ones around it."""
        own, before = routines.OwnScope(), self._thread.state
        self._thread.state = _State(before.depth + 1)
        return before, own

    def resume(self, suspended: tuple[_State, routines.OwnScope], engine: Engine | None) -> None:
        """Go on in the routine."""
        self.activate(None)
        self._thread.state, own = suspended
        own.leave()
        if engine is not self._thread.state.engine:
            self.activate(engine)

    def refresh(self) -> None:
        """Intercept TensorFlow while a thread has tools or a gradient needs what they did."""
        with self._lock:
            intercept = bool(self._active) or self._functions.unfinished
            if intercept == bool(self._patches):
                return
            for owner, name, original, _ in self._patches:
                setattr(owner, name, original)
            self._patches = []
            if intercept:
                self._patches = [
                    *self._functions.patches(),
                    *self._sessions.patches(),
                    *self.eager.patches(),
                    *self.pipelines.patches(),
                    *replicas.patches(self),
                ]
                for owner, name, _, replacement in self._patches:
                    setattr(owner, name, replacement)

    def shorten_traceback(self, error: Exception) -> None:
        """Have TensorFlow and Keras shorten an error's traceback, and leave the rest of it."""
        if isinstance(error, AmandaError):
            tracebacks.mark(error)
        with self._lock:
            if self._patches:
                for patch in tracebacks.patches():
                    owner, name, _, replacement = patch
                    setattr(owner, name, replacement)
                    self._patches.append(patch)

    @contextlib.contextmanager
    def joined(self, engine: Engine | None) -> Iterator[None]:
        """Have this thread run under the tools of another one, which waits for it."""
        self._thread.state.engine = engine
        try:
            yield
        finally:
            self._thread.state.engine = None

    def engine(self) -> Engine | None:
        """The engine in force here; none while a tool's own code runs."""
        return None if routines.inside_routine() else self._thread.state.engine

    def unseen(self) -> str | None:
        """Why tools saw nothing of some operators: they ran eagerly."""
        return self.eager.unseen

    def value(self, tensor: Any) -> Any:
        """A tensor that is a variable or a constant, or a copy of one, as a NumPy array."""
        if isinstance(tensor, tf.__internal__.EagerTensor):
            return tensor.numpy()
        showing = self._thread.state.showing
        if showing is not None:
            values, where = showing
            frame = where if isinstance(where, Frame) else values.home(where)
            if tensor.graph is frame.graph:
                return values.of(frame, frame.tensor(tensor.name))
        raise ValueUnavailableError(f"the value of {tensor.name} is known only when it runs")

    def variable(self, initial: Any, execution: Execution) -> Any:
        """A tf.Variable, outside of all graphs."""
        with context.eager_mode(), tf.init_scope():
            return ToolVariable(initial, trainable=False)

    def incompatible_reason(self, original: Any, substitute: Any) -> str | None:
        """Why ``substitute`` cannot stand for ``original``; None if it can."""
        return routines.incompatible_reason(original, substitute)

    def describe(self, tensor: Any) -> TensorInfo:
        """Shape, dtype, size and device of a tensor, as far as a symbolic one has them."""
        return describe(tensor)

    def parameter(self, tensor: Any) -> Parameter | None:
        """The variable that a tensor is the handle of or is read from, also through casts and
        views."""
        return parameter(tensor)

    def is_parameter(self, tensor: Any) -> bool:
        """Whether a tensor is read from a variable, also through casts and views."""
        return is_parameter(tensor)

    def to_layout(self, tensor: Any, layout: Callable[[Any], Any]) -> Any:
        """A symbolic tensor that has the shape and type of this one, in another layout."""
        with tf.Graph().as_default():
            like = tf.compat.v1.placeholder(tensor.dtype.base_dtype, tensor.shape)
            return layout(like)

    def whole(self, gradient: Any) -> Any:
        """A symbolic tensor like the whole of a gradient, if there are only some rows of it."""
        return shown_whole(gradient)

    def canonical_type(self, type: str) -> str:
        """The type of a node for the name of the function that makes one (``tf.raw_ops.Relu``)."""
        return type.rpartition("raw_ops.")[2]

    def alike(self, type: str) -> Collection[str]:
        """Types of nodes that are spelled like one that there is not."""
        return () if hasattr(tf.raw_ops, type) else alike(type, frozenset(dir(tf.raw_ops)))

    def check_action(self, execution: Execution, action: Action) -> None:
        """Refuse what cannot be carried out in a graph."""
        operator = execution.operator
        if action.differentiable:
            raise UnsupportedError(
                f"{action.tool.name}: TensorFlow graphs have their gradients already, a routine at "
                f"{operator.id!r} cannot be differentiated; give its gradient by "
                "add_inst_for_gradient instead"
            )
        if operator.type in STRUCTURE:
            raise UnsupportedError(
                f"{action.tool.name}: {operator.id!r} is an argument or carries control flow, "
                "nothing can be inserted there; choose the operators around it"
            )

    def analyzing(self, values: Values) -> Callable[[Any], contextlib.AbstractContextManager[None]]:
        """A context manager within which tools look at operators of a frame or graph.

        Args:
            values: how to find out the values of variables.
        """

        @contextlib.contextmanager
        def show(where: Any) -> Iterator[None]:
            self._thread.state.showing = values, where
            try:
                with routines.tools_code():
                    yield
            finally:
                self._thread.state.showing = None

        return show


driver = TensorFlowDriver()
