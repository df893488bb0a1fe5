"""One part, in this process: ``python -m benchmarks.part_process NAME FILE [--quick]``."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import sys
import time
import traceback
from pathlib import Path

from benchmarks.measuring import reason
from benchmarks.results import Part

SHOWN = ["torch", "transformers", "tensorflow", "keras", "numpy", "amanda-core"]
SHOWN += ["nnsight", "captum", "nncf", "torchinfo"]


def versions() -> dict[str, str]:
    """The versions of those packages that were measured here."""
    found = {}
    for name in SHOWN:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def main() -> None:
    """Run it; what it has found stays in its file also where it fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("file", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    part = Part(options.name, options.quick, options.file, versions=versions())
    part.save()
    start = time.perf_counter()
    try:
        importlib.import_module(f"benchmarks.parts.{options.name}").run(part)
    except Exception as error:
        traceback.print_exc()
        part.failure = reason(error)
    part.took = time.perf_counter() - start
    part.save()
    sys.exit(0 if part.failure is None else 1)


if __name__ == "__main__":
    main()
