"""A tool that speaks another vocabulary than the backend is told of types that this has not."""

import warnings

import amanda
import pytest
import torch


def told(ops, backward=False):
    """Return what a portable tool is told of its types when a ReLU has run, with its gradient."""
    tool = amanda.Tool(namespace="onnx")
    tool.add_inst_for_op(lambda ctx: None, backward=backward, ops=ops)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with amanda.apply(tool):
            torch.relu(torch.ones(2, requires_grad=True)).sum().backward()
    return [str(w.message) for w in caught if str(w.message).startswith("types")]


@pytest.mark.parametrize(
    ("type", "backward"), [("ReluGrad", False), ("ReluBackward0", False), ("ReluBackward0", True)]
)
def test_a_type_that_the_vocabulary_has_not_is_named(type, backward):
    (warning,) = told([type], backward)
    assert "nothing here has in 'onnx'" in warning
    assert f"{type!r} of Tool" in warning


@pytest.mark.parametrize(
    ("ops", "backward"), [(["Relu"], False), (["ReluGrad"], True), (["Relu", "ConvInteger"], False)]
)
def test_of_those_that_it_has_nothing_is_said(ops, backward):
    assert told(ops, backward) == []


def test_a_tool_that_lists_candidates_is_told_nothing():
    tool = amanda.Tool(namespace="onnx")
    tool.lists_candidates = True
    tool.add_inst_for_op(lambda ctx: None, ops=["ConvInteger"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", amanda.AmandaWarning)
        with amanda.apply(tool):
            torch.relu(torch.ones(2))
