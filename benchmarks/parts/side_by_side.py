"""Lines of code of the same jobs with other libraries, where results are equal to the bit."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

from benchmarks.peers import side_by_side

if TYPE_CHECKING:
    from benchmarks.results import Part


def run(part: Part) -> None:
    """Do all jobs in both ways and compare."""
    warnings.simplefilter("ignore")
    logging.disable()
    part.table(
        "Lines of code of the same job",
        ["job", "peer", "its lines", "Amanda's lines"],
        side_by_side.rows(),
        "Results are equal to the bit, which is checked here. `benchmarks/peers` has the code.",
    )
