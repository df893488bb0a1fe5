"""The whole suite: ``python -m benchmarks``, or with ``--quick`` whether all of it runs.

Each part runs in a process of its own with a limit of time, and the report is written anew after
each: what fails or takes too long is a line of the report.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import report
from benchmarks.machine import load
from benchmarks.plots import draw
from benchmarks.results import Part
from benchmarks.results import load as load_part

HERE = Path(__file__).parent
RAW = HERE.parent / "build" / "benchmarks"

# The parts in the order in which they run, each with the seconds after which it is ended; what is
# short comes first, so that the limit of all of them cuts off little.
PARTS = {
    "gpu": 300,
    "coverage": 60,
    "profile_accuracy": 90,
    "side_by_side": 90,
    "scopes": 90,
    "operators": 90,
    "torch_inference": 300,
    "torch_training": 400,
    "growth": 260,
    "leaks": 300,
    "memory": 240,
    "tensorflow_models": 330,
    "tensorflow_routines": 90,
    "caching": 260,
    "tensorflow_first_calls": 240,
    "tensorflow_building": 200,
}


def main() -> None:
    """Run the parts that are asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repetitions, in build/")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", default=list(PARTS))
    parser.add_argument("--out", type=Path, help="the folder of RESULTS.md and its plots")
    parser.add_argument("--minutes", type=float, default=23, help="begin no part after these")
    options = parser.parse_args()
    raw = RAW / ("quick" if options.quick else "full")
    out = options.out or (raw if options.quick else HERE)
    end = time.monotonic() + 60 * options.minutes
    for name in options.only:
        (raw / f"{name}.json").unlink(missing_ok=True)
    for name in options.only:
        run(name, raw, options.quick, end - time.monotonic())
        write(raw, out, options.quick)
    print(f"{out / 'RESULTS.md'} is written")


def run(name: str, raw: Path, is_quick: bool, left: float) -> None:
    """Run one part; what it prints goes to a file beside what it finds."""
    file, log = raw / f"{name}.json", raw / f"{name}.log"
    raw.mkdir(parents=True, exist_ok=True)
    if left <= 0:
        Part(name, is_quick, file, failure="not run: the time for all parts was over").save()
        return
    command = [sys.executable, "-m", "benchmarks.part_process", name, str(file)]
    start, before = time.monotonic(), load()
    failure = None
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--quick"] if is_quick else command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(name),
            cwd=HERE.parent,
            start_new_session=True,  # so that it is ended with all that it has started
        )
        try:
            code = process.wait(PARTS[name])
            failure = f"the process ended with {code}" if code else None
        except subprocess.TimeoutExpired:
            failure = f"ended after {PARTS[name]} s, which is its limit"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    took = time.monotonic() - start
    if failure is not None:
        failed(name, is_quick, file, failure, took)
    print(f"{name}: {took:.0f} s, load before {before}, {failure or 'complete'}", flush=True)


def environment(name: str) -> dict[str, str]:
    """The environment of a part: a GPU is shown to the part that is about it alone."""
    hidden = {} if name == "gpu" else {"CUDA_VISIBLE_DEVICES": ""}
    zoo = str(HERE.parent / "tests" / "zoo")
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), zoo]))
    shown = {"TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"}
    single = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    return {**os.environ, **shown, **single, **hidden, "PYTHONPATH": path}


def failed(name: str, is_quick: bool, file: Path, failure: str, took: float) -> None:
    """Note why a part ended, if it has not said so itself."""
    part = load_part(file) if file.exists() else Part(name, is_quick, file)
    part.failure = part.failure or failure
    part.took = took
    part.save()


def write(raw: Path, out: Path, is_quick: bool) -> None:
    """Write the report of the parts that there are."""
    parts = [load_part(file) for name in report.HEADINGS if (file := raw / f"{name}.json").exists()]
    out.mkdir(parents=True, exist_ok=True)
    drawn = draw([plot for part in parts for plot in part.plots], out / "plots")
    (out / "RESULTS.md").write_text(report.text(parts, drawn, is_quick), "utf-8")


if __name__ == "__main__":
    main()
