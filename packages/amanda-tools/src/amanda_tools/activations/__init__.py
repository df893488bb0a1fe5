"""Activations are what operators and modules return; here are their statistics and copies."""

from amanda_tools.activations.tensor_file import read_tensors as read_tensors
from amanda_tools.activations.tool import Activation as Activation
from amanda_tools.activations.tool import Activations as Activations

__all__ = ["Activation", "Activations", "read_tensors"]
