"""Several of the tables ask for these conditions on data types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_contextmap.native import dtype_name

if TYPE_CHECKING:
    from amanda_contextmap.native import Native


def same_dtype(op: Native) -> bool:
    """Tell whether nothing is cast on the way, which would be another operator."""
    dtype = op.get("dtype")
    return dtype is None or dtype_name(dtype) == op.dtype("self")


def of_booleans(op: Native) -> bool:
    """Tell whether its operand is of booleans."""
    return op.dtype("self") == "bool"


def in_place(op: Native) -> bool:
    """Tell whether it writes its result to its first operand, in the data type of that."""
    return op.type.startswith("__i") or (op.type.endswith("_") and not op.type.startswith("__"))
