"""Bits of numbers are told by the type of data, and flipped in some elements of an array.

Bit 0 is the lowest. Types that NumPy lacks are held in larger ones: a bfloat16 as a float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Bits of the exponent and of the mantissa, which lie below that of the sign.
_FLOATS = {"float16": (5, 10), "bfloat16": (8, 7), "float32": (8, 23), "float64": (11, 52)}
_INTEGERS = {f"{sign}int{width}": width for sign in ("", "u") for width in (8, 16, 32, 64)}
NUMBERS = frozenset({*_FLOATS, *_INTEGERS, "bool"})
_BELOW_BFLOAT16 = 16  # bits of a float32 that a bfloat16 lacks


def positions(bits: Iterable[int] | str | None, dtype: str) -> list[int]:
    """List the bits of a type that numbers, ``sign``, ``exponent``, ``mantissa`` or None (all)
    name.

    Raises:
        ValueError: the type has no such bits.
    """
    width = _width(dtype)
    if bits is None:
        return list(range(width))
    if isinstance(bits, str):
        exponent, mantissa = _FLOATS.get(dtype, (0, 0))
        named = {
            "sign": range(width - 1, width),
            "exponent": range(mantissa, mantissa + exponent),
            "mantissa": range(mantissa),
        }
        if bits not in named:
            raise ValueError(f"bits are numbers, sign, exponent or mantissa, not {bits!r}")
        if not named[bits]:
            raise ValueError(f"{dtype} has no {bits}; name bits by number")
        return list(named[bits])
    chosen = sorted(set(bits))
    if not chosen or chosen[0] < 0 or chosen[-1] >= width:
        raise ValueError(f"{dtype} has bits 0 to {width - 1}, not {chosen}")
    return chosen


def flipped(array: Any, elements: Sequence[int], bits: Sequence[int], dtype: str) -> Any:
    """Return a copy of an array in which a bit of each of some elements is flipped.

    Args:
        array: of any numbers.
        elements: their places in the flat array, each once.
        bits: which bit of each.
        dtype: in which type the bit is one; the elements, and no others, are cast to it and back.
    """
    result = np.array(array)  # in C order, as the places are
    flat = result.reshape(-1)
    values = flat[list(elements)]
    if dtype == "bool":
        flat[list(elements)] = ~values.astype(bool)
        return result
    masks = np.asarray(bits, np.uint64)
    if dtype == "bfloat16":
        words = _rounded_to_bfloat16(values.astype(np.float32))
        masks = masks + _BELOW_BFLOAT16
        kind = "float32"
    else:
        kind = dtype
        words = values.astype(kind)
        words = words.view(f"u{words.itemsize}")
    words = words ^ (np.uint64(1) << masks).astype(words.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        flat[list(elements)] = words.view(kind).astype(result.dtype)
    return result


def _width(dtype: str) -> int:
    if dtype in _FLOATS:
        return 1 + sum(_FLOATS[dtype])
    if dtype == "bool":
        return 1
    if dtype not in _INTEGERS:
        raise ValueError(
            f"the bits of {dtype} are not known; there are {', '.join(sorted(NUMBERS))}"
        )
    return _INTEGERS[dtype]


def _rounded_to_bfloat16(values: Any) -> Any:
    """Round numbers to the nearest bfloat16, ties to even, and return the words that hold them."""
    words = values.view(np.uint32)
    up = np.uint32(0x7FFF) + ((words >> _BELOW_BFLOAT16) & 1).astype(np.uint32)
    rounded = np.where(np.isnan(values), words, words + up)
    return (rounded & np.uint32(0xFFFF0000)).astype(np.uint32)
