"""Entries of one's own."""

import amanda
import pytest
from amanda.driving import context_map
from amanda_contextmap import register, rule
from amanda_contextmap.testing import own_entries
from hand_made import Tensor, translated

X = Tensor(2)


@pytest.fixture(autouse=True)
def _as_it_was():
    with own_entries("torch"):
        yield


def look(type, tensors=None, attrs=()):
    return translated(context_map("torch", "onnx"), type, tensors or {"self": X}, attrs)


def test_the_maps_are_found_by_their_entry_points():
    assert context_map("torch", "onnx").vocabulary == "torch"
    assert context_map("tensorflow", "onnx").vocabulary == "tensorflow"


def test_an_operator_of_ones_own():
    register("torch", "mylib::swish", rule("Swish", "X=input", alpha="beta"))
    found = look("mylib::swish", {"input": X}, {"beta": 2.0})
    assert (found.type, found.roles, found.attrs) == ("Swish", {"X": X}, {"alpha": 2.0})
    assert "mylib::swish" in context_map("torch", "onnx").native_types(frozenset(["Swish"]))


def test_another_entry_for_a_known_operator():
    register("torch", "relu", rule("ThresholdedRelu", "X=self", alpha=0.0))
    assert look("relu").type == "ThresholdedRelu"


def test_no_entry_at_all():
    register("torch", "relu")
    assert look("relu").type == "torch::relu"


def test_a_backend_that_has_no_map():
    with pytest.raises(amanda.MissingContextMapError, match="amanda-contextmap"):
        register("jax", "relu", rule("Relu", "X=x"))


def test_entries_of_a_test_are_gone_after_it():
    before = dict(context_map("torch", "onnx").rules)
    with own_entries("torch"):
        register("torch", "relu")
        register("torch", "mylib::swish", rule("Swish", "X=input"))
    assert context_map("torch", "onnx").rules == before
