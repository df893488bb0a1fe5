"""Conditions on the types of data that several of the tables ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_contextmap.native import dtype_name

if TYPE_CHECKING:
    from amanda_contextmap.native import Native


def same_dtype(op: Native) -> bool:
    """Nothing is cast on the way, which would be another operator."""
    dtype = op.get("dtype")
    return dtype is None or dtype_name(dtype) == op.dtype("self")


def of_booleans(op: Native) -> bool:
    """Its operand is of booleans."""
    return op.dtype("self") == "bool"


def in_place(op: Native) -> bool:
    """It writes its result to its first operand, in the data type of that."""
    return op.type.startswith("__i") or (op.type.endswith("_") and not op.type.startswith("__"))
