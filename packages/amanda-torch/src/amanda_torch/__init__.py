"""This is Amanda's driver for PyTorch eager mode; ``amanda`` loads it when PyTorch is imported."""

from amanda_torch.driver import TorchDriver, Variable, driver

__all__ = ["TorchDriver", "Variable", "driver"]
