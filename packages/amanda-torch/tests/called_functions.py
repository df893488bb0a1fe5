"""A module with a function of several operators, as a library has them."""

import torch


def gate(data, gate=None, power=1):
    """``data * sigmoid(gate) ** power``"""
    return data * torch.sigmoid(data if gate is None else gate) ** power


def fails(data):
    """Fails once it has run an operator."""
    raise ValueError(f"no {torch.exp(data).sum()}")
