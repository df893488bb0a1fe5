"""PyTorch's operators in the vocabulary of ONNX.

An operator whose name ends in ``_`` writes its result to its first operand, and is for ONNX the
same as without.
"""

from amanda_contextmap.onnx_map import OnnxMap
from amanda_contextmap.torch import arrays, elementwise, layers, reductions, spatial

_TABLE = {**spatial.TABLE, **layers.TABLE, **elementwise.TABLE, **arrays.TABLE, **reductions.TABLE}

context_map = OnnxMap("torch", {f"{type}_": rules for type, rules in _TABLE.items()} | _TABLE)
"""Found by its entry point, ``torch:onnx``."""
