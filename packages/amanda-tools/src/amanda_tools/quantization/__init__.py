"""These tools have a model compute with weights and activations of a few bits."""

from amanda_tools.quantization.aware import QuantizeAware
from amanda_tools.quantization.quantize import Quantize
from amanda_tools.quantization.tensors import QuantizedTensor

__all__ = ["Quantize", "QuantizeAware", "QuantizedTensor"]
