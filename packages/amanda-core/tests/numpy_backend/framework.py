"""A small eager deep-learning framework on NumPy: tensors, kernels, a tape, modules.

It knows nothing of Amanda. Like any framework that can be instrumented it has places to hook:
``thread.interceptor`` sees every call of a kernel, ``Node.backward`` may be wrapped, and
``thread.modules`` tells which modules are being called.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Grads = Sequence["Tensor | None"]
Backward = Callable[[Grads], Grads]
Interceptor = Callable[["Kernel", Sequence["Tensor"], Mapping[str, Any]], Sequence["Tensor"]]


class Kernel(NamedTuple):
    """An operator type.

    ``forward`` takes the input arrays and attributes, and gives a tuple of output arrays.
    ``backward`` takes the gradients of the outputs, then inputs, outputs and attributes, and
    gives a gradient for each input, None where there is none.
    """

    name: str
    inputs: tuple[str, ...]
    forward: Callable[..., tuple[Array, ...]]
    backward: Callable[..., Sequence[Array | None]] | None = None


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
    """What a model learns."""

    __slots__ = ()


class Node:
    """One call of a kernel on the tape."""

    __slots__ = ("backward", "inputs", "outputs", "serial")

    _serials = itertools.count()

    def __init__(self, inputs: Sequence[Tensor], outputs: int, backward: Backward) -> None:
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
    """

    interceptor: Interceptor | None = None
    modules: tuple[Module, ...] = ()
    run: Run | None = None


thread = _Thread()


def call(kernel: Kernel, *operands: Any, **attrs: Any) -> Any:
    """Call a kernel; numbers among the operands become tensors of the first one's dtype."""
    dtype = next(t for t in operands if isinstance(t, Tensor)).array.dtype
    inputs = [t if isinstance(t, Tensor) else Tensor(np.asarray(t, dtype)) for t in operands]
    outputs = (thread.interceptor or execute)(kernel, inputs, attrs)
    return outputs[0] if len(outputs) == 1 else outputs


def execute(kernel: Kernel, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> Sequence[Tensor]:
    """Run a kernel and put it on the tape."""
    arrays = [tensor.array for tensor in inputs]
    results = kernel.forward(*arrays, **attrs)
    outputs = [Tensor(result) for result in results]
    if kernel.backward is not None and any(tensor.needs_gradient for tensor in inputs):
        needed = [tensor.needs_gradient for tensor in inputs]

        def backward(grads: Grads) -> Grads:
            incoming = [None if grad is None else grad.array for grad in grads]
            outgoing = kernel.backward(incoming, arrays, results, **attrs)
            return [
                Tensor(grad) if need and grad is not None else None
                for grad, need in zip(outgoing, needed, strict=True)
            ]

        node = Node(inputs, len(outputs), backward)
        for index, output in enumerate(outputs):
            output.needs_gradient, output.node, output.index = True, node, index
    return outputs


def gradients(output: Tensor, wrt: Sequence[Tensor]) -> list[Tensor | None]:
    """The gradients of the sum of ``output``, None where it does not depend on a tensor."""
    found: dict[int, Tensor] = {}
    waiting: dict[Node, list[Tensor | None]] = {}

    def accumulate(tensor: Tensor, grad: Tensor | None) -> None:
        if grad is None or not tensor.needs_gradient:
            return
        if tensor.node is None:
            known = found.get(id(tensor))
            found[id(tensor)] = grad if known is None else Tensor(known.array + grad.array)
        else:
            grads = waiting.setdefault(tensor.node, [None] * tensor.node.outputs)
            before = grads[tensor.index]
            grads[tensor.index] = grad if before is None else Tensor(before.array + grad.array)

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


def _summed(grad: Array, like: Array) -> Array:
    """The gradient of an operand that was broadcast."""
    grad = grad.sum(tuple(range(grad.ndim - like.ndim)))
    stretched = [axis for axis, size in enumerate(like.shape) if size != grad.shape[axis]]
    return grad.sum(tuple(stretched), keepdims=True)


def _unstack_backward(
    grads: list[Array | None], inputs: list[Array], outputs: tuple[Array, ...], axis: int
) -> list[Array]:
    parts = [np.zeros_like(o) if g is None else g for g, o in zip(grads, outputs, strict=True)]
    return [np.stack(parts, axis)]


_MATMUL = Kernel(
    "matmul",
    ("a", "b"),
    lambda a, b: (a @ b,),
    lambda gs, ins, outs: (
        gs[0] @ ins[1].T,
        np.tensordot(ins[0], gs[0], 2 * (tuple(range(ins[0].ndim - 1)),)),
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
    lambda gs, ins, outs: (_summed(gs[0] * ins[1], ins[0]), _summed(gs[0] * ins[0], ins[1])),
)
_RELU = Kernel(
    "relu",
    ("x",),
    lambda x: (np.maximum(x, 0),),
    lambda gs, ins, outs: (np.where(ins[0] > 0, gs[0], 0),),
)
_SIGMOID = Kernel(
    "sigmoid",
    ("x",),
    lambda x: (1 / (1 + np.exp(-x)),),
    lambda gs, ins, outs: (gs[0] * outs[0] * (1 - outs[0]),),
)
_WHERE = Kernel(
    "where",
    ("condition", "a", "b"),
    lambda c, a, b: (np.where(c, a, b),),
    lambda gs, ins, outs: (None, np.where(ins[0], gs[0], 0), np.where(ins[0], 0, gs[0])),
)
_UNSTACK = Kernel(
    "unstack",
    ("x",),
    lambda x, axis: tuple(np.moveaxis(x, axis, 0)),
    _unstack_backward,
)
_MATRIX_TRANSPOSE = Kernel(
    "matrix_transpose",
    ("x",),
    lambda x: (np.swapaxes(x, -1, -2),),
    lambda gs, ins, outs: (np.swapaxes(gs[0], -1, -2),),
)
_ABS = Kernel(
    "abs",
    ("x",),
    lambda x: (np.abs(x),),
    lambda gs, ins, outs: (gs[0] * np.sign(ins[0]),),
)
_GREATER = Kernel("greater", ("a", "b"), lambda a, b: (a > b,))
_ZEROS_LIKE = Kernel("zeros_like", ("x",), lambda x: (np.zeros_like(x),))


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
