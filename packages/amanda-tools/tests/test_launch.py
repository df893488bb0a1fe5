"""How a program ends is shown as under Python itself, without frames of ours."""

import re
import subprocess
import sys

import pytest

QUIET = ("--tool", "trace:out=trace.jsonl")
# Each ends in an error that passes through code of ours: a scope that the program opens.
THROUGH = "import amanda, sys\n@amanda.apply()\ndef fail(): 1 / 0\n"


@pytest.mark.parametrize(
    "ending",
    [
        "fail()",
        "try:\n    fail()\nexcept ArithmeticError as error:\n    raise ValueError('x') from error",
        "try:\n    fail()\nexcept ZeroDivisionError:\n    raise ValueError('x')",
        "a, b = ValueError('a'), ValueError('b')\na.__cause__, b.__cause__ = b, a\nraise a",
        "def f(): f()\nf()",
        "class E(BaseException):\n    def __str__(self): raise RuntimeError\nraise E",
        "sys.excepthook = lambda *_: 1 / 0\nraise ValueError('x')",
        "sys.excepthook = lambda *_: print('mine', file=sys.stderr)\nraise ValueError('x')",
        "sys.exit('said')",
        "sys.exit((1, 2))",
        "sys.exit(-1)",
        "sys.exit(2**40)",
        "sys.exit(2.5)",
        "raise KeyboardInterrupt",
        "import atexit\natexit.register(lambda: 1 / 0)",
        "import os\nos._exit(5)",
        "sys.stdout.close()",
        "sys.stderr.close()",
        "sys.stdout = sys.stderr = None",
        "sys.stderr = object()",
        "import threading\nthreading.Thread(target=lambda: print('after')).start()",
        "import os\nos.close(2)",
    ],
)
def test_as_under_python(command, ending):
    command.write("ends.py", THROUGH + ending)
    plain = subprocess.run(
        [sys.executable, "ends.py"],
        cwd=command.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    shown = command("run", *QUIET, "ends.py")
    assert (shown.returncode, shown.stdout) == (plain.returncode, plain.stdout)
    assert "amanda/scope.py" not in shown.stderr
    assert "amanda_tools/" not in shown.stderr
    if "fail()" not in ending:
        lines = _comparable(shown.stderr)
        theirs = [line for line in lines if not line.startswith(("amanda:", "trace:"))]
        assert theirs == _comparable(plain.stderr)


def _comparable(text):
    """Lines, without addresses and without how deep a recursion got."""
    return re.sub(r"0x[0-9a-f]+|\d+ more times", "...", text).splitlines()
