"""The conformance suite says by what it holds, and each of its statements is made once."""

import re
from pathlib import Path

import pytest
from amanda.testing import Conformance, InPlace
from amanda.testing.cases import case

pytest_plugins = ["pytester"]

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


SHARE = """
    import numpy as np
    from amanda.testing.models import Sharing
    from amanda.testing.program import Program

    PROGRAM = Program("y = act/relu(x)")

    class Adapter:
        def build(self, program, parameters):
            return dict(parameters)

    class TestSharing(Sharing):
        adapter = Adapter()

        def model(self, value=1.0):
            return self.shared(PROGRAM, {"w": np.array(value)})

        def test_first(self):
            self.model()["left"] = True

        def test_the_same_model(self):
            assert "left" in self.model()

        def test_other_values(self):
            assert "left" not in self.model(2.0)

        def test_failing(self):
            assert not self.model()

        def test_after_a_failure(self):
            assert "left" not in self.model()
"""


def test_tests_share_models_of_the_same_parameters_until_one_fails(pytester):
    pytester.makepyfile(SHARE)
    passed, _, failed = pytester.inline_run().listoutcomes()
    assert len(passed) == 4
    assert [report.nodeid.rpartition("::")[2] for report in failed] == ["test_failing"]


def test_a_case_that_fails_is_named():
    named = pytest.raises(AssertionError, match="in the case 'before', 2: DID NOT RAISE")
    with named, case("before", 2), pytest.raises(KeyError):
        pass
