"""Calls of layers are noted while a graph is built: of which layer, with which tensors and nodes.

A layer is one of Keras, or a ``tf.Module`` whose call opens its name scope. Its nodes are those
that were made between the beginning and the end of the call.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import weakref
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from amanda.driving import leaves, tensors_in, with_tensors_in

from amanda_tensorflow._internals import (
    composite_tensor,
    context,
    ops,
    tensor_lib,
    tf_decorator,
    tf_stack,
)
from amanda_tensorflow.notes import last_id, notes_of
from amanda_tensorflow.notes.copying import copy_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from amanda_tensorflow.graph.operators import TensorFlowOperator

    Named = tuple[str, Any]
    """Where a tensor is in what a layer takes or gives, and it."""

# A loss may look for the logits behind these, so that nothing is put after them.
_PROBABILITIES = frozenset(["Sigmoid", "Softmax"])
_KERAS_KEEPS = ("_keras_mask", "_keras_logits")
_PLAIN = (bool, int, float, str, type(None))
_calls = itertools.count()
_numbers = itertools.count()
_number_of: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


class LayerCall:
    """This is one call of a layer.

    Attributes:
        type: its class.
        outer, name: the name scope around it, as the graph has that, and its own within that.
        layer: weak reference to it.
        number: one that no other layer ever has.
        began: which call of all it is.
        made: range of the ids of the nodes that were made for it.
        inputs, outputs: where in what it takes and gives each tensor is, and the name of that; for
            one of a graph around this one, its name and the number of that graph.
        attrs: what else it takes, as far as these are plain values.
        told_apart: for each output, whether nobody but who has it from this call reads it.
        traceback: where the program calls it.
        operator: what tools see of it, if they do; who runs it keeps it.
    """

    def __init__(self, layer: Any, outer: str, name: str, graph: Any) -> None:
        self.type = type(layer).__name__
        self.outer, self.name = outer, name
        self.layer = weakref.ref(layer)
        self.number = _number(layer)
        self.began = next(_calls)
        self.made = (last_id(graph),) * 2
        self.inputs: list[tuple[str, str | tuple[str, int]]] = []
        self.outputs: list[tuple[str, str]] = []
        self.attrs: dict[str, Any] = {}
        self.told_apart: list[bool] = []
        self.traceback = tf_stack.extract_stack()
        self.operator: Callable[[], TensorFlowOperator | None] = lambda: None

    def begin(self, given: Iterable[Named], graph: Any) -> None:
        """Take note of what the layer is given."""
        for argument, tree in given:
            for name, leaf in leaves(tree, argument):
                if isinstance(leaf, _PLAIN):
                    self.attrs[name] = leaf
            for name, tensor in _tensors(tree, argument):
                if not isinstance(tensor, tf.__internal__.EagerTensor):
                    place = tensor.name, notes_of(tensor.graph).number
                    self.inputs.append((name, tensor.name if tensor.graph is graph else place))

    def end(self, result: Any, graph: Any) -> Any:
        """Take note of what the layer gives, and return that.

        A tensor that it has from elsewhere, or gives twice, is given as a tensor of its own: else
        nobody could tell who reads it for the layer's result.
        """
        tensors = tensors_in(result, _is_tensor)
        own = self._are_own(tensors, graph)
        if not all(own):
            made = [
                tensor if is_own or not _may_be_copied(tensor) else _copy(tensor)
                for tensor, is_own in zip(tensors, own, strict=True)
            ]
            result = with_tensors_in(result, made, _is_tensor)
        found = [
            (name, tensor)
            for name, tensor in _tensors(result, _name_of(result))
            if not isinstance(tensor, tf.__internal__.EagerTensor) and tensor.graph is graph
        ]
        self.outputs = [(name, tensor.name) for name, tensor in found]
        self.told_apart = self._are_own([tensor for _, tensor in found], graph)
        self.made = self.made[0], last_id(graph)
        return result

    def _are_own(self, tensors: Sequence[Any], graph: Any) -> list[bool]:
        """Tell for each tensor whether this call made it, and it comes here for the first time."""
        seen: set[int] = set()
        own = []
        for tensor in tensors:
            is_here = not isinstance(tensor, tf.__internal__.EagerTensor) and tensor.graph is graph
            own.append(is_here and tensor.op._id > self.made[0] and id(tensor) not in seen)
            seen.add(id(tensor))
        return own


def _may_be_copied(tensor: Any) -> bool:
    if isinstance(tensor, tf.__internal__.EagerTensor) or tensor.dtype in (tf.resource, tf.variant):
        return False
    return tensor.op.type not in _PROBABILITIES


def _copy(tensor: Any) -> Any:
    copy = copy_of(tensor)
    for name in _KERAS_KEEPS:
        if hasattr(tensor, name):
            setattr(copy, name, getattr(tensor, name))
    return copy


def _number(layer: Any) -> int:
    try:
        return _number_of.setdefault(layer, next(_numbers))
    except TypeError:  # it has no hash
        return next(_numbers)


def noting_layers(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``Layer.__call__`` of Keras, of whatever class, to note calls of layers."""

    @functools.wraps(call)
    def wrapped(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if context.executing_eagerly():
            return call(layer, *args, **kwargs)
        graph = ops.get_default_graph()
        names = getattr(layer, "_call_signature", None)
        noted = LayerCall(layer, (graph._name_stack or "").rstrip("/"), layer.name, graph)
        noted.begin(_arguments(names, args, kwargs), graph)
        result = noted.end(call(layer, *args, **kwargs), graph)
        notes_of(graph).layers.append(noted)
        return result

    return wrapped


def noting_modules(with_name_scope: Callable[..., Any]) -> Any:
    """Wrap ``tf.Module.with_name_scope``, which makes the call of a module open its name scope."""

    @functools.wraps(with_name_scope)
    def wrapped(method: Callable[..., Any]) -> Any:
        scoped = with_name_scope(method)
        if getattr(method, "__name__", "") != "__call__":
            return scoped
        names = inspect.signature(method)

        @functools.wraps(scoped)
        def noting(module: Any, *args: Any, **kwargs: Any) -> Any:
            if context.executing_eagerly():
                return scoped(module, *args, **kwargs)
            graph = ops.get_default_graph()
            outer, _, name = module.name_scope.name.rstrip("/").rpartition("/")
            noted = LayerCall(module, outer, name, graph)
            noted.begin(_arguments(names, args, kwargs, bound=True), graph)
            result = noted.end(scoped(module, *args, **kwargs), graph)
            notes_of(graph).layers.append(noted)
            return result

        return tf_decorator.make_decorator(method, noting)

    return staticmethod(wrapped)


def _arguments(
    signature: inspect.Signature | None, args: Any, kwargs: Any, bound: bool = False
) -> Iterator[Named]:
    """List arguments by the names of the parameters that they are for."""
    parameters = [] if signature is None else list(signature.parameters.values())[bound:]
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    for place, argument in enumerate(args):
        name = names[place] if place < len(names) else f"{variadic}.{place - len(names)}"
        yield name, argument
    yield from kwargs.items()


def _tensors(tree: Any, name: str) -> Iterator[Named]:
    """List the tensors in a tree, in order, with the keys and indices that lead to each."""
    for path, leaf in leaves(tree, name):
        if _is_tensor(leaf):
            yield path, leaf
        elif isinstance(leaf, composite_tensor.CompositeTensor) and not _is_variable(leaf):
            parts = tf.nest.flatten(leaf, expand_composites=True)
            yield from ((f"{path}.{i}", part) for i, part in enumerate(parts) if _is_tensor(part))


def _name_of(result: Any) -> str:
    """Return what the names of results begin with: nothing where these have names of their own."""
    return "output" if isinstance(result, (tensor_lib.Tensor, tuple, list)) else ""


def _is_tensor(value: Any) -> bool:
    return isinstance(value, tensor_lib.Tensor)


def _is_variable(value: Any) -> bool:
    return isinstance(value, tf.Variable)
