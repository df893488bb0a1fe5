"""Programs in processes of their own, which begin where what takes long is imported already.

To start Python and import a framework takes seconds. One process does that and nothing else, and
has a fork of itself run each program: what one program does reaches no other, as in processes that
are started anew. What is about the start itself (most options and variables that Python reads then,
what is imported when) needs such a process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import types
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping, Sequence


class Interpreter:
    """Python with some modules imported; it ends when it is closed, or with this process.

    Args:
        modules: the names of the modules, in the order in which they are imported.
        path: folders that it finds modules in besides.
        environment: variables besides those of this process, for these modules and all programs.
        options: of ``python``.
    """

    def __init__(
        self,
        *modules: str,
        path: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        found = {"PYTHONPATH": os.pathsep.join(path)} if path else {}
        self._environment = {**found, **(environment or {})}
        self._socket, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, *options, __file__, str(number), *modules],
                env={**os.environ, "PYTHONHASHSEED": "random", **self._environment},
                pass_fds=[number],
            )

    def start(
        self,
        *arguments: str,
        cwd: pathlib.Path | None = None,
        input: str = "",
        output: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Program:
        """Have a program run.

        Args:
            arguments: what would stand behind ``python``: ``-c`` and a program, ``-m`` and a
                module, or a file, and what is given to it.
            cwd: the folder it runs in.
            input: what it reads from the standard input.
            output: where the standard output and the standard error go, if not to the ``Program``.
            environment: variables besides those of this process.
        """
        reading, writing = os.pipe()
        told, telling = os.pipe()
        errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (the program's to close)
        variables = {**os.environ, **self._environment, **(environment or {})}
        request = [arguments, str(cwd or os.getcwd()), variables]
        with tempfile.TemporaryFile("w+") as given:
            given.write(input)
            given.seek(0)
            standard = [writing, errors.fileno()] if output is None else [output, output]
            socket.send_fds(self._socket, [b"\n"], [given.fileno(), *standard, telling])
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            os.close(writing)
            os.close(telling)
            return Program(open(told), open(reading), errors)

    def run(self, *arguments: str, check: bool = False, **options: Any) -> Program:
        """Have a program run to its end, and fail if it does and ``check`` is set."""
        program = self.start(*arguments, **options)
        program.stdout, program.stderr = program.communicate()
        assert not check or program.returncode == 0, program.stderr
        return program

    def close(self) -> None:
        """Have the process end."""
        self._socket.close()
        self._process.wait()


class Program:
    """A program that runs, or has run, in a fork; used as those of ``subprocess`` are."""

    returncode: int
    stdout: Any
    stderr: Any

    def __init__(self, told: IO[str], output: IO[str], errors: IO[str]) -> None:
        self.pid = int(told.readline())
        self._told, self.stdout, self.stderr = told, output, errors

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def communicate(self) -> tuple[str, str]:
        """Wait for its end; give what it wrote, on its standard output and standard error."""
        with self._told, self.stdout, self.stderr:
            output = self.stdout.read()
            self.returncode = int(self._told.readline())
            self.stderr.seek(0)
            return output, self.stderr.read()


def _serve(number: int) -> list[str] | None:
    """Fork for each request; give the fork what it is to run, and the server nothing at the end."""
    with socket.socket(fileno=number) as requests, requests.makefile() as lines:
        while (received := socket.recv_fds(requests, 1, 4))[0]:
            arguments, folder, environment = json.loads(lines.readline())
            *standard, telling = received[1]
            if not os.fork():  # a process that waits for the program, and ends
                if child := os.fork():
                    _tell(child, telling, standard)
                os.close(telling)
                _take(standard, environment)
                os.chdir(folder)
                return arguments
            for descriptor in received[1]:
                os.close(descriptor)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
    with contextlib.suppress(ChildProcessError):
        while os.wait():
            pass
    return None


def _tell(child: int, telling: int, standard: list[int]) -> None:
    """Write the number of a process, and its exit code when it has ended."""
    for descriptor in standard:  # so that they are at their end when the program is
        os.close(descriptor)
    os.write(telling, f"{child}\n".encode())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(telling, f"{code}\n".encode())
    os._exit(0)


def _take(standard: list[int], environment: Mapping[str, str]) -> None:
    """Begin with these variables and standard input, output and error, as Python does."""
    os.environ.clear()
    os.environ.update(environment)
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
        os.close(descriptor)
    buffering = 1 if os.isatty(1) else -1
    stream = functools.partial(open, closefd=False)
    sys.stdin = sys.__stdin__ = stream(0)
    sys.stdout = sys.__stdout__ = stream(1, "w", buffering)
    sys.stderr = sys.__stderr__ = stream(2, "w", 1, errors="backslashreplace")


def _run(kind: str, *arguments: str) -> None:
    """Do what Python does with these arguments."""
    if kind not in ("-c", "-m"):
        sys.path[0] = os.path.dirname(os.path.abspath(kind))
        sys.argv = [kind, *arguments]
        runpy.run_path(kind, run_name="__main__")
        return
    program, *given = arguments
    sys.path[0] = "" if kind == "-c" else os.getcwd()
    sys.argv = [kind, *given]
    if kind == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), vars(main))


def _end(code: list[int]) -> None:
    """End with a code, if one is given, ahead of taking all modules apart, which takes long."""
    if code:
        with contextlib.suppress(Exception):  # of what the program put there; Python sees to it
            sys.stdout.flush()
            sys.stderr.flush()
            _EXIT(code[0])


_EXIT = os._exit  # which programs may replace


if __name__ == "__main__":
    codes: list[int] = []
    atexit.register(_end, codes)  # before all others, so that it is called after them
    gc.disable()  # it would look through what is imported time and again
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that no fork looks through it, at its end either
    gc.enable()
    try:
        if (found := _serve(int(sys.argv[1]))) is not None:
            _run(*found)
        codes.append(0)
    except SystemExit as exit:
        if exit.code is None or (isinstance(exit.code, int) and exit.code in range(256)):
            codes.append(int(exit.code or 0))
        raise
