"""Amanda's driver for PyTorch eager mode; loaded by ``amanda`` when PyTorch is imported."""

from amanda_torch.driver import TorchDriver, Variable, driver

__all__ = ["TorchDriver", "Variable", "driver"]
