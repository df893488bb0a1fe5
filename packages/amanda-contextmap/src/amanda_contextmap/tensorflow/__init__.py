"""This is the map of TensorFlow's operators to the vocabulary of ONNX."""

from amanda_contextmap.onnx_map import OnnxMap
from amanda_contextmap.tensorflow import (
    arrays,
    composites,
    elementwise,
    layers,
    products,
    reductions,
    spatial,
)

# The types and numbers of inputs, which the inputs tell, and how a result is computed.
_IGNORED = {
    "Index",
    "N",
    "SrcT",
    "T",
    "TI",
    "Taxis",
    "Tblock_shape",
    "Tcrops",
    "Tdim",
    "Tidx",
    "Tindices",
    "Tk",
    "Tlabels",
    "Tlen",
    "Tmultiples",
    "Tpaddings",
    "Tparams",
    "Tperm",
    "Tshape",
    "U",
    "grad_a",
    "grad_b",
    "grad_x",
    "grad_y",
    "use_cudnn_on_gpu",
    "validate_indices",
}

context_map = OnnxMap(
    "tensorflow",
    spatial.TABLE
    | layers.TABLE
    | elementwise.TABLE
    | arrays.TABLE
    | reductions.TABLE
    | composites.TABLE,
    _IGNORED,
    composites.PATTERNS,
    wholes=products.WHOLES,
    lookups=products.LOOKUPS,
)
"""Found by its entry point, ``tensorflow:onnx``."""
