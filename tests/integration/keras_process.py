"""Programs that use Keras, or what it stands on, each in a process of its own.

To import Keras and what it stands on takes seconds, so all programs on a backend are forks of one
process that did that.
"""

import functools
import os
import pathlib
import sys

from forks import Interpreter

HERE = pathlib.Path(__file__).parent


def run(backend, program, *arguments):
    """Run a program, which lies here or has an absolute path, and give what it printed.

    It may import all that a test can import.
    """
    words = [str(HERE / program), *map(str, arguments)]
    return interpreter(backend).run(*words, cwd=HERE, check=True).stdout


def command(backend, *arguments, **options):
    """Run ``amanda`` in a process that has imported a backend, and give that process."""
    return interpreter(backend).run("-m", "amanda_tools", *map(str, arguments), **options)


def run_without_keras(backend, program, *arguments):
    """Run a program that lies here and has imported what Keras stands on, but not Keras yet."""
    words = [str(HERE / program), *map(str, arguments)]
    interpreter(backend).run("-c", WITHOUT_KERAS, *words, cwd=HERE, check=True)


WITHOUT_KERAS = """
import runpy, sys
for name in [name for name in sys.modules if name.partition(".")[0] == "keras"]:
    del sys.modules[name]
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@functools.cache
def interpreter(backend):
    """Python that has imported Keras on a backend; it ends with the process of the tests."""
    # The tools first, as in a program.
    variables = {
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return Interpreter("amanda_tools", "keras", environment=variables)
