"""Tables of formulas that installed packages announce, here of made-up ones."""

import sys
import warnings

import amanda
import pytest
from amanda.testing.packages import install
from amanda_tools.flops import Flops, registry
from amanda_tools.flops.table import Table

TABLE = """
from amanda_tools.flops import Table

TABLE = Table(views="reshape", copies="gather")


@TABLE.formula("conv", operands=(0, 1))
def conv(inputs, outputs, attrs):
    return {flops}
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a package of one module that announces things; gives the tables that there are."""
    monkeypatch.syspath_prepend(tmp_path)

    def announcing(package, text, **announced):
        module = package.replace("-", "_")
        sys.modules.pop(module, None)  # of another test
        (tmp_path / f"{module}.py").write_text(text)
        entries = "\n".join(f"{name} = {module}:{what}" for name, what in announced.items())
        install(tmp_path, package, entry_points=f"[amanda.flops]\n{entries}\n")
        registry.tables.cache_clear()

    yield announcing
    registry.tables.cache_clear()


def test_a_package_announces_one_for_a_framework_of_its_own(installed):
    installed("toy-flops", TABLE.format(flops=600), toy="TABLE")
    table = registry.tables()["toy"]
    assert table.formulas["conv"].forward([], [], {}) == 600
    assert (table.views, table.copies) == ({"reshape"}, {"gather"})


def test_the_tool_counts_by_it(installed, toy):
    installed("toy-flops", TABLE.format(flops="2 * inputs[0][0] * outputs[0][1]"), toy="TABLE")
    flops = Flops()
    with amanda.apply(flops):
        toy.forward("a/conv", 1, shape=(2, 3))
        toy.forward("a/reshape", 1)
        toy.forward("a/relu", 1)
    total = flops.total()
    assert (total.forward, total.macs, total.uncounted) == (12, 6, {"relu": 1})


def test_what_two_packages_tell_of_a_framework_is_put_together(installed):
    installed("one-flops", TABLE.format(flops=1), toy="TABLE")
    installed("two-flops", TABLE.format(flops=2).replace("conv", "dot"), toy="TABLE")
    formulas = registry.tables()["toy"].formulas
    assert {type: f.forward([], [], {}) for type, f in formulas.items()} == {"conv": 1, "dot": 2}


def test_those_of_this_package_stay_and_others_are_added_to_them(installed):
    text = TABLE.format(flops=1).replace('"conv"', '"conv2d", "mylib::conv"')
    installed("a-flops", text, torch="TABLE")
    with pytest.warns(amanda.AmandaWarning, match=r"a_flops:TABLE of a-flops gives .*: conv2d$"):
        formulas = registry.tables()["torch"].formulas
    assert formulas["mylib::conv"].forward([], [], {}) == 1
    assert formulas["conv2d"].forward is not formulas["mylib::conv"].forward


def test_of_two_formulas_for_a_type_that_of_the_first_package_stays(installed):
    installed("two-flops", TABLE.format(flops=2), toy="TABLE")
    installed("one-flops", TABLE.format(flops=1), toy="TABLE")
    with pytest.warns(amanda.AmandaWarning, match=r"left out: .*two-flops gives .*: conv$"):
        assert registry.tables()["toy"].formulas["conv"].forward([], [], {}) == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import nothing_of_that_name", "No module named 'nothing_of_that_name'"),
        ("TABLE = {}", "broken_flops:TABLE is dict, not a Table"),
        ("", "TABLE"),
    ],
)
def test_one_that_is_broken_is_left_out_and_named(installed, text, why):
    installed("broken-flops", text, toy="TABLE")
    with pytest.warns(amanda.AmandaWarning, match=f"TABLE of broken-flops cannot be .*{why}"):
        assert set(registry.tables()) == {"torch", "tensorflow"}


def test_our_own_are_announced_in_the_same_way(installed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tables = registry.tables()
    assert set(tables) == {"torch", "tensorflow"}
    assert all(isinstance(table, Table) and table.formulas for table in tables.values())
