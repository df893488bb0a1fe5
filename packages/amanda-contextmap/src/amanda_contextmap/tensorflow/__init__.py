"""TensorFlow's operators in the vocabulary of ONNX."""

from amanda_contextmap.onnx_map import OnnxMap
from amanda_contextmap.tensorflow import arrays, elementwise, layers, reductions, spatial

context_map = OnnxMap(
    "tensorflow",
    spatial.TABLE | layers.TABLE | elementwise.TABLE | arrays.TABLE | reductions.TABLE,
)
"""Found by its entry point, ``tensorflow:onnx``."""
