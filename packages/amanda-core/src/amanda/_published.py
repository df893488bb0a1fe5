"""The names of the system that was published in 2024, kept so that its tools run.

``amanda.tool.apply`` is one too; it is in :mod:`amanda.tool`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amanda._observation import Observation
from amanda._operator import Operator

# Its namespaces, and the vocabularies they mean: None for that of whatever backend is at hand.
NAMESPACES = {
    "amanda": None,
    "amanda/pytorch": "torch",
    "pytorch": "torch",
    "amanda/tensorflow": "tensorflow",
}
# What it called backends.
_BACKENDS = {"torch": "pytorch"}
# What its contexts had as entries, which live as long as what they show.
_ENTRIES = ("op", "backward_op", "inputs", "outputs", "grad_outputs", "grad_inputs")


def published_backend(backend: str) -> str:
    """What the published system calls a backend."""
    return _BACKENDS.get(backend, backend)


class PublishedMethods(Observation):
    """The methods, and the entries, by which its contexts showed an operator."""

    __slots__ = ()

    def __missing__(self, key: str) -> Any:
        """``ctx["op"]`` and its like are what the context shows, unless a tool has set them."""
        if key in _ENTRIES:
            return getattr(self, key)
        raise KeyError(key)

    @property
    def namespace(self) -> str:
        """The backend, as mapping rules name it: ``pytorch``, ``tensorflow``."""
        return published_backend(self.op.backend)

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
