"""Data types have numbers in ONNX (``TensorProto.DataType``), which attributes tell them by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda import ValueUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable

CODES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "string": 8,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "complex64": 14,
    "complex128": 15,
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
}

_NUMBERS: dict[str, type] = {"float32": float, "int64": int, "bool": bool}


def dtype_of(numbers: Iterable[Any]) -> str:
    """Return the data type of numbers that stand for a tensor among no others."""
    kinds = {type(number) for number in numbers}
    return "float32" if float in kinds else "bool" if kinds == {bool} else "int64"


def as_number(value: Any, dtype: str) -> Any:
    """Return a value as a number that ONNX has in a data type.

    Raises:
        ValueUnavailableError: there is none, or it would be another one.
    """
    own = _NUMBERS.get(dtype)
    if own is None or not isinstance(value, (int, own)):
        raise ValueUnavailableError(f"ONNX has no number {value!r} of {dtype}")
    return own(value)
