"""Programs that use Keras, or what it stands on, each in a process of its own.

To import Keras and what it stands on takes seconds, so one process for each backend does that and
nothing else, and has a fork of itself run each program.
"""

import functools
import json
import multiprocessing
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def run(backend, program, *arguments):
    """Run a program, which lies here or has an absolute path, and give what it printed.

    It may import all that a test can import.
    """
    server = _server(backend)
    words = [str(HERE / program), *map(str, arguments)]
    print(json.dumps(words), file=server.stdin, flush=True)
    code, printed, errors = json.loads(server.stdout.readline())
    assert code == 0, errors
    return printed


def run_from_the_start(backend, program, *arguments):
    """Run a program that lies here in a process that has imported nothing before."""
    command = [sys.executable, str(HERE / program), *map(str, arguments)]
    subprocess.run(command, env=_environment(backend), check=True, cwd=HERE)


def _environment(backend):
    return os.environ | {
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }


@functools.cache
def _server(backend):
    """The process that forks; it ends when its input does, with the process of the tests."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        [sys.executable, __file__], env=_environment(backend), cwd=HERE, **pipes
    )


def _serve():
    import amanda_tools  # noqa: F401  (first, as in a program)
    import keras  # noqa: F401

    forks = multiprocessing.get_context("fork")
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            fork = forks.Process(target=_run, args=(json.loads(line), output, errors))
            fork.start()
            fork.join()
            output.seek(0)
            errors.seek(0)
            print(json.dumps([fork.exitcode, output.read(), errors.read()]), flush=True)


def _run(words, output, errors):
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    _serve()
