"""What "Writing a portable tool" shows is what happens."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

PAGE = (
    pathlib.Path(__file__).parents[2] / "packages/amanda-contextmap/docs/writing-a-portable-tool.md"
)
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_the_first_program_prints_what_is_shown(backend, tmp_path):
    (_, program), (_, output), *_ = BLOCKS
    script = tmp_path / "prune.py"
    script.write_text(program)
    environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout == output


def test_its_tool_has_fewer_than_thirty_lines():
    tool = BLOCKS[0][1].partition("class Prune")[2].partition("\n\n\n")[0]
    assert len(tool.splitlines()) < 30
