"""What is measured in a process of its own: a module of the suite that prints what it found."""

from __future__ import annotations

import os
import subprocess
import sys

LIMIT = 200  # seconds


def printed(module: str, *arguments: str, **environment: str) -> str:
    """The last line that a module of the suite prints, with this environment beside the usual one.

    Raises:
        RuntimeError: it failed, with the last line of what it said, or took too long.
    """
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT, env=os.environ | environment
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{module} took longer than {LIMIT} s") from None
    if done.returncode:
        raise RuntimeError(" ".join(done.stderr.splitlines()[-1:]))
    return done.stdout.splitlines()[-1]
