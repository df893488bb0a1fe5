"""The rules of a map look at an operator in its backend's own names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda import ValueUnavailableError

from amanda_contextmap.schema import base

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amanda import Driver
    from amanda.driving import Execution


class Native:
    """A native operator is asked by name, and remembers what it was asked for.

    What cannot be told of it during the analysis raises :class:`amanda.ValueUnavailableError`, and
    then the rule that asked does not hold.
    """

    def __init__(
        self, execution: Execution, driver: Driver, ignores: frozenset[str] = frozenset()
    ) -> None:
        self.type = execution.operator.type
        self._attrs: Mapping[str, Any] = execution.attrs
        self._asked = set(ignores)
        self._tensors = execution.inputs
        self._driver = driver
        self._places: dict[str, list[int]] = {}
        for i, name in enumerate(execution.input_names):
            for known in {name, base(name)}:  # tensors[0], tensors
                self._places.setdefault(known, []).append(i)
        self._lists = {base(n) for n in execution.input_names if n.endswith("]")}

    def unasked(self) -> set[str]:
        """List the names of the arguments that it is given and was not asked for."""
        given = {base(name) for name in self._places}
        given |= {name for name, value in self._attrs.items() if value is not None}
        return given - self._asked

    def places(self, name: str) -> list[int]:
        """List the indices of the tensors of that name: several for a list, none if it has none."""
        self._asked.add(base(name))
        return self._places.get(name, [])

    def is_list(self, name: str) -> bool:
        """Tell whether it takes a list of tensors by that name."""
        return name in self._lists

    def is_attribute(self, name: str) -> bool:
        """Tell whether it is given something by that name that is no tensor, known or not."""
        return name in self._attrs

    def has(self, name: str) -> bool:
        """Tell whether it is given a tensor, or a value other than None, by that name."""
        return bool(self.places(name)) or self.get(name) is not None

    def tensor(self, name: str, element: int = 0) -> Any:
        """Return a tensor as the driver shows it."""
        places = self.places(name)
        if element >= len(places):
            raise ValueUnavailableError(f"no tensor {name}")
        return self._tensors[places[element]]

    def is_parameter(self, name: str) -> bool:
        """Tell whether the tensor of that name is a parameter of the model."""
        return bool(self.places(name)) and self._driver.is_parameter(self.tensor(name))

    def shape(self, name: str, element: int = 0) -> list[int | None]:
        """Return the sizes of a tensor, None for one that is not known."""
        shape = self._driver.describe(self.tensor(name, element)).shape
        if shape is None:
            raise ValueUnavailableError(f"the rank of {name} is not known")
        return list(shape)

    def rank(self, name: str, element: int = 0) -> int:
        """Return the number of axes of a tensor."""
        return len(self.shape(name, element))

    def size(self, name: str, axis: int) -> int:
        """Return the size of a tensor along an axis."""
        shape = self.shape(name)
        if not -len(shape) <= axis < len(shape):  # a number, where PyTorch takes an axis too
            raise ValueUnavailableError(f"{name} has no axis {axis}")
        size = shape[axis]
        if size is None:
            raise ValueUnavailableError(f"the size of {name} along {axis} is not known")
        return size

    def sizes(self, name: str, axes: slice = slice(None)) -> list[int]:
        """Return the sizes of a tensor along some axes."""
        return [self.size(name, axis) for axis in range(self.rank(name))[axes]]

    def dtype(self, name: str) -> str:
        """Return the name of a tensor's data type, e.g. ``float32``."""
        return dtype_name(self.tensor(name).dtype)

    def value(self, name: str) -> Any:
        """Return an attribute, or the value of a tensor if it is known, as plain Python."""
        self._asked.add(name)
        if name in self._attrs:
            return self._attrs[name]
        return self._driver.value(self.tensor(name)).tolist()

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or ``default`` where the operator has none of that name."""
        self._asked.add(name)
        return self._attrs.get(name, default)

    def axis(self, name: str, of: str) -> int:
        """Return a value that is an axis of a tensor, counted from the front."""
        axis: int = self.value(name)
        return axis + self.rank(of) if axis < 0 else axis

    def axes(self, name: str, of: str) -> list[int]:
        """List the axes of a tensor that a value gives, one or several, counted from the front."""
        rank = self.rank(of)
        return [axis + rank if axis < 0 else axis for axis in listed(self.value(name))]


def listed(value: Any) -> list[Any]:
    """List the numbers of a sequence, or the one number that is given."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def dtype_name(dtype: Any) -> str:
    """Return the name of a data type of any backend, e.g. ``float32``."""
    name: str = getattr(dtype, "name", None) or str(dtype)
    return name.rpartition(".")[2].removesuffix("_ref")  # TensorFlow's of a reference variable
