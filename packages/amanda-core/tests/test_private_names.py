"""Names of a framework that a driver uses though they are not documented, and which versions."""

import sys
from types import ModuleType, SimpleNamespace

import amanda
import pytest
from amanda.driving import PrivateNames, versions_tested
from amanda.testing.packages import install


@pytest.fixture
def framework(monkeypatch):
    """A framework with a submodule that holds a class and a function."""
    module, inner = ModuleType("kiln"), ModuleType("kiln.inner")
    inner.Graph = SimpleNamespace(_add=len)
    inner._run = max
    module.__path__ = []
    module.__version__ = "3.1.4"
    monkeypatch.setitem(sys.modules, "kiln", module)
    monkeypatch.setitem(sys.modules, "kiln.inner", inner)
    return module


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Puts metadata of distributions where they are found."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(name, version, *requirements):
        install(tmp_path, name, version, "".join(f"Requires-Dist: {r}\n" for r in requirements))

    return put


def test_a_name_is_found_in_a_module_that_is_no_attribute_of_the_package(framework):
    assert PrivateNames("kiln-driver", "kiln").find("kiln.inner._run") is max


def test_members_are_checked_and_the_value_itself_is_returned(framework):
    find = PrivateNames("kiln-driver", "kiln").find
    assert find("kiln.inner", "Graph._add", "_run") is sys.modules["kiln.inner"]


@pytest.mark.parametrize(
    ("path", "members", "missing"),
    [
        ("kiln.inner._gone", (), "kiln.inner._gone"),
        ("kiln.gone._run", (), "kiln.gone"),
        ("kiln.inner", ("Graph._add", "Graph._gone"), "kiln.inner.Graph._gone"),
    ],
)
def test_a_missing_name_says_which_driver_which_version_and_what_to_install(
    framework, installed, path, members, missing
):
    installed("kiln-driver", "0.2", 'kiln<3,>=1.5; extra == "tested"')
    with pytest.raises(amanda.IncompatibleVersionError) as raised:
        PrivateNames("kiln-driver", "kiln").find(path, *members)
    assert str(raised.value) == (
        f"kiln-driver 0.2 does not work with kiln 3.1.4, which has no {missing}; it was tested "
        "with kiln<3,>=1.5: python -m pip install 'kiln-driver[tested]'"
    )


def test_a_missing_name_is_an_error_of_import_and_of_amanda(framework):
    assert issubclass(amanda.IncompatibleVersionError, ImportError)
    assert issubclass(amanda.IncompatibleVersionError, amanda.AmandaError)


def test_the_versions_that_a_driver_was_tested_with_are_those_of_its_extra(installed):
    requirements = ("amanda-core", "kiln>=1.2", "kiln-ml<3,>=1.5 ; extra == 'tested'")
    installed("kiln-driver", "0.2", *requirements)
    assert versions_tested("kiln-driver") == "kiln-ml<3,>=1.5"


def test_a_driver_that_declares_none_has_none(installed):
    installed("kiln-driver", "0.2", "kiln>=1.2", 'pytest>=8,<9; extra == "testing"')
    assert versions_tested("kiln-driver") is None
    assert versions_tested("kiln-driver-of-nobody") is None
