"""What all tests of the PyTorch driver share."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Every test draws the same numbers, whatever ran before it."""
    torch.manual_seed(0)
