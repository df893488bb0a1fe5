"""What the README shows runs as it stands."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_its_program_counts_three_executions():
    (program,) = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    names = {"__name__": "readme"}
    exec(program, names)
    assert names["tool"].executions == 3
