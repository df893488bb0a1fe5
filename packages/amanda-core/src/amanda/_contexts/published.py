"""The names of the system that was published in 2024 are kept, so that its tools run.

``amanda.tool.apply`` is one too; it is in :mod:`amanda.tool`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amanda._contexts.analysis import TensorT
from amanda._contexts.observation import Observation
from amanda._operators.operator import Operator

# What it called backends.
_BACKENDS = {"torch": "pytorch"}
# What its contexts had as entries, which live as long as what they show.
_ENTRIES = ("op", "backward_op", "inputs", "outputs", "grad_outputs", "grad_inputs")


class PublishedMethods(Observation[TensorT]):
    """A context shows an operator by these methods and entries too, as the published one did."""

    def __missing__(self, key: str) -> Any:
        """Return what the context shows for ``ctx["op"]`` and its like, where no tool set it."""
        if key in _ENTRIES:
            return getattr(self, key)
        raise KeyError(key)

    @property
    def namespace(self) -> str:
        """Return the backend as mapping rules name it: ``pytorch``, ``tensorflow``."""
        return _BACKENDS.get(self.op.backend, self.op.backend)

    @property
    def weight(self) -> int | None:
        """Return :attr:`weight_index`, by an earlier name."""
        return self.weight_index

    def get_op(self) -> Operator:
        """Return :attr:`op`."""
        return self.op

    def get_op_id(self) -> str:
        """Return :attr:`op_id`."""
        return self.op_id

    def get_backward_op(self) -> Operator | None:
        """Return :attr:`backward_op`."""
        return self.backward_op

    def get_backward_op_id(self) -> str | None:
        """Return :attr:`backward_op_id`."""
        return self.backward_op_id

    def get_inputs(self) -> Sequence[TensorT]:
        """Return :attr:`inputs`."""
        return self.inputs

    def get_outputs(self) -> Sequence[TensorT]:
        """Return :attr:`outputs`."""
        return self.outputs

    def get_grad_outputs(self) -> Sequence[TensorT | None]:
        """Return :attr:`grad_outputs`."""
        return self.grad_outputs

    def get_grad_inputs(self) -> Sequence[TensorT | None]:
        """Return :attr:`grad_inputs`."""
        return self.grad_inputs
