"""The data types that ONNX's operators take are those that the ``onnx`` package's schemas list.

``schemas.json`` is written from that package by ``python -m amanda_contextmap.testing``, and a test
holds it to the package, which is not needed to run tools.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from amanda_contextmap.dtypes import dtype_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Parameter = tuple[str, frozenset[str]]
    """The type variable that ties a role to others, empty for none, and the types it may have."""


def base(name: str) -> str:
    """Return the name of a list for that of an element: ``inputs`` for ``inputs[0]``."""
    return name.partition("[")[0]


def only(type: str, name: str) -> str | None:
    """Return the one data type that an operator takes in a role; None if it takes several."""
    _, dtypes = (parameters(type) or {}).get(base(name), ("", ()))
    return next(iter(dtypes)) if len(dtypes) == 1 else None


@functools.cache
def parameters(type: str) -> Mapping[str, Parameter] | None:
    """Return the inputs of an ONNX operator by role; None for one that ONNX does not have."""
    found = _schemas()["operators"].get(type)
    if found is None:
        return None
    sets = _dtypes()
    return {role: (variable, sets[number]) for role, (variable, number) in found.items()}


def mismatch(
    type: str, tensors: Iterable[tuple[str, str]], numbers: Mapping[str, Any]
) -> str | None:
    """Tell why ONNX does not have an operator for these data types; None if it has.

    Args:
        type: an ONNX type; one that ONNX does not have takes whatever it is given.
        tensors: pairs of a role and the name of its data type; ``role[i]`` for an element.
        numbers: attributes by name, among them the numbers that stand for tensors.
    """
    known = parameters(type)
    if known is None:
        return None
    bound: dict[str, str] = {}
    for name, dtype in tensors:
        role = base(name)
        if role not in known:
            return f"{type} takes no {role}"
        variable, dtypes = known[role]
        if dtype not in dtypes:
            return f"{type} takes no {dtype} as {role}"
        if variable and bound.setdefault(variable, dtype) != dtype:
            return f"{type} takes no {bound[variable]} with {dtype}"
    for name, value in numbers.items():
        parameter = known.get(base(name))
        if parameter is None or not parameter[0]:
            continue
        dtype = bound.setdefault(parameter[0], dtype_of(_elements(value)))
        if not all(_holds(dtype, element) for element in _elements(value)):
            return f"{type} takes no {dtype} with {value!r}"
    return None


def _elements(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _holds(dtype: str, number: Any) -> bool:
    """Tell whether a number of Python's has a data type, or can take it without changing others."""
    if isinstance(number, bool):
        return True
    if isinstance(number, int):
        return dtype != "bool" and _reaches(dtype, number)
    if isinstance(number, float):
        return "float" in dtype or "complex" in dtype
    if isinstance(number, complex):
        return "complex" in dtype
    return True


def _reaches(dtype: str, number: int) -> bool:
    """Tell whether a type of integers has a number; floating-point ones round to the nearest."""
    kind, _, bits = dtype.partition("int")
    if not bits:
        return True
    size: int = 1 << int(bits)
    return 0 <= number < size if kind == "u" else -size // 2 <= number < size // 2


@functools.cache
def _schemas() -> Any:
    import json
    from importlib import resources

    return json.loads(resources.files(__package__).joinpath("schemas.json").read_text("utf-8"))


@functools.cache
def _dtypes() -> list[frozenset[str]]:
    return [frozenset(names) for names in _schemas()["dtypes"]]
