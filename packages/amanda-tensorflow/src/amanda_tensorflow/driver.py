"""The driver has TensorFlow's graphs obey tools; it is put together here."""

from __future__ import annotations

import contextlib
import functools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
from amanda import Driver, UnsupportedError
from amanda.driving import Patches, alike

from amanda_tensorflow import namespace, parameters, patches
from amanda_tensorflow.graph.identity import Identities
from amanda_tensorflow.graph.layers import layers_around
from amanda_tensorflow.graph.node_types import STRUCTURE
from amanda_tensorflow.graph.rows import shown_whole
from amanda_tensorflow.permanent import StoredVariable
from amanda_tensorflow.profiler import TensorFlowProfiler
from amanda_tensorflow.purposes import purpose
from amanda_tensorflow.routines.host_threads import Waiting
from amanda_tensorflow.routines.substitutes import as_tensor, incompatible_reason
from amanda_tensorflow.running import errors, stashed
from amanda_tensorflow.running.functions import Functions
from amanda_tensorflow.running.held import HeldFunctions
from amanda_tensorflow.running.instrumenting import Instrumenter
from amanda_tensorflow.running.sessions import Sessions
from amanda_tensorflow.thread import ThreadState, active, thread
from amanda_tensorflow.unseen import Unseen
from amanda_tensorflow.unseen.eager import EagerOperators
from amanda_tensorflow.unseen.gradients import UnseenGradients
from amanda_tensorflow.unseen.layers import UnseenLayers
from amanda_tensorflow.unseen.pipelines import Pipelines
from amanda_tensorflow.unseen.python_functions import PythonFunctions
from amanda_tensorflow.values import ToolVariable, Values, outside_of_graphs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from amanda import Operator
    from amanda.driving import Action, Alike, Engine, Execution, Held, Parameter, TensorInfo

    from amanda_tensorflow.notes.layers import LayerCall


_HELD = (
    "while compiled code is held to its operators, it runs as it is compiled, and other tools "
    "would have it run operator by operator; apply them in another scope"
)

# Layers of Keras that compute the weight of a layer within them.
_COMPUTING = frozenset(["SpectralNormalization"])

# What only gradients are made of. Inputs' gradients of convolutions are transposed ones elsewhere.
_GRADIENT = re.compile("(Grad|BackpropFilter)(?![a-z])")


class Suspended(NamedTuple):
    """This is what a thread was doing when a routine opened a scope."""

    state: ThreadState
    waiting: Waiting
    paused: bool  # whether tools see nothing: not in a routine at another framework's operator


class TensorFlowDriver(Driver):
    """The driver instruments what sessions run, and every call of a tf.function."""

    backend = "tensorflow"
    vocabulary = "tensorflow"
    tells_producers = True
    has_modules = True

    def __init__(self) -> None:
        self.identities = Identities()
        self._unseen = Unseen()
        self._eager = EagerOperators(self._unseen)
        self._layers = UnseenLayers(self._unseen)
        pipelines, python_functions = Pipelines(self._unseen), PythonFunctions(self._unseen)
        gradients = UnseenGradients(self._unseen)
        instrumenter = Instrumenter(
            self.identities, self._unseen, pipelines, python_functions, self._layers, gradients
        )
        functions, sessions = Functions(instrumenter, self._failed), Sessions(instrumenter)
        self._patches = Patches(
            lambda: patches.while_active(
                functions, sessions, self._eager, pipelines, python_functions
            )
        )
        stashed.hold_while_alive(self._patches)

    @property
    def xp(self) -> Any:
        """Return the array namespace of TensorFlow's tensors."""
        return namespace

    # What is active

    def activate(self, engine: Engine | None) -> None:
        """From now on this thread runs under ``engine``; None for no tools at all."""
        state = thread.state
        if engine is not None and state.holds:
            raise UnsupportedError(_HELD)
        before, state.engine = state.engine, engine
        if before is not None and before is not engine:
            self._eager.ends(before)
            self._layers.ends(before)
        if engine is not None:
            self._eager.begins(engine)
        self._patches.hold(engine is not None)
        active.put(engine)

    def suspend(self) -> Suspended:
        """Begin anew: the routine's scope knows nothing of the ones around it."""
        suspended = Suspended(thread.state, Waiting(), active.suspend())
        thread.state = ThreadState()
        return suspended

    def resume(self, suspended: Suspended, engine: Engine | None) -> None:
        """Go on in the routine."""
        self.activate(None)
        thread.state = suspended.state
        suspended.waiting.end()
        self.activate(engine)
        active.put(engine, suspended.paused)

    def _failed(self, error: Exception) -> None:
        """Have TensorFlow and Keras shorten an error's traceback, and leave the rest of it."""
        errors.mark(error)
        self._patches.add(errors.shortening())  # only now, since Keras may be imported late

    # What tools ask

    def unseen(self) -> str | None:
        """Tell why tools saw nothing of some operators: they ran eagerly."""
        return self._unseen.reason

    def value(self, tensor: Any) -> Any:
        """Return a tensor that is a variable or a constant, or a copy of one, as a NumPy array."""
        if isinstance(tensor, (tf.__internal__.EagerTensor, ToolVariable)):
            value = tensor.numpy()
            return (
                value
                if isinstance(value, np.ndarray)
                else np.array(value, tensor.dtype.as_numpy_dtype)
            )
        if thread.state.shown is None:
            raise Values.unavailable(tensor.name)
        return thread.state.shown.value(tensor)

    def variable(self, initial: Any, execution: Execution) -> Any:
        """Make a tf.Variable, outside of all graphs."""
        with outside_of_graphs():
            return ToolVariable(initial, trainable=False)

    def incompatible_reason(self, original: Any, substitute: Any) -> str | None:
        """Tell why ``substitute`` cannot stand for ``original``; None if it can."""
        return incompatible_reason(original, substitute)

    def as_tensor(self, substitute: Any) -> Any:
        """Return a variable or array as a tensor."""
        return as_tensor(substitute)

    def describe(self, tensor: Any) -> TensorInfo:
        """Tell shape, dtype, size and device of a tensor, as far as a symbolic one has them."""
        return parameters.describe(tensor)

    def is_parameter_itself(self, found: Any) -> bool:
        """Tell whether a tensor is the handle of a variable, or a reference variable."""
        return parameters.is_parameter_itself(found)

    def read_from(self, found: Any) -> Any:
        """Return what a tensor of a graph was read, captured, cast or viewed of."""
        return parameters.read_from(found)

    def is_computed_of_parameters(self, tensor: Any) -> bool:
        """Tell whether a tensor of a graph is computed of variables and constants alone."""
        return parameters.is_computed_of_parameters(tensor)

    def parameter_info(self, found: Any, tensor: Any) -> Parameter | None:
        """Return what tools are told of a variable."""
        return parameters.parameter_info(found, tensor)

    def stored(self, tensor: Any) -> StoredVariable:
        """Tell where the variable has the elements of a tensor."""
        return StoredVariable(tensor)

    def at_rest(self) -> AbstractContextManager[object]:
        """Open a block outside of all graphs."""
        return outside_of_graphs()

    def profiler(self) -> TensorFlowProfiler:
        """Return a profiler that uses ``tf.profiler``."""
        return TensorFlowProfiler()

    @contextlib.contextmanager
    def hold_compiled(self, alike: Alike, tell: Callable[[Held], None]) -> Iterator[None]:
        """Open a block in which functions compiled by XLA are compared with their operators."""
        functions = HeldFunctions(alike, tell)
        holding = Patches(lambda: patches.while_holding(functions))
        if thread.state.engine is not None or thread.state.holds:
            raise UnsupportedError(_HELD)
        thread.state.holds = True
        holding.hold(True)
        try:
            yield
        finally:
            holding.hold(False)
            thread.state.holds = False

    def purpose(self, operator: Operator) -> str:
        """Tell what an operator is there for, by the names that TensorFlow gives it."""
        return purpose(operator)

    def computes_parameter(self, operator: Operator) -> bool:
        """Tell whether an operator is a layer's own that computes the weight of one within it."""
        calls = self._layers_around(operator)
        return bool(calls) and calls[-1][1].type in _COMPUTING

    def gives_values(self, operator: Operator) -> bool:
        """Tell whether an operator writes to the memory that it gives."""
        return operator.type != "Empty"

    def modules(self, operator: Operator) -> Sequence[tuple[str, str]]:
        """List the paths and classes of the layers that an operator is in."""
        return [(scope, call.type) for scope, call in self._layers_around(operator)]

    def model(self, operator: Operator) -> object | None:
        """Return the outermost layer that an operator is in; None for one in none."""
        calls = self._layers_around(operator)
        return calls[0][1].layer() if calls else None

    @staticmethod
    def _layers_around(operator: Operator) -> list[tuple[str, LayerCall]]:
        """List the calls of layers around an operator that is being analyzed, with their paths."""
        shown = thread.state.shown
        return [] if shown is None else layers_around(shown.frame, operator)

    def is_parameter(self, tensor: Any) -> bool:
        """Tell whether a tensor is read from a variable, also through casts and views."""
        return tensor.dtype != tf.resource and self.parameter_behind(tensor) is not None

    def is_looked_up(self, tensor: Any, operator: Operator) -> bool:
        """Tell whether a tensor is the handle of a variable, of which an operator reads rows."""
        gathers = operator.type in ("ResourceGather", "ResourceGatherNd")
        return gathers and tensor.dtype == tf.resource and self.parameter_behind(tensor) is not None

    def to_layout(self, tensor: Any, layout: Callable[[Any], Any]) -> Any:
        """Make a symbolic tensor with the shape and type of this one in another layout."""
        with tf.Graph().as_default():
            like = tf.compat.v1.placeholder(tensor.dtype.base_dtype, tensor.shape)
            return layout(like)

    def whole(self, gradient: Any) -> Any:
        """Make a symbolic tensor like the whole of a gradient of which there are only some rows."""
        return shown_whole(gradient)

    def canonical_type(self, type: str) -> str:
        """Return the type of a node, given the function that makes one (``tf.raw_ops.Relu``)."""
        return type.rpartition("raw_ops.")[2]

    def alike(self, types: Collection[str]) -> Collection[str]:
        """List types of nodes that are spelled like those of these types that do not exist."""
        known = _known_types()
        return frozenset[str]().union(*(alike(type, known) for type in frozenset(types) - known))

    def is_backward_type(self, type: str) -> bool:
        """Tell whether it is a type of nodes that gradients alone are made of (``ReluGrad``)."""
        return _GRADIENT.search(type) is not None and type in _known_types()

    def check_action(self, execution: Execution, action: Action) -> None:
        """Refuse what cannot be carried out in a graph."""
        operator = execution.operator
        if action.differentiable:
            raise UnsupportedError(
                f"{action.tool.name}: TensorFlow graphs have their gradients already, a routine at "
                f"{operator.named} cannot be differentiated; give its gradient by "
                "add_inst_for_gradient instead"
            )
        if operator.type in STRUCTURE:
            raise UnsupportedError(
                f"{action.tool.name}: {operator.named} is an argument or carries control flow, "
                "nothing can be inserted there; choose the operators around it"
            )


@functools.cache
def _known_types() -> frozenset[str]:
    """All types of nodes that this version of TensorFlow has."""
    return frozenset(dir(tf.raw_ops))


driver = TensorFlowDriver()
