"""What the tests share: the toy framework, and the command as a person runs it."""

import signal
import subprocess
import sys

import amanda
import pytest
from toy import Toy


@pytest.fixture(autouse=True, scope="session")
def _heeds_ctrl_c():
    """What runs in the background of a shell ignores Ctrl-C, and so do the processes it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def toy(monkeypatch):
    """A framework in which only operators take time, and exactly as long as they are told to."""
    framework = Toy()
    monkeypatch.setattr("amanda_tools.executions.perf_counter_ns", lambda: framework.now)
    amanda.register_driver(framework)
    yield framework
    amanda.unregister_driver(framework)


@pytest.fixture
def command(tmp_path):
    """Runs ``amanda`` in an empty folder; ``command.write`` puts a file there."""

    def run(*args, **options):
        return subprocess.run(
            [sys.executable, "-m", "amanda_tools", *map(str, args)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **options,
        )

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    run.write = write
    run.folder = tmp_path
    return run
