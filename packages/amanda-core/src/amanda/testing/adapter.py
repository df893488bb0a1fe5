"""An adapter is written by a driver's author, so that the conformance suite can drive a backend."""

from __future__ import annotations

import abc
import re
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from amanda import Operator
    from amanda.testing.program import Program

Array = npt.NDArray[Any]


class Model(abc.ABC):
    """A model is a program in a backend. Arrays go in and come out, with the dtype they have."""

    @abc.abstractmethod
    def forward(self, inputs: Mapping[str, Array], switches: Collection[str] = ()) -> Array:
        """Return the output for these inputs, with these switches on."""

    @abc.abstractmethod
    def gradients(
        self, wrt: Sequence[str], inputs: Mapping[str, Array], switches: Collection[str] = ()
    ) -> dict[str, Array]:
        """Return the gradients of the sum of the output, by the names of parameters and inputs.

        One call runs every operator of the program once forward and once backward. Nothing
        else is to need a gradient. Zeros stand for a gradient that does not flow at all.
        """

    def second_gradients(
        self, of: str, wrt: Sequence[str], inputs: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the gradients, by the names in ``wrt``, of the sum of the gradient for ``of``.

        That is the gradient of the sum of the output, differentiated once more. A backend that
        has none says so in ``lacks`` of its adapter.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def train(self, mode: bool) -> None:
        """Put the model in training mode or, for False, in evaluation mode."""

    @abc.abstractmethod
    def parameter(self, name: str) -> Array:
        """Return the current value of a parameter, as it would be saved."""

    def holding_parameters(self) -> Any:
        """Return what :meth:`amanda.Tool.make_permanent` is given in the backend.

        One whose parameters cannot be written to says so in ``lacks`` of its adapter.
        """
        raise NotImplementedError


class Adapter(abc.ABC):
    """An adapter drives a backend. It is built without arguments, once in each process.

    Attributes:
        backend: ``operator.backend`` of its operators.
        vocabulary: that of its driver.
        types: the operator type of each kind of step; see :mod:`amanda.testing.program`.
        input_names: the schema's names of the tensors that a kind takes, in order.
        attrs: attributes that a kind's operators have, with their values.
        eager: analysis sees concrete tensors. Otherwise a value that depends on the inputs of
            the model is unavailable.
        parameters_known: analysis sees the values of parameters. Otherwise they are unavailable,
            since they are inputs of what is staged.
        differentiable: the driver can differentiate routines. Otherwise it must refuse to, as one
            that is not eager must for those that run on the host.
        none_for_unneeded_inputs: an operator's gradient for an input from which nothing wanted
            depends is None. Otherwise it is computed all the same.
        none_for_unused_outputs: the gradient of an output that nothing uses is None. Otherwise
            it is zeros.
        one_in_loop: what is in a loop is one operator, which is executed in every turn. Otherwise
            the loop is the program's own, and there is an operator for each turn.
        lacks: why the backend cannot do what a class of the suite is about, by the name of the
            class. It is skipped for that reason. Allowed for those of
            :data:`amanda.testing.OPTIONAL`.
    """

    backend: ClassVar[str]
    vocabulary: ClassVar[str]
    types: ClassVar[Mapping[str, str]]
    input_names: ClassVar[Mapping[str, tuple[str, ...]]]
    attrs: ClassVar[Mapping[str, Mapping[str, object]]]
    eager: ClassVar[bool]
    parameters_known: ClassVar[bool] = True
    differentiable: ClassVar[bool]
    none_for_unneeded_inputs: ClassVar[bool]
    none_for_unused_outputs: ClassVar[bool]
    one_in_loop: ClassVar[bool] = False
    lacks: ClassVar[Mapping[str, str]] = {}

    @abc.abstractmethod
    def build(self, program: Program, parameters: Mapping[str, Array]) -> Model:
        """Build a new model with parameters of its own."""

    def nested(self, parameters: Mapping[str, Array]) -> Model:
        """Build a new model of nested modules of the classes ``Net``, ``Body`` and ``Act``.

        Those in it are called ``body`` and ``act``::

            class Act:  # the same one is called twice
                def call(self, x):
                    return sigmoid(x)

            class Body:  # which has the parameter w
                def call(self, x, shift):
                    sum = x @ w + shift
                    return {"sum": sum, "twice": [act(act(sum))]}

            class Net:
                def call(self, x, shift):
                    found = body(x, shift=shift)
                    return found["twice"][0] * found["sum"]

        A backend that shows no modules to tools says so in ``lacks``, and that is shown to be
        refused.

        Args:
            parameters: the value of ``w``. Inputs are ``x`` and ``shift``.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def tensor(self, array: Array) -> Any:
        """Return, for an array, a tensor that a routine may compute with and return."""

    @abc.abstractmethod
    def array(self, tensor: Any) -> Array:
        """Return the value of a tensor that a host routine was given."""

    def layer(self, operator: Operator) -> str:
        """Return the layer of the program that an operator is in."""
        return re.split(r"[./]", re.sub(r"#\d+", "", operator.scope))[-1]


def assert_close(actual: Array, expected: Array) -> None:
    """Assert that arrays are equal up to float32 rounding of numbers of order one."""
    np.testing.assert_allclose(actual, expected, rtol=2e-6, atol=1e-6)


def numbers(*shape: int, seed: int = 0) -> Array:
    """Draw random float32 multiples of 1/4 in (-2, 2), whose short sums and products are exact."""
    random = np.random.default_rng([seed, *shape])
    return (random.integers(-7, 8, shape) / 4).astype(np.float32)
