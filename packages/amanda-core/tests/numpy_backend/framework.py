"""A small eager deep-learning framework on NumPy: tensors, kernels, a tape, modules.

It knows nothing of Amanda. Like any framework that can be instrumented it has places to hook:
``thread.interceptor`` sees every call of a kernel, ``Node.backward`` may be wrapped, and
``thread.modules`` tells which modules are being called. :mod:`numpy_backend.staging` makes graphs
of what is computed while ``thread.graph`` is there.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy_backend.staging import Graph

Array = np.ndarray[Any, Any]
Arrays = tuple[Array, ...]
Tensors = Sequence["Tensor"]
Grads = Sequence["Tensor | None"]
Backward = Callable[[Grads], Grads]
Interceptor = Callable[["Kernel", Tensors, Mapping[str, Any]], Tensors]


class Kernel(NamedTuple):
    """An operator type.

    ``forward`` takes the input arrays and attributes, and gives a tuple of output arrays.
    ``backward`` takes the gradients of the outputs, then inputs, outputs and attributes, and
    gives a gradient for each input, None where there is none; it computes them by kernels, so
    that gradients have gradients.
    """

    name: str
    inputs: tuple[str, ...]
    forward: Callable[..., Arrays]
    backward: Callable[..., Grads] | None = None


class Tensor:
    """An array, and how it came about if gradients are to flow through it."""

    __slots__ = ("array", "index", "needs_gradient", "node")

    def __init__(self, array: Any, needs_gradient: bool = False) -> None:
        self.array = np.asarray(array)
        self.needs_gradient = needs_gradient
        self.node: Node | None = None
        self.index = 0

    def __add__(self, other: Any) -> Tensor:
        return add(self, other)

    def __mul__(self, other: Any) -> Tensor:
        return multiply(self, other)

    def __gt__(self, other: Any) -> Tensor:
        return call(_GREATER, self, other)

    def __getitem__(self, index: int) -> Tensor:
        return unstack(self)[index]


class Parameter(Tensor):
    """What a model learns; ``source`` is the array that the model keeps of it."""

    __slots__ = ("source",)

    def __init__(self, array: Array, needs_gradient: bool = False) -> None:
        super().__init__(array, needs_gradient)
        self.source = array


class Node:
    """One call of a kernel on the tape."""

    __slots__ = ("backward", "inputs", "outputs", "serial")

    _serials = itertools.count()

    def __init__(self, inputs: Tensors, outputs: int, backward: Backward) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.backward = backward
        self.serial = next(Node._serials)


class Run:
    """A call of an outermost module."""


class _Thread(threading.local):
    """What is going on in a thread.

    Attributes:
        interceptor: what runs kernels in place of :func:`execute`, if anything does.
        modules: those that are being called, the outermost first.
        run: the call of an outermost module that is going on, if one is.
        graph: what all that is computed is added to, if a function is being staged.
        key: what a graph that is staged now is good for: only where this gives the same again.
    """

    interceptor: Interceptor | None = None
    modules: tuple[Module, ...] = ()
    run: Run | None = None
    graph: Graph | None = None
    key: Callable[[], object] = staticmethod(lambda: None)


thread = _Thread()


def call(kernel: Kernel, *operands: Any, **attrs: Any) -> Any:
    """Call a kernel; numbers among the operands become tensors of the first one's dtype."""
    dtype = next((t.array.dtype for t in operands if isinstance(t, Tensor)), None)
    inputs = [t if isinstance(t, Tensor) else Tensor(np.asarray(t, dtype)) for t in operands]
    outputs = (thread.interceptor or execute)(kernel, inputs, attrs)
    return outputs[0] if len(outputs) == 1 else outputs


def execute(kernel: Kernel, inputs: Tensors, attrs: Mapping[str, Any]) -> Tensors:
    """Run a kernel and put it on the tape."""
    forward = functools.partial(kernel.forward, **attrs)
    outputs = [Tensor(result) for result in forward(*(tensor.array for tensor in inputs))]
    if thread.graph is not None:
        thread.graph.add(forward, inputs, outputs)
    if kernel.backward is not None and any(tensor.needs_gradient for tensor in inputs):
        needed = [tensor.needs_gradient for tensor in inputs]

        def backward(grads: Grads) -> Grads:
            outgoing = kernel.backward(grads, inputs, outputs, **attrs)
            return [grad if need else None for grad, need in zip(outgoing, needed, strict=True)]

        on_tape(outputs, inputs, backward)
    return outputs


def on_tape(outputs: Tensors, inputs: Tensors, backward: Backward) -> Tensors:
    """The outputs, whose gradients ``backward`` turns into those of the inputs."""
    node = Node(inputs, len(outputs), backward)
    for index, output in enumerate(outputs):
        output.needs_gradient, output.node, output.index = True, node, index
    return outputs


def gradients(output: Tensor, wrt: Tensors) -> list[Tensor | None]:
    """The gradients of the sum of ``output``, None where it does not depend on a tensor."""
    found: dict[int, Tensor] = {}
    waiting: dict[Node, list[Tensor | None]] = {}

    def added(known: Tensor | None, grad: Tensor) -> Tensor:
        return grad if known is None else _do(_ADD, known, grad)

    def accumulate(tensor: Tensor, grad: Tensor | None) -> None:
        if grad is None or not tensor.needs_gradient:
            return
        if tensor.node is None:
            found[id(tensor)] = added(found.get(id(tensor)), grad)
        else:
            grads = waiting.setdefault(tensor.node, [None] * tensor.node.outputs)
            grads[tensor.index] = added(grads[tensor.index], grad)

    accumulate(output, Tensor(np.ones_like(output.array)))
    while waiting:
        node = max(waiting, key=lambda node: node.serial)  # all that use its outputs came later
        for tensor, grad in zip(node.inputs, node.backward(waiting.pop(node)), strict=True):
            accumulate(tensor, grad)
    return [found.get(id(tensor)) for tensor in wrt]


class Module:
    """A part of a model; parts that are its attributes carry their names."""

    name = ""

    def __setattr__(self, attribute: str, value: Any) -> None:
        if isinstance(value, Module):
            value.name = attribute
        super().__setattr__(attribute, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward``."""
        around = thread.modules
        if not around:
            thread.run = Run()
        thread.modules = (*around, self)
        try:
            return self.forward(*args, **kwargs)
        finally:
            thread.modules = around
            if not around:
                thread.run = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def _do(kernel: Kernel, *inputs: Tensor, **attrs: Any) -> Tensor:
    """Run a kernel within another one's backward, where nobody looks."""
    return execute(kernel, inputs, attrs)[0]


def _zeros(like: Tensor) -> Tensor:
    return _do(_ZEROS_LIKE, like)


def _transposed(x: Tensor) -> Tensor:
    return _do(_MATRIX_TRANSPOSE, x)


def _product(x: Tensor, y: Tensor, like: Tensor) -> Tensor:
    """A gradient of an operand that may have been broadcast."""
    return _summed(_do(_MULTIPLY, x, y), like)


def _summed(grad: Tensor, like: Tensor) -> Tensor:
    """The gradient of an operand that may have been broadcast."""
    shape = like.array.shape
    return grad if grad.array.shape == shape else _do(_SUM_TO, grad, shape=shape)


def _sum_to(x: Array, shape: tuple[int, ...]) -> Arrays:
    x = x.sum(tuple(range(x.ndim - len(shape))))
    stretched = [axis for axis, size in enumerate(shape) if size != x.shape[axis]]
    return (x.sum(tuple(stretched), keepdims=True),)


def _sigmoid_backward(grads: Grads, inputs: Tensors, outputs: Tensors) -> Grads:
    (y,) = outputs
    one, minus = Tensor(np.ones_like(y.array)), Tensor(np.asarray(-1, y.array.dtype))
    derivative = _do(_MULTIPLY, y, _do(_ADD, one, _do(_MULTIPLY, y, minus)))
    return [_do(_MULTIPLY, grads[0], derivative)]


def _unstack_backward(grads: Grads, inputs: Tensors, outputs: Tensors, axis: int) -> Grads:
    parts = [_zeros(o) if g is None else g for g, o in zip(grads, outputs, strict=True)]
    return [_do(_STACK, *parts, axis=axis)]


_MATMUL = Kernel(
    "matmul",
    ("a", "b"),
    lambda a, b: (a @ b,),
    lambda gs, ins, outs: (
        _do(_MATMUL, gs[0], _transposed(ins[1])),
        _do(_MATMUL, _transposed(ins[0]), gs[0]),
    ),
)
_ADD = Kernel(
    "add",
    ("a", "b"),
    lambda a, b: (a + b,),
    lambda gs, ins, outs: [_summed(gs[0], x) for x in ins],
)
_MULTIPLY = Kernel(
    "multiply",
    ("a", "b"),
    lambda a, b: (a * b,),
    lambda gs, ins, outs: (_product(gs[0], ins[1], ins[0]), _product(gs[0], ins[0], ins[1])),
)
_RELU = Kernel(
    "relu",
    ("x",),
    lambda x: (np.maximum(x, 0),),
    lambda gs, ins, outs: (
        _do(_WHERE, _do(_GREATER, ins[0], _zeros(ins[0])), gs[0], _zeros(gs[0])),
    ),
)
_SIGMOID = Kernel("sigmoid", ("x",), lambda x: (1 / (1 + np.exp(-x)),), _sigmoid_backward)
_WHERE = Kernel(
    "where",
    ("condition", "a", "b"),
    lambda c, a, b: (np.where(c, a, b),),
    lambda gs, ins, outs: (
        None,
        _do(_WHERE, ins[0], gs[0], _zeros(gs[0])),
        _do(_WHERE, ins[0], _zeros(gs[0]), gs[0]),
    ),
)
_UNSTACK = Kernel(
    "unstack",
    ("x",),
    lambda x, axis: tuple(np.moveaxis(x, axis, 0)),
    _unstack_backward,
)
_STACK = Kernel(
    "stack",
    ("parts",),
    lambda *parts, axis: (np.stack(parts, axis),),
    lambda gs, ins, outs, axis: execute(_UNSTACK, gs, {"axis": axis}),
)
_MATRIX_TRANSPOSE = Kernel(
    "matrix_transpose",
    ("x",),
    lambda x: (np.swapaxes(x, -1, -2),),
    lambda gs, ins, outs: (_transposed(gs[0]),),
)
_SUM_TO = Kernel(
    "sum_to",
    ("x",),
    _sum_to,
    lambda gs, ins, outs, shape: (_do(_BROADCAST_TO, gs[0], shape=ins[0].array.shape),),
)
_BROADCAST_TO = Kernel(
    "broadcast_to",
    ("x",),
    lambda x, shape: (np.broadcast_to(x, shape),),
    lambda gs, ins, outs, shape: (_summed(gs[0], ins[0]),),
)
_ABS = Kernel(
    "abs",
    ("x",),
    lambda x: (np.abs(x),),
    lambda gs, ins, outs: (_do(_MULTIPLY, gs[0], _do(_SIGN, ins[0])),),
)
_SIGN = Kernel("sign", ("x",), lambda x: (np.sign(x),))
_GREATER = Kernel("greater", ("a", "b"), lambda a, b: (a > b,))
_ZEROS_LIKE = Kernel("zeros_like", ("x",), lambda x: (np.zeros_like(x),))
_DETACH = Kernel("detach", ("x",), lambda x: (x,))
_RANGE = Kernel("range", (), lambda stop: (np.arange(stop, dtype=np.float32),))


def matmul(a: Tensor, b: Tensor) -> Tensor:
    return call(_MATMUL, a, b)


def add(a: Tensor, b: Any) -> Tensor:
    return call(_ADD, a, b)


def multiply(a: Tensor, b: Any) -> Tensor:
    return call(_MULTIPLY, a, b)


def relu(x: Tensor) -> Tensor:
    return call(_RELU, x)


def sigmoid(x: Tensor) -> Tensor:
    return call(_SIGMOID, x)


def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return call(_WHERE, condition, a, b)


def unstack(x: Tensor, axis: int = 0) -> list[Tensor]:
    return call(_UNSTACK, x, axis=axis)


def matrix_transpose(x: Tensor) -> Tensor:
    return call(_MATRIX_TRANSPOSE, x)


def abs(x: Tensor) -> Tensor:
    return call(_ABS, x)


def zeros_like(x: Tensor) -> Tensor:
    return call(_ZEROS_LIKE, x)


def range_(stop: int) -> Tensor:
    return call(_RANGE, stop=stop)


def detached(x: Tensor) -> Tensor:
    """The same value, apart from the tape."""
    return _do(_DETACH, x)
