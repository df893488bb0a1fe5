"""What all tests of the PyTorch driver share."""

from __future__ import annotations

import gc

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def _free_ids() -> None:
    """Models of other modules that wait for the collector would still have their ids."""
    gc.collect()


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Every test draws the same numbers, whatever ran before it."""
    torch.manual_seed(0)
