"""Programs that use Keras on one backend or the other, each in a process of its own."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def run(backend, program, *arguments):
    """Run a program that lies here, on a backend of Keras, with all that a test can import."""
    settings = {
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, str(HERE / program), *map(str, arguments)]
    subprocess.run(command, env=os.environ | settings, check=True, cwd=HERE)
