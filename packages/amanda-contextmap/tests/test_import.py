"""The package imports no framework."""

import subprocess
import sys

PROGRAM = """
import sys
import amanda_contextmap, amanda_contextmap.torch, amanda_contextmap.tensorflow
print(sorted({"torch", "tensorflow", "numpy", "onnx"} & set(sys.modules)))
"""


def test_neither_do_its_maps():
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
