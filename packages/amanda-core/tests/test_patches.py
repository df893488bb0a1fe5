"""Patches are in place while anyone holds them, and leave no trace."""

import importlib
import sys
import threading
from types import SimpleNamespace

import pytest
from amanda.driving import OnImport, Patches


class Base:
    def call(self):
        return "original"


class Derived(Base):
    pass


def test_they_are_in_place_while_held():
    framework = SimpleNamespace(call="original")
    patches = Patches(lambda: [(framework, "call", "patched")])
    patches.hold(True)
    assert framework.call == "patched"
    patches.hold(False)
    assert framework.call == "original"


def test_one_that_lets_go_twice_or_never_held_them_changes_nothing():
    framework = SimpleNamespace(call="original")
    patches = Patches(lambda: [(framework, "call", "patched")])
    patches.hold(True, "other")
    patches.hold(False)
    patches.hold(False)
    assert framework.call == "patched"


def test_they_stay_until_the_last_thread_lets_go():
    framework = SimpleNamespace(call="original")
    patches = Patches(lambda: [(framework, "call", "patched")])
    patches.hold(True)
    active = []

    def other():
        patches.hold(True)
        patches.hold(False)
        active.append(framework.call)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert active == ["patched"]
    patches.hold(False)
    assert framework.call == "original"


def test_what_a_class_inherits_it_inherits_again():
    patches = Patches(lambda: [(Derived, "call", lambda self: "patched")])
    patches.hold(True)
    assert (Derived().call(), Base().call()) == ("patched", "original")
    patches.hold(False)
    assert Derived().call() == "original"
    assert "call" not in vars(Derived)


def test_others_that_are_added_while_they_are_held_go_with_them():
    framework = SimpleNamespace(call="original", other="original")
    patches = Patches(lambda: [(framework, "call", "patched")])
    patches.add([(framework, "other", "patched")])
    assert framework.other == "original"
    patches.hold(True)
    patches.add([(framework, "other", "patched")])
    assert framework.other == "patched"
    patches.hold(False)
    assert (framework.call, framework.other) == ("original", "original")


def test_a_module_that_is_imported_while_they_are_held_is_patched_then(library):
    patches, others = (Patches(lambda each=each: [of_library(each)]) for each in ("a", "b"))
    patches.hold(True)
    others.hold(True)  # of another framework's driver, that knows the same library
    assert library.imported().called == ["a", "b"]
    others.hold(False)
    patches.hold(False)
    assert library.imported().called == []


def test_a_module_that_was_imported_before_is_patched_at_once(library):
    module = library.imported()
    patches = Patches(lambda: [of_library("a")])
    patches.hold(True)
    assert module.called == ["a"]


def test_a_module_that_is_imported_once_nobody_holds_them_is_left_alone(library):
    before = list(sys.meta_path)
    patches = Patches(lambda: [of_library("a")])
    patches.hold(True)
    patches.hold(False)
    assert library.imported().called == []
    assert sys.meta_path == before


def test_a_module_whose_import_failed_is_patched_once_that_succeeds(library):
    patches = Patches(lambda: [of_library("a")])
    patches.hold(True)
    library.write("raise ImportError")
    with pytest.raises(ImportError):
        library.imported()
    library.write("called = []")
    assert library.imported().called == ["a"]
    assert "exec_module" not in vars(library.imported().__loader__)
    patches.hold(False)


def of_library(name):
    return OnImport("late_library.part", lambda part: [(part, "called", [*part.called, name])])


class Library:
    """A package with one module, that is imported when it is asked for."""

    def __init__(self, folder):
        self._folder = folder / "late_library"
        self._folder.mkdir()
        (self._folder / "__init__.py").write_text("from late_library import part")
        self.write("called = []")

    def write(self, source):
        (self._folder / "part.py").write_text(source)
        importlib.invalidate_caches()

    def imported(self):
        return importlib.import_module("late_library").part


@pytest.fixture
def library(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield Library(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "late_library"]:
        del sys.modules[name]
