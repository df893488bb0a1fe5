"""``amanda new-tool`` writes a package with a tool, its test, and the tool's name."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import sys
from pathlib import Path
from string import Template

import click

from amanda_tools.notice import refused
from amanda_tools.registry import named_tools

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")

_PROJECT = Template("""\
[build-system]
requires = ["hatchling>=1.26"]
build-backend = "hatchling.build"

[project]
name = "$package"
version = "0.1.0"
description = "A tool for Amanda that counts how often each operator runs"
requires-python = ">=3.10"
dependencies = ["amanda-tools"]

[project.entry-points."amanda.tools"]
$module = "$module:$cls"

[tool.hatch.build.targets.wheel]
only-include = ["$module.py"]
""")
_TOOL = Template('''\
"""A tool for Amanda that counts how often each operator runs."""

from __future__ import annotations

import amanda
from amanda_tools import Column, Place


class $cls(amanda.Tool):
    """Counts how often each operator runs.

    Args:
        types: operator types to look at, all by default.
    """

    def __init__(self, types: list[str] | None = None) -> None:
        super().__init__()
        self.runs: dict[Place, int] = {}
        self.add_inst_for_op(self.analyze, ops=types)

    def analyze(self, ctx: amanda.OpContext) -> None:
        """Called once for each operator."""
        ctx.insert_before_op(self.count, place=Place.at(ctx))

    def count(self, *inputs: object, place: Place) -> None:
        """Called whenever the operator runs; what it returns would replace the inputs."""
        self.runs[place] = self.runs.get(place, 0) + 1

    def columns(self) -> list[Column]:
        """Adds a column to the table that the command prints."""
        return [Column("Runs", self.runs)]
''')
_TORCH = Template("""\
import amanda
import torch

from $module import $cls


def run(tool: amanda.Tool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    x = torch.ones(2, 4)
    with amanda.apply(tool):
        for _ in range(3):
            model(x)


def test_it_counts_how_often_an_operator_runs() -> None:
    run(tool := $cls(["linear"]))
    assert list(tool.runs.values()) == [3]


def test_it_looks_at_all_operators_by_default() -> None:
    run(tool := $cls())
    assert {place.type: runs for place, runs in tool.runs.items()} == {"linear": 3, "relu": 3}
""")
_TENSORFLOW = Template("""\
import amanda
import tensorflow as tf

from $module import $cls


@tf.function
def model(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(tf.linalg.matmul(x, tf.ones((4, 3))))


def run(tool: amanda.Tool) -> None:
    with amanda.apply(tool):
        for _ in range(3):
            model(tf.ones((2, 4)))


def test_it_counts_how_often_an_operator_runs() -> None:
    run(tool := $cls(["MatMul"]))
    assert list(tool.runs.values()) == [3]


def test_it_looks_at_all_operators_by_default() -> None:
    run(tool := $cls())
    runs = {place.type: runs for place, runs in tool.runs.items()}
    assert (runs["MatMul"], runs["Relu"]) == (3, 3)
""")
_TESTS = {"torch": _TORCH, "tensorflow": _TENSORFLOW}
FRAMEWORKS = tuple(_TESTS)  # those that a new tool can be tested on
_WRITTEN = Template("""\
$files are written into $name. What to do next:

    cd $name
    python -m pytest                  # passes as it is
    python -m pip install -e .        # gives the tool its name
    amanda run --tool $module train.py""")


def write_new_tool(name: str, framework: str | None = None) -> str:
    """Write a tool of that name into a new folder of that name.

    Args:
        name: of the tool.
        framework: which its test is for; the first one that is installed if None.

    Returns:
        What was written, and what to do next.

    Raises:
        click.UsageError: the name cannot be one, there is such a folder, or it cannot be written.
    """
    if _NAME.fullmatch(name) is None:
        raise click.UsageError(
            f"{name!r} cannot name a tool; write small letters, digits and dashes, as count-conv"
        )
    home = Path(name)
    if os.path.lexists(home):
        raise click.UsageError(f"there is {name!r} already, and it is left as it is")
    module = name.replace("-", "_")
    _check_free(module)
    words = {
        "name": name,
        "package": name.replace("_", "-"),
        "module": module,
        "cls": "".join(part.capitalize() for part in module.split("_")),
    }
    files = {
        "pyproject.toml": _PROJECT,
        f"{module}.py": _TOOL,
        f"test_{module}.py": _TESTS[framework or _installed()],
    }
    with refused(f"{name!r} cannot be written"):
        home.mkdir()
        for file, template in files.items():
            (home / file).write_text(template.substitute(words), encoding="utf-8")
    return _WRITTEN.substitute(words, files=", ".join(files))


def _check_free(module: str) -> None:
    """Check that neither Python nor the command knows something else by a module's name."""
    if module in named_tools():
        raise click.UsageError(f"there is a tool {module!r} already; `amanda tools` lists them")
    taken = keyword.iskeyword(module) or module in sys.stdlib_module_names
    with refused(f"{module!r} cannot name a tool"):
        taken = taken or importlib.util.find_spec(module) is not None
    if taken:
        raise click.UsageError(f"{module!r} means something to Python already; take another name")


def _installed() -> str:
    """Return the first framework that is installed."""
    for framework in _TESTS:
        if importlib.util.find_spec(framework) is not None:
            return framework
    raise click.UsageError(
        "a tool is tested on a framework, and none is installed; `amanda doctor` says how"
    )
