"""Tools read and write variables here as operators are given them."""

from __future__ import annotations

import functools
import itertools
import weakref
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf
from amanda import UnsupportedError
from amanda.driving import Stored

from amanda_tensorflow._internals import context, execute, tensor_util
from amanda_tensorflow.graph.attributes import flat_attrs
from amanda_tensorflow.graph.gradients_by_name import is_gradient
from amanda_tensorflow.notes import notes_of
from amanda_tensorflow.parameters import handle_of, is_parameter_itself, parameter_info, read_from
from amanda_tensorflow.thread import thread
from amanda_tensorflow.values import outside_of_graphs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from amanda import Operator

    Array = np.ndarray[Any, Any]

# These operators leave each element where it is.
_KEEPING = frozenset(
    ("Cast", "EnsureShape", "Enter", "Identity", "IdentityN", "Placeholder", "ReadVariableOp")
)
_KEEPING |= {"StopGradient", "VarHandleOp", "Variable", "VariableV2"}
_LOOKUPS = frozenset(["Gather", "GatherNd", "GatherV2", "ResourceGather", "ResourceGatherNd"])
_PRODUCTS = ("BatchMatMul", "Conv", "DepthwiseConv2d", "Einsum", "MatMul", "SparseMatMul")


class _View(NamedTuple):
    """A view is an operator that shows a tensor in another form, apart from its graph.

    ``inputs`` has None for that tensor, and None is also for a constant that is not known.
    """

    type: str
    output: int
    outputs: int
    attrs: tuple[Any, ...]
    inputs: list[Array | None]
    position: int

    @classmethod
    def of(cls, shown: Any, viewed: Any) -> _View:
        operation = shown.op
        position = next(i for i, tensor in enumerate(operation.inputs) if tensor is viewed)
        inputs = [
            None if i == position else tensor_util.constant_value(tensor)
            for i, tensor in enumerate(operation.inputs)
        ]
        return cls(
            operation.type,
            shown.value_index,
            len(operation.outputs),
            flat_attrs(operation, T=tf.int64),
            inputs,
            position,
        )

    def __call__(self, elements: Any) -> Any:
        """Return what the operator shows of an eager tensor."""
        inputs = [
            elements if i == self.position else tf.constant(array)
            for i, array in enumerate(self.inputs)
        ]
        found = execute.execute(self.type, self.outputs, inputs, self.attrs, context.context())
        return found[self.output]

    @property
    def is_known(self) -> bool:
        return all(a is not None for i, a in enumerate(self.inputs) if i != self.position)


class StoredVariable(Stored):
    """This reads and writes what an operator is given, in the variable that has its elements.

    It is read, maybe cast to other types, and maybe seen in another form.
    """

    def __init__(self, tensor: Any) -> None:
        way = [tensor]
        while not is_parameter_itself(way[0]):
            way.insert(0, read_from(way[0]))
        self._source = weakref.ref(way[0])
        self._types = [t.dtype.base_dtype for t in way if t.dtype.base_dtype != tf.resource]
        self._views = [
            _View.of(shown, viewed)
            for viewed, shown in itertools.pairwise(way)
            if tf.is_symbolic_tensor(shown) and shown.op.type not in _KEEPING
        ]

        self._lookups, self._products = _taking(way)

    def taken_elsewhere(self, model: Any, seen: Sequence[Operator]) -> str | None:
        """Name an operator of the graph that takes the variable, beside those that were seen.

        A table is also looked up, or multiplied with, and a product with it is one of several.
        """
        looking_up = [operator for operator in seen if "Gather" in operator.type]
        unseen: list[str] = []
        if not looking_up:
            unseen += self._lookups
        if len(self._products) > len(seen) - len(looking_up):
            unseen += self._products.keys() - {operator.name for operator in seen}
        found = {**self._lookups, **self._products}
        return f"{unseen[0]} ({found[unseen[0]]})" if unseen else None

    def source(self, model: Any) -> Any:
        """Return the variable's handle or tensor, if the model has the variable."""
        return self._source() if self._variable(model) is not None else None

    def read(self, model: Any) -> Any:
        """Return what the operator is given.

        Raises:
            UnsupportedError: it is not known how that comes from the variable.
        """
        held = self._held(model)
        return self._given(held, self._places(held.shape))

    def _given(self, held: Array, places: Array) -> Any:
        tensor = tf.constant(held.reshape(-1)[places])
        for dtype in self._types:
            tensor = tf.cast(tensor, dtype)
        return tensor

    def write(self, model: Any, tensor: Any) -> Callable[[], None]:
        """Have the variable hold what the operator is to be given, where that is not so yet."""
        held = self._held(model)
        places = self._places(held.shape)
        changed = _bits(self._given(held, places)) != _bits(tensor)
        for dtype in self._types[::-1]:
            tensor = tf.cast(tensor, dtype)
        flat = held.reshape(-1).copy()
        flat[places.reshape(-1)[changed]] = np.asarray(tensor).reshape(-1)[changed]
        self._assign(model, flat.reshape(held.shape))
        return functools.partial(self._assign, model, held)

    def _assign(self, model: Any, value: Array) -> None:
        variable = self._variable(model)
        if _is_session(model):  # its graph may be finalized, and assign() adds a node
            initializer = variable.initializer
            model.run(initializer, {initializer.inputs[1]: value})
        else:
            variable.assign(value)

    def _held(self, model: Any) -> Array:
        variable = self._variable(model)
        return np.asarray(model.run(variable) if _is_session(model) else variable.numpy())

    def places(self) -> Array | None:
        """Return, for each element that the operator is given, its place in the flat variable."""
        source = self._source()
        held = None if source is None else parameter_info(source, source)
        shape = None if held is None else held.info.shape
        if shape is None or None in shape or not all(view.is_known for view in self._views):
            return None
        with outside_of_graphs():
            return self._numbers(shape) - 1

    def _places(self, shape: tuple[int, ...]) -> Array:
        """Find for each element that the operator is given its place in the variable."""
        found = self._numbers(shape) - 1
        if (found < 0).any():
            raise UnsupportedError("it is given a variable with a margin of zeros")
        return found

    def _numbers(self, shape: Sequence[Any]) -> Array:
        """Find which element of the variable each one is, from 1 on, or 0 in a margin."""
        tensor = tf.constant(np.arange(1, prod(shape) + 1).reshape(shape))
        for view in self._views:
            if not view.is_known:
                raise UnsupportedError(
                    f"it is given a variable through {view.type}, with arguments that are "
                    "known only when the graph runs"
                )
            tensor = view(tensor)
        found: Array = tensor.numpy()
        return found

    def _variable(self, model: Any) -> Any:
        source = self._source()
        for variable in _variables(model):
            if handle_of(variable) is source:
                return variable
        return None


def _taking(way: Iterable[Any]) -> tuple[dict[str, str], dict[str, str]]:
    """List the forward operators that run and take any of these tensors, or views of them.

    Returns:
        The types of those that look up rows, by name, and those of products.
    """
    waiting = [tensor for tensor in way if tf.is_symbolic_tensor(tensor)]
    met: set[int] = set()
    lookups: dict[str, str] = {}
    products: dict[str, str] = {}
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in met:
            continue
        met.add(id(tensor))
        for operation in tensor.consumers():
            waiting += [output for output in operation.outputs if read_from(output) is tensor]
            of_one = notes_of(operation.graph).vectorized  # others do what these would
            if operation.name in of_one or is_gradient(operation.name) or not _runs(operation):
                continue
            if operation.type in _LOOKUPS:
                lookups[operation.name] = operation.type
            elif operation.type.startswith(_PRODUCTS):
                products[operation.name] = operation.type
    return lookups, products


def _runs(operation: Any) -> bool:
    """Tell whether an operator runs in the call that tools look at, as far as it is known."""
    shown = thread.state.shown
    frame = None if shown is None else shown.frame
    if frame is None or frame.graph is not operation.graph:
        return True
    return frame.node(operation.name) in frame.running


def _bits(tensor: Any) -> Array:
    """Return the bits of each element of a tensor, as one item, which may be compared."""
    array = np.ascontiguousarray(tensor)
    return array.reshape(-1).view(f"V{array.itemsize}")


def _is_session(model: Any) -> bool:
    return hasattr(model, "graph") and hasattr(model, "run")


def _variables(model: Any) -> Iterable[Any]:
    """List the variables of a model: its own, those of a session's graph, or the ones of a list."""
    if _is_session(model):
        keys = tf.compat.v1.GraphKeys
        collections = (keys.GLOBAL_VARIABLES, keys.LOCAL_VARIABLES)
        return [variable for key in collections for variable in model.graph.get_collection(key)]
    found = getattr(model, "variables", model)
    if not isinstance(found, (list, tuple)):
        return ()
    # a variable of Keras holds one of TensorFlow
    return [v if isinstance(v, tf.Variable) else v.value for v in found if hasattr(v, "value")]
