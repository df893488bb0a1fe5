"""This is the map of PyTorch's operators to the vocabulary of ONNX.

An operator whose name ends in ``_`` writes its result to its first operand, and is for ONNX the
same as without.
"""

from amanda_contextmap.onnx_map import OnnxMap
from amanda_contextmap.torch import (
    arrays,
    elementwise,
    functions,
    layers,
    made,
    products,
    reductions,
    spatial,
)

_TABLE = {
    **spatial.TABLE,
    **layers.TABLE,
    **elementwise.TABLE,
    **arrays.TABLE,
    **made.TABLE,
    **reductions.TABLE,
}
_IN_PLACE = {f"{type}_": rules for type, rules in _TABLE.items()}

# Where a result lies and how it is computed, not what it is.
_IGNORED = {
    "benchmark",
    "copy",
    "cudnn_enable",
    "cudnn_enabled",
    "deterministic",
    "device",
    "implicit",
    "layout",
    "memory_format",
    "non_blocking",
    "pin_memory",
    "sparse_grad",
}

context_map = OnnxMap(
    "torch",
    _IN_PLACE | _TABLE | functions.TABLE,
    _IGNORED,
    functions=functions.FUNCTIONS,
    products=products.PRODUCTS,
    wholes=products.WHOLES,
    lookups=products.LOOKUPS,
    packed=products.PACKED,
)
"""Found by its entry point, ``torch:onnx``."""
