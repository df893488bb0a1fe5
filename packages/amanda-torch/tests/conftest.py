"""What all tests of the PyTorch driver share."""

from __future__ import annotations

import pytest
import torch
from amanda.driving import Ids
from amanda_torch.driver import driver


@pytest.fixture(scope="module", autouse=True)
def _free_ids() -> None:
    """Models of other test modules may live, but their ids are free again."""
    driver.identity.contexts.numbering.operators = Ids()


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Every test draws the same numbers, whatever ran before it."""
    torch.manual_seed(0)
