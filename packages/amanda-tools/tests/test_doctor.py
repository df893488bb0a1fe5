"""What ``amanda doctor`` says of drivers: those installed here, and made-up ones."""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import pytest
from amanda.driving import announced
from amanda.testing.packages import install
from amanda_tools import doctor
from rich.console import Console

DRIVER = """
from amanda import Driver

class Made(Driver):
    backend = vocabulary = "pastel"
    xp = None
    def activate(self, engine): ...
    def value(self, tensor): ...
    def describe(self, tensor): ...
    def variable(self, initial, execution): ...
    def incompatible_reason(self, original, substitute): ...

driver = Made()
"""


class Site:
    """Installs a framework ``pastel`` with its driver into a folder."""

    def __init__(self, folder):
        self.folder = folder

    def install(self, driver=DRIVER, version="1.5.2", tested=None, framework=True):
        if framework:
            (self.folder / "pastel.py").touch()
            install(self.folder, "pastel", version, top_level="pastel\n")
        (self.folder / "pastel_driver.py").write_text(driver)
        more = ""
        if tested is not None:
            more = f"Provides-Extra: tested\nRequires-Dist: pastel{tested}; extra == 'tested'\n"
        announcement = "[amanda.drivers]\npastel = pastel_driver:driver\n"
        install(self.folder, "pastel-driver", "3.1", more, entry_points=announcement)


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    yield Site(tmp_path)
    sys.modules.pop("pastel_driver", None)


def examined(monkeypatch):
    """The rows of a report on the driver of pastel alone, by label; and whether all is well."""
    found = [driver for driver in announced() if driver.framework == "pastel"]
    monkeypatch.setattr(doctor, "announced", lambda: found)
    monkeypatch.setattr(doctor, "frameworks", list)
    report, healthy = doctor.examine()
    console = Console(width=300)
    with console.capture() as capture:
        console.print(report)
    table = capture.get().partition("\n\n")[0]
    rows = (line.split(maxsplit=1) for line in table.splitlines())
    return {label: " ".join(state.split()) for label, state in rows}, healthy


def test_it_lists_every_package_and_the_driver_of_another_author(site, tmp_path):
    site.install()
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "amanda"), "doctor"],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
            "COLUMNS": "300",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert "Next: run a script of your own that uses torch" in done.stdout
    packages = ["amanda-core", "amanda-contextmap", "amanda-tools"]
    assert {*packages, "amanda-torch", "amanda-tensorflow"} <= rows.keys()
    assert rows["pastel-driver"] == ["3.1"]
    assert rows["pastel"] == ["1.5.2,", "driven", "by", "pastel_driver"]
    assert "driven by amanda_torch" in done.stdout


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        ("raise ImportError('needs pastel<2')", "needs pastel<2"),
        ("raise RuntimeError('[/x] no')", "RuntimeError: [/x] no"),
        ("driver = 1", "int, not a Driver"),
        ("", "AttributeError"),
    ],
)
def test_a_driver_that_does_not_load_is_not_called_well(site, monkeypatch, driver, reason):
    site.install(driver)
    rows, healthy = examined(monkeypatch)
    assert not healthy
    assert rows["pastel"].startswith("1.5.2, without a driver that works: ")
    assert reason in rows["pastel"]


def test_a_driver_whose_framework_is_not_there_is_no_fault(site, monkeypatch):
    site.install("raise SystemError('loaded')", framework=False)
    rows, _ = examined(monkeypatch)
    assert rows["pastel"] == "not installed"


@pytest.mark.parametrize(
    ("version", "tested", "said"),
    [
        ("1.5.2", "<1.5,>=1.2", True),
        ("1.5.0.dev1+cpu", "<1.5", True),
        ("2.0", "<1.5", True),
        ("1.4.9", "<1.5,>=1.2", False),
        ("1.4.9", "<=1.4", False),
        ("1.5", "<=1.4", True),
        ("1.10", "<1.9", True),
        ("2.0", ">=1.2", False),
        ("2.0", None, False),
    ],
)
def test_a_framework_newer_than_any_tested_is_said_to_be(site, monkeypatch, version, tested, said):
    site.install(version=version, tested=tested)
    rows, healthy = examined(monkeypatch)
    assert ("newer than any tested" in rows["pastel"]) is said
    assert healthy


def last_words(**state):
    found = {"usable": [], "missing": [], "failures": [], **state}
    return list(doctor.what_next(**found))


def test_it_tells_what_to_install(monkeypatch):
    monkeypatch.setattr(doctor, "announced", list)
    report, healthy = doctor.examine()
    console = Console(width=200)
    with console.capture() as capture:
        console.print(report)
    assert not healthy
    assert "Next: install a driver" in capture.get()
    assert "python -m pip install 'amanda-core[torch]'" in capture.get()


def test_packages_that_are_on_the_path_and_not_installed_are_told(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "requires", missing)
    monkeypatch.setattr(doctor, "version", missing)
    monkeypatch.setattr(doctor, "announced", list)
    report, _ = doctor.examine()
    console = Console(width=200)
    with console.capture() as capture:
        console.print(report)
    assert re.search(r"amanda-core +not installed", capture.get())


def test_it_ends_with_a_first_run_where_all_is_well():
    first, *commands = last_words(usable=["torch"])
    assert first == "Next: run a script of your own that uses torch."
    assert commands[0].strip() == "amanda run train.py"


def test_a_framework_without_a_driver_is_beside_the_first_run():
    said = last_words(usable=["torch"], missing=["tensorflow"])
    assert said[0].startswith("Next: run ")
    assert said[-2].startswith("Also: install a driver")
    assert said[-1].startswith("  for tensorflow: python -m pip install")


def test_what_fails_comes_before_any_run():
    (said,) = last_words(usable=["torch"], failures=["[/x]"])
    assert said.startswith(r"Next: mend what fails above (\[/x])")


@pytest.mark.parametrize(
    ("requirement", "version", "newer"),
    [
        ("kiln<2.16,>=2.8", "2.8.0", False),
        ("kiln<2.16,>=2.8", "2.15.1+cu132", False),
        ("kiln<2.16,>=2.8", "2.16", True),
        ("kiln<2.16,>=2.8", "2.16.0.dev20261130", True),
        ("kiln<2.16,>=2.8", "10.0", True),
        ("kiln<=2.15", "2.15.3", False),
        ("kiln<=2.15", "2.16", True),
        ("kiln>=2.8", "10.0", False),
    ],
)
def test_a_version_newer_than_any_tested_is_told(requirement, version, newer):
    assert doctor.is_newer(version, requirement) is newer
