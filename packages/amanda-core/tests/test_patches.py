"""Patches are in place while anyone holds them, and leave no trace."""

import threading
from types import SimpleNamespace

from amanda.driving import Patches


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
