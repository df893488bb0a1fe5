"""What is measured in a process of its own: a module of the suite that prints what it found."""

from __future__ import annotations

import subprocess
import sys

LIMIT = 120  # seconds


def printed(module: str, *arguments: str) -> str:
    """The last line that a module of the suite prints.

    Raises:
        RuntimeError: it failed; with the last line of what it said.
        subprocess.TimeoutExpired: it took too long.
    """
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise RuntimeError(" ".join(done.stderr.splitlines()[-1:]))
    return done.stdout.splitlines()[-1]
