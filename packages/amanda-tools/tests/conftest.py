"""What the tests share: the toy framework, and the command as a person runs it."""

import contextlib
import io
import os
import resource
import signal
import sys

import amanda
import pytest
from amanda_tools.command import main
from forks import Interpreter
from toy import Toy


@pytest.fixture(autouse=True, scope="session")
def _heeds_signals():
    """What runs in the background of a shell ignores Ctrl-C, and under nohup that the terminal is
    gone; so do the processes it starts."""
    heeded = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in heeded.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True, scope="session")
def _plain_terminal():
    """What is printed does not depend on the terminal that the tests are started in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.setenv("TERM", "xterm")
        for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture
def limit():
    """A ``with`` block in which a file of this process may have so many bytes: the disk is full.

    It is over when the test is, and does not reach a file that the tests report to.
    """

    @contextlib.contextmanager
    def limited(size):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


@pytest.fixture
def toy(monkeypatch):
    """A framework in which only operators take time, and exactly as long as they are told to."""
    framework = Toy()
    monkeypatch.setattr("amanda_tools.executions.perf_counter_ns", lambda: framework.now)
    amanda.register_driver(framework)
    yield framework
    amanda.unregister_driver(framework)


@pytest.fixture(scope="session")
def interpreter():
    """Has what is only ever run as a process of its own run in one that is a fork.

    It has imported the command already, and nothing else.
    """
    with contextlib.closing(Interpreter("amanda_tools.command")) as interpreter:
        yield interpreter


@pytest.fixture
def command(tmp_path, interpreter):
    """Runs ``amanda`` in an empty folder; ``command.write`` puts a file there.

    ``command.start`` does not wait for its end.
    """

    def run(*args, **options):
        return interpreter.run("-m", "amanda_tools", *map(str, args), cwd=tmp_path, **options)

    def start(*args):
        return interpreter.start("-m", "amanda_tools", *map(str, args), cwd=tmp_path)

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    run.start = start
    run.write = write
    run.folder = tmp_path
    return run


@pytest.fixture(scope="session")
def in_process():
    """Runs ``amanda`` in a folder, in this process, which is faster and left as it was.

    It gives the exit code, and what was written on the standard output and the standard error,
    unless these are other files.
    """
    return _run_in_process


def _run_in_process(folder, *arguments, out=None, err=None):
    kept = sys.argv, sys.path[:], set(sys.modules), sys.modules["__main__"], os.getcwd()
    out, err = out or io.StringIO(), err or io.StringIO()
    sys.argv = ["amanda", *arguments]
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as exit:
        written = (file.getvalue() for file in (out, err) if isinstance(file, io.StringIO))
        return exit.code or 0, *written
    finally:
        sys.argv, sys.path[:] = kept[:2]
        for name in sys.modules.keys() - kept[2]:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
        sys.modules["__main__"] = kept[3]
        os.chdir(kept[4])
