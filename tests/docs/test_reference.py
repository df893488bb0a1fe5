"""The reference has a section for each name that is public."""

import re

import amanda
import pages


def test_of_what_a_tool_imports():
    named = re.findall(r"^::: amanda\.(\w+)$", pages.text("docs/reference/amanda.md"), re.MULTILINE)
    assert sorted(named) == sorted(amanda.__all__)
