"""Has the conformance suite drive the framework."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import amanda
import numpy as np
from amanda.testing import Adapter, Model, Program, Step

from numpy_backend import framework
from numpy_backend.driver import driver
from numpy_backend.framework import Module, Parameter, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    Values = Mapping[str, Tensor]
    Function = Callable[..., Sequence[Tensor]]

Array = np.ndarray[Any, Any]
FUNCTIONS = {
    "matmul": framework.matmul,
    "add": framework.add,
    "multiply": framework.multiply,
    "relu": framework.relu,
    "sigmoid": framework.sigmoid,
    "select": framework.where,
    "unstack": framework.unstack,
    "range": lambda: framework.range_(3),
}

amanda.register_driver(driver)


class Layer(Module):
    """A layer of a program."""

    def forward(self, step: Step, operands: Sequence[Tensor]) -> Sequence[Tensor]:
        result = FUNCTIONS[step.kind](*operands)
        return [result] if isinstance(result, Tensor) else result


class Network(Module):
    """A program as a module."""

    def __init__(self, program: Program) -> None:
        self._program = program
        for step in program.steps:
            setattr(self, step.layer, Layer())

    def forward(self, values: Mapping[str, Tensor], switches: Collection[str]) -> Tensor:
        def call(step: Step, operands: list[Tensor]) -> Sequence[Tensor]:
            return getattr(self, step.layer)(step, operands)

        return self._program.run(call, values, switches)


def output(network: Network, values: Values, switches: Collection[str]) -> Sequence[Tensor]:
    return [network(values, switches)]


def first(
    network: Network, values: Values, wrt: Sequence[str], switches: Collection[str]
) -> Sequence[Tensor]:
    """The gradients of the output."""
    return _differentiated(network(values, switches), values, wrt)


def second(network: Network, values: Values, of: str, wrt: Sequence[str]) -> Sequence[Tensor]:
    """The gradients of one of those."""
    (gradient,) = first(network, values, [of], ())
    return _differentiated(gradient, values, wrt)


def _differentiated(tensor: Tensor, values: Values, wrt: Sequence[str]) -> Sequence[Tensor]:
    chosen = [values[name] for name in wrt]
    return [
        Tensor(np.zeros_like(value.array)) if grad is None else grad
        for value, grad in zip(chosen, framework.gradients(tensor, chosen), strict=True)
    ]


class NumpyModel(Model):
    def __init__(self, program: Program, parameters: Mapping[str, Array]) -> None:
        self._parameters = {name: array.copy() for name, array in parameters.items()}
        self._network = network = Network(program)
        self._output, self._first, self._second = (
            self.prepared(functools.partial(function, network))
            for function in (output, first, second)
        )

    def prepared(self, function: Function) -> Function:
        """A function as it is to be called."""
        return function

    def forward(self, inputs: Mapping[str, Array], switches: Collection[str] = ()) -> Array:
        (output,) = self._output(self._values(inputs), tuple(switches))
        return output.array

    def gradients(
        self, wrt: Sequence[str], inputs: Mapping[str, Array], switches: Collection[str] = ()
    ) -> dict[str, Array]:
        found = self._first(self._values(inputs, wrt), tuple(wrt), tuple(switches))
        return {name: grad.array for name, grad in zip(wrt, found, strict=True)}

    def second_gradients(
        self, of: str, wrt: Sequence[str], inputs: Mapping[str, Array]
    ) -> dict[str, Array]:
        found = self._second(self._values(inputs, [of, *wrt]), of, tuple(wrt))
        return {name: grad.array for name, grad in zip(wrt, found, strict=True)}

    def _values(self, inputs: Mapping[str, Array], wrt: Sequence[str] = ()) -> Values:
        values = {name: Tensor(a, name in wrt) for name, a in inputs.items()}
        values |= {name: Parameter(a, name in wrt) for name, a in self._parameters.items()}
        return values

    def train(self, mode: bool) -> None:
        self._network.training = mode

    def parameter(self, name: str) -> Array:
        return self._parameters[name]

    def holding_parameters(self) -> list[Array]:
        return list(self._parameters.values())


class NumpyAdapter(Adapter):
    backend = "numpy"
    vocabulary = "numpy"
    types = {kind: kind for kind in FUNCTIONS} | {"select": "where"}
    input_names = {"matmul": ("a", "b")}
    attrs = {"unstack": {"axis": 0}}
    eager = True
    differentiable = True
    none_for_unneeded_inputs = True
    none_for_unused_outputs = True

    lacks = {"Modules": "the driver of the tutorial shows none"}

    def build(self, program: Program, parameters: Mapping[str, Array]) -> NumpyModel:
        return NumpyModel(program, parameters)

    def tensor(self, array: Array) -> Tensor:
        return Tensor(array)

    def array(self, tensor: Tensor) -> Array:
        return tensor.array
