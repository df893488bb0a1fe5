"""Has the conformance suite drive PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from amanda.testing import Adapter, Model, Program, Step
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

Array = np.ndarray[Any, Any]
FUNCTIONS = {
    "matmul": torch.matmul,
    "add": torch.add,
    "multiply": torch.mul,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "select": torch.where,
    "unstack": torch.unbind,
    "relu_": torch.relu_,
    "range": lambda: torch.arange(3, dtype=torch.float32),
}


class Layer(nn.Module):
    """A layer of a program."""

    def forward(self, step: Step, operands: Sequence[Tensor]) -> Sequence[Tensor]:
        result = FUNCTIONS[step.kind](*operands)
        return [result] if isinstance(result, Tensor) else result


class Network(nn.Module):
    """A program as a module."""

    def __init__(self, program: Program, parameters: Mapping[str, Array]) -> None:
        super().__init__()
        self._program = program
        self.values = nn.ParameterDict(
            {name: nn.Parameter(torch.tensor(array)) for name, array in parameters.items()}
        )
        self.layers = nn.ModuleDict({step.layer: Layer() for step in program.steps})

    def forward(self, inputs: Mapping[str, Tensor], switches: Collection[str]) -> Tensor:
        def call(step: Step, operands: list[Tensor]) -> Sequence[Tensor]:
            return self.layers[step.layer](step, operands)

        return self._program.run(call, {**self.values, **inputs}, switches)


class Act(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)


class Body(nn.Module):
    def __init__(self, w: nn.Parameter) -> None:
        super().__init__()
        self.w = w
        self.act = Act()

    def forward(self, x: Tensor, shift: Tensor) -> dict[str, Any]:
        total = x @ self.w + shift
        return {"sum": total, "twice": [self.act(self.act(total))]}


class Net(nn.Module):
    """The nested modules of the suite."""

    def __init__(self, parameters: Mapping[str, Array]) -> None:
        super().__init__()
        self.values = nn.ParameterDict(
            {name: nn.Parameter(torch.tensor(array)) for name, array in parameters.items()}
        )
        self.body = Body(self.values["w"])

    def forward(self, inputs: Mapping[str, Tensor], switches: Collection[str]) -> Tensor:
        found = self.body(inputs["x"], shift=inputs["shift"])
        return found["twice"][0] * found["sum"]


class TorchModel(Model):
    def __init__(self, network: Network | Net) -> None:
        self._network = network

    def forward(self, inputs: Mapping[str, Array], switches: Collection[str] = ()) -> Array:
        tensors = {name: torch.tensor(array) for name, array in inputs.items()}
        with torch.no_grad():
            return self._network(tensors, switches).numpy()

    def gradients(
        self, wrt: Sequence[str], inputs: Mapping[str, Array], switches: Collection[str] = ()
    ) -> dict[str, Array]:
        values, output = self._output(inputs, wrt, switches)
        return self._differentiate(output, values, wrt)

    def second_gradients(
        self, of: str, wrt: Sequence[str], inputs: Mapping[str, Array]
    ) -> dict[str, Array]:
        values, output = self._output(inputs, [of, *wrt])
        (first,) = torch.autograd.grad(output, [values[of]], create_graph=True)
        return self._differentiate(first.sum(), values, wrt)

    def _output(
        self, inputs: Mapping[str, Array], wrt: Sequence[str], switches: Collection[str] = ()
    ) -> tuple[dict[str, Tensor], Tensor]:
        """All values by name, those in ``wrt`` in need of a gradient, and the output's sum."""
        tensors = {name: torch.tensor(array) for name, array in inputs.items()}
        values = {**self._network.values, **tensors}
        for name, value in values.items():
            value.requires_grad_(name in wrt)
        with torch.enable_grad():  # also within a routine, which is not differentiated
            return values, self._network(tensors, switches).sum()

    @staticmethod
    def _differentiate(
        output: Tensor, values: Mapping[str, Tensor], wrt: Sequence[str]
    ) -> dict[str, Array]:
        found = torch.autograd.grad(
            output, [values[name] for name in wrt], allow_unused=True, materialize_grads=True
        )
        # The zeros that PyTorch 2.8 gives for what was not used need a gradient themselves.
        return {name: grad.detach().numpy() for name, grad in zip(wrt, found, strict=True)}

    def train(self, mode: bool) -> None:
        self._network.train(mode)

    def parameter(self, name: str) -> Array:
        return self._network.state_dict()[f"values.{name}"].numpy()

    def holding_parameters(self) -> nn.Module:
        return self._network


class TorchAdapter(Adapter):
    backend = "torch"
    vocabulary = "torch"
    types = {kind: kind for kind in FUNCTIONS} | {
        "multiply": "mul",
        "select": "where",
        "unstack": "unbind",
        "range": "arange",
    }
    input_names = {"matmul": ("self", "other")}
    attrs = {"unstack": {"dim": 0}}
    eager = True
    differentiable = True
    none_for_unneeded_inputs = True
    none_for_unused_outputs = True

    def build(self, program: Program, parameters: Mapping[str, Array]) -> TorchModel:
        return TorchModel(Network(program, parameters))

    def nested(self, parameters: Mapping[str, Array]) -> TorchModel:
        return TorchModel(Net(parameters))

    def tensor(self, array: Array) -> Tensor:
        return torch.tensor(array)

    def array(self, tensor: Tensor) -> Array:
        return tensor.detach().numpy()
