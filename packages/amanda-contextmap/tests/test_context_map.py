"""What the subscriptions of a portable tool look at on a backend that a map translates."""

import pytest
from amanda import Tool
from amanda.driving import View
from amanda_contextmap import ContextMap


class Capitals(ContextMap):
    """Says ``SHOUT`` of the native ``shout`` and ``yell``, and ``WHISPER`` of ``whisper``."""

    NATIVE = {"SHOUT": {"shout", "yell"}, "WHISPER": {"whisper"}}

    def native_types(self, types):
        return frozenset().union(*(self.NATIVE.get(type, ()) for type in types))

    def types(self):
        return frozenset(self.NATIVE)

    def translate(self, execution, driver):
        raise AssertionError("selecting looks at no execution")


def selection(ops, restricted=None, **view):
    tool = Tool(namespace="capitals")
    if restricted is not None:
        tool.restrict(restricted)
    if view.pop("gradient", False):
        tool.add_inst_for_gradient(print, ops=ops)
    else:
        tool.add_inst_for_op(print, ops=ops, **view)
    return Capitals().select(tool.subscriptions[0], driver=None)


def test_all_native_types_that_may_be_of_a_type_are_looked_at():
    found = selection(["SHOUT"])
    assert (found.view, found.types, found.forward) == (View.FORWARD, {"SHOUT"}, {"shout", "yell"})


def test_without_types_every_operator_is_looked_at():
    found = selection(None)
    assert (found.types, found.forward, found.near) == (None, None, frozenset())


@pytest.mark.parametrize("ops", [["WHISPERGrad"], ["WHISPER"]])
def test_a_backward_operator_is_the_gradient_of_an_operator_as_a_whole(ops):
    found = selection(ops, backward=True)
    assert (found.view, found.types, found.forward) == (View.GRADIENT, set(ops), {"whisper"})


def test_a_gradient_as_a_whole_stays_one():
    found = selection(["WHISPER"], gradient=True)
    assert (found.view, found.forward) == (View.GRADIENT, {"whisper"})


def test_a_restricted_tool_looks_at_what_it_wants_of_these_types_alone():
    found = selection(["SHOUT", "WHISPER"], restricted=["WHISPER", "SING"])
    assert (found.types, found.forward) == ({"WHISPER"}, {"whisper"})


def test_what_a_misspelt_type_may_mean_is_watched():
    found = selection(["Whisper", "SHOUT"])
    assert found.forward == {"shout", "yell"}
    assert found.near == {"whisper"}


def test_a_map_that_lists_no_types_guesses_none():
    class Silent(Capitals):
        def types(self):
            return ContextMap.types(self)

    tool = Tool(namespace="capitals")
    tool.add_inst_for_op(print, ops=["Whisper"])
    found = Silent().select(tool.subscriptions[0], driver=None)
    assert found.near == frozenset()
