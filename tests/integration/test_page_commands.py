"""The commands that pages show exist, with the tools and options that they name."""

import re
import shlex

import pages
import pytest
from amanda_tools import registry
from amanda_tools.command import commands

COMMAND = re.compile(r"(?:^ *|`)amanda ((?:run|ops|merge|compare|report) [^`\n#]*)", re.MULTILINE)
OWN = re.compile(r"my_|package\.|count_conv")  # tools that a reader writes
SHOWN = [
    (page, found.strip())
    for page in pages.every()
    for found in COMMAND.findall(pages.text(page))
    if not re.search(r"[][]|\.\.\.|NAME", found)  # which say how one is written
]


def test_pages_show_commands():
    assert len({page for page, _ in SHOWN}) > 5


@pytest.mark.parametrize(("page", "line"), SHOWN)
def test_a_command_is_one(page, line):
    name, *arguments = shlex.split(line)
    program = [] if ".py" in line or name not in ("run", "ops") else ["train.py"]
    given = commands.commands[name].make_context(name, [*arguments, *program]).params
    for tool in given.get("lines", ()):
        if not OWN.match(tool):
            registry.request(tool)
