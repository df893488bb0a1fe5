"""The machine that the figures are from."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def description() -> str:
    """Its processor, cores, memory, system and Python."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = _field("/proc/meminfo", "MemTotal")
    size = f"{int(memory.split()[0]) / 2**20:.0f} GiB of memory, " if memory else ""
    model = _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()
    return (
        f"{model}, {cores} cores, {size}{platform.system()} {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )


def commit() -> str:
    """The commit that was measured, where this is a checkout of one."""
    command = ["git", "describe", "--always", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def load() -> str:
    """How many processes wanted a core in the last minute, where the system tells."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def resident() -> int:
    """Bytes of memory that this process holds now."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _field(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
