"""An analysis is one call of an analysis routine: what it is shown, and what it inserts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from amanda._contexts.action import Action
from amanda._drivers.driver import Driver
from amanda._drivers.tensors import Parameter
from amanda._operators.operator import Execution
from amanda._operators.points import View
from amanda._tools.tool import Tool

# The type of a backend's tensors, in a context of a tool that is written for one backend.
if TYPE_CHECKING:
    from typing_extensions import TypeVar  # which checkers have, and core need not

    TensorT = TypeVar("TensorT", default=Any)
else:
    from typing import TypeVar

    TensorT = TypeVar("TensorT")


class Layouts(NamedTuple):
    """These are the layouts in which a tool sees inputs and outputs; None, or none, as they are.

    A layout has ``to_canonical(array, xp)``, which turns what the backend has, and
    ``to_native(array, xp)``, which turns it back.
    """

    inputs: Sequence[Any]
    outputs: Sequence[Any]


@dataclass(slots=True, eq=False, repr=False)
class Analysis:
    """An analysis is one call of an analysis routine: what it sees, and has inserted so far.

    ``parameters`` says of each input whether it is a parameter of the model, and ``has_forward``
    whether the tensors of the forward side were kept for it.
    """

    driver: Driver
    tool: Tool
    view: View
    execution: Execution
    parameters: Sequence[bool]
    actions: list[Action] = field(default_factory=list, init=False)
    has_forward: bool = field(default=True, init=False)

    def value(self, index: int) -> Any:
        """Return an input as a NumPy array."""
        return as_numpy_has_it(self.driver.value(self.execution.inputs[index]))

    def parameter(self, index: int) -> Parameter | None:
        """Return the parameter that an input is or comes from; None if it is none."""
        return self.driver.parameter(self.execution.inputs[index])

    def places(self, index: int) -> Any:
        """Return where each element of an input lies in its parameter; None if not known."""
        stored = self.driver.stored(self.execution.inputs[index])
        return None if stored is None else stored.places()

    def native_input(self, index: int) -> int:
        """Return which of the inputs of the backend's operator an input is."""
        return index

    @property
    def layouts(self) -> Layouts:
        """Tell how the inputs and outputs are turned from what the backend has."""
        return Layouts((), ())

    def insert(self, action: Action) -> None:
        """Take an action; its indices are those of ``execution``."""
        self.driver.check_action(self.execution, action)
        self.actions.append(action)


def check_present(tensor: Any, asked: str) -> None:
    """Check that there is a tensor, of which a method of the context is asked for something."""
    if tensor is None:
        raise TypeError(
            f"{asked}(None): that input is absent, or no gradient flows there; leave out what is "
            "None"
        )


def as_numpy_has_it(array: Any) -> Any:
    """Cast an array of a type that a package has registered with NumPy to one that NumPy itself
    has."""
    if array.dtype.isbuiltin != 2:
        return array
    name = array.dtype.name
    return array.astype("float32" if "float" in name else "uint8" if "u" in name else "int8")
