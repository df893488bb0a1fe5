"""The names of the system that was published in 2024, kept so that its tools run.

``amanda.tool.apply`` is one too; it is in :mod:`amanda.tool`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amanda._observation import Observation
from amanda._operator import Operator

# Its namespaces, and the vocabularies they mean: None for that of whatever backend is at hand.
NAMESPACES = {"amanda": None, "amanda/pytorch": "torch", "amanda/tensorflow": "tensorflow"}


class PublishedMethods(Observation):
    """The methods by which its contexts showed an operator."""

    __slots__ = ()

    def get_op(self) -> Operator:
        """Same as :attr:`op`."""
        return self.op

    def get_op_id(self) -> str:
        """Same as :attr:`op_id`."""
        return self.op_id

    def get_backward_op(self) -> Operator | None:
        """Same as :attr:`backward_op`."""
        return self.backward_op

    def get_backward_op_id(self) -> str | None:
        """Same as :attr:`backward_op_id`."""
        return self.backward_op_id

    def get_inputs(self) -> Sequence[Any]:
        """Same as :attr:`inputs`."""
        return self.inputs

    def get_outputs(self) -> Sequence[Any]:
        """Same as :attr:`outputs`."""
        return self.outputs

    def get_grad_outputs(self) -> Sequence[Any]:
        """Same as :attr:`grad_outputs`."""
        return self.grad_outputs

    def get_grad_inputs(self) -> Sequence[Any]:
        """Same as :attr:`grad_inputs`."""
        return self.grad_inputs
