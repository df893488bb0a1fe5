"""Has the conformance suite drive the framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import numpy as np
from amanda.testing import Adapter, Model, Program, Step

from numpy_backend import framework
from numpy_backend.driver import driver
from numpy_backend.framework import Module, Parameter, Tensor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

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


class NumpyModel(Model):
    def __init__(self, program: Program, parameters: Mapping[str, Array]) -> None:
        self._network = Network(program)
        self._parameters = {name: array.copy() for name, array in parameters.items()}

    def forward(self, inputs: Mapping[str, Array], switches: Collection[str] = ()) -> Array:
        return self._network(self._values(inputs), switches).array

    def gradients(
        self, wrt: Sequence[str], inputs: Mapping[str, Array], switches: Collection[str] = ()
    ) -> dict[str, Array]:
        values = self._values(inputs, wrt)
        output = self._network(values, switches)
        found = framework.gradients(output, [values[name] for name in wrt])
        return self._arrays(values, wrt, found)

    def second_gradients(
        self, of: str, wrt: Sequence[str], inputs: Mapping[str, Array]
    ) -> dict[str, Array]:
        values = self._values(inputs, [of, *wrt])
        (first,) = framework.gradients(self._network(values, ()), [values[of]])
        found = framework.gradients(first, [values[name] for name in wrt])
        return self._arrays(values, wrt, found)

    def _values(self, inputs: Mapping[str, Array], wrt: Sequence[str] = ()) -> dict[str, Tensor]:
        values = {name: Tensor(a, name in wrt) for name, a in inputs.items()}
        values |= {name: Parameter(a, name in wrt) for name, a in self._parameters.items()}
        return values

    @staticmethod
    def _arrays(
        values: Mapping[str, Tensor], wrt: Sequence[str], found: Sequence[Tensor | None]
    ) -> dict[str, Array]:
        return {
            name: np.zeros_like(values[name].array) if grad is None else grad.array
            for name, grad in zip(wrt, found, strict=True)
        }

    def train(self, mode: bool) -> None:
        self._network.training = mode

    def parameter(self, name: str) -> Array:
        return self._parameters[name]


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

    def build(self, program: Program, parameters: Mapping[str, Array]) -> NumpyModel:
        return NumpyModel(program, parameters)

    def tensor(self, array: Array) -> Tensor:
        return Tensor(array)

    def array(self, tensor: Tensor) -> Array:
        return tensor.array
