"""Prints seconds of a plain call of ResNet50, of the first under a tool and of the second.

``python -m benchmarks.first_call predict|fit TYPE|all before|after``; the last word says
whether the driver is imported before graphs are built, as its page asks, or after.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import TYPE_CHECKING

import amanda

from benchmarks.empty import Empty
from benchmarks.keras_models import resnet50

if TYPE_CHECKING:
    from benchmarks.measuring import Call


def seconds(call: Call) -> float:
    """How long a call took."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    how, wanted, imported = sys.argv[1:]
    if imported == "before":
        importlib.import_module("amanda_tensorflow")
    call = resnet50(64, 2).call(how)
    call()
    plain = seconds(call)
    tool = Empty(None if wanted == "all" else [wanted], backward=how == "fit" and wanted == "all")
    with amanda.apply(tool):
        print(json.dumps([plain, seconds(call), seconds(call)]))


if __name__ == "__main__":
    main()
