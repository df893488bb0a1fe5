"""This is Amanda's driver for PyTorch eager mode; ``amanda`` loads it when PyTorch is imported."""

from amanda_torch.driver import TorchDriver, Variable, driver
from amanda_torch.tensors.references import hide_from_swaps

__all__ = ["TorchDriver", "Variable", "driver"]

hide_from_swaps()
