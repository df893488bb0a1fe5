"""The conformance suite says by what it holds, and each of its statements is made once."""

import re
from pathlib import Path

import pytest
from amanda.testing import Conformance, InPlace

SUITES = [InPlace, *Conformance.__bases__]


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.__name__)
def test_every_class_says_by_what_statement_of_the_semantics_it_holds(suite):
    semantics = (Path(__file__).parents[3] / "docs" / "semantics.md").read_text()
    headings = re.findall(r"^## (.*)$", semantics, re.MULTILINE)
    anchors = [re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings]
    named = re.findall(r"docs/semantics\.md#([a-z0-9-]+)", suite.__doc__)
    assert named
    assert set(named) <= set(anchors)
    for anchor in named:
        section = semantics.split("\n## ")[1 + anchors.index(anchor)]
        assert f"`{suite.__name__}`" in section


def test_no_class_hides_what_another_one_has():
    names = [name for suite in SUITES for name in vars(suite) if not name.startswith("__")]
    assert len(names) == len(set(names))
