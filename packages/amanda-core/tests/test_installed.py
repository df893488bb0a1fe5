"""What installed packages announce, when one of them is broken."""

import warnings

import pytest
from amanda import AmandaWarning
from amanda._drivers.discovery import warn_once
from amanda.driving import entry_points_of
from amanda.testing.packages import install


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a package with this file of entry points."""
    monkeypatch.syspath_prepend(tmp_path)

    return lambda name, text: install(tmp_path, name, entry_points=text)


def test_entry_points_of_a_group_are_listed(package):
    package("whole", "[a.group]\none = module:first\n[another]\ntwo = module:second\n")
    assert [(e.name, e.value) for e in entry_points_of("a.group")] == [("one", "module:first")]


def test_a_broken_package_is_named_and_takes_nothing_from_the_others(package):
    package("whole", "[a.group]\none = module:first\n")
    package("broken_one", "[a.group]\nneither name nor value\n")
    with pytest.warns(AmandaWarning, match="what the package broken_one announces cannot be read"):
        found = entry_points_of("a.group")
    assert [entry.name for entry in found] == ["one"]


def test_a_warning_comes_once():
    with pytest.warns(AmandaWarning, match="this is said once"):
        warn_once("this is said once")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_once("this is said once")
