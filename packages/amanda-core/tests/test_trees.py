"""Trees of tensors, which are numbers of a class of their own here."""

import dataclasses
from collections import OrderedDict, namedtuple

import pytest
from amanda.driving import leaves, tensors_in, with_tensors_in


class Number(int):
    """Stands for a tensor; others are compared by identity, so that equal ones are told apart."""


A, B, C = Number(1), Number(2), Number(3)
Pair = namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass(frozen=True)
class Frozen:
    state: object
    count: int = 0


def is_number(value):
    return isinstance(value, Number)


@pytest.mark.parametrize(
    ("tree", "names"),
    [
        (A, ["t"]),
        ([A, (B, 7)], ["t.0", "t.1.0"]),
        ({"x": A, "y": {"z": B}}, ["t.x", "t.y.z"]),
        (Pair(A, [B]), ["t.left", "t.right.0"]),
        (Frozen((A, B), 3), ["t.state.0", "t.state.1"]),
        (OrderedDict(x=A, y=None), ["t.x"]),
        ({"x": [], "y": {A}}, []),
        (Frozen, []),
    ],
)
def test_tensors_are_named_by_the_keys_that_lead_there(tree, names):
    found = [(name, leaf) for name, leaf in leaves(tree, "t") if is_number(leaf)]
    assert [name for name, _ in found] == names
    assert [leaf for _, leaf in found] == tensors_in(tree, is_number)


def test_what_has_no_name_begins_with_a_key():
    assert [name for name, _ in leaves({"x": [A, 5]})] == ["x.0", "x.1"]


@pytest.mark.parametrize(
    "tree", [[A, B], (A, B), {"x": A, "y": B}, Pair(A, B), Frozen([A, B], 3), OrderedDict(x=A, y=B)]
)
def test_other_tensors_are_packed_in_the_same_way(tree):
    found = with_tensors_in(tree, [A, C], is_number)
    assert type(found) is type(tree)
    assert tensors_in(found, is_number) == [A, C]
    assert tensors_in(tree, is_number) == [A, B]


def test_what_holds_the_same_is_the_same_object():
    inner, other = [A], [B]
    tree = {"inner": inner, "other": other, "rest": object()}
    assert with_tensors_in(tree, [A, B], is_number) is tree
    found = with_tensors_in(tree, [A, C], is_number)
    assert found["inner"] is inner
    assert found["rest"] is tree["rest"]
    assert other == [B]


def test_a_tree_that_holds_itself_ends_there():
    tree = {"x": A}
    tree["self"] = tree
    assert tensors_in(tree, is_number) == [A]
    assert [name for name, _ in leaves(tree)] == ["x", "self"]
    found = with_tensors_in(tree, [B], is_number)
    assert found["x"] is B
    assert found["self"] is tree
