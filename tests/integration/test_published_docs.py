"""The snippets of "From published Amanda", run on a model."""

import pathlib
import re

import amanda
import pytest
import torch

PAGE = pathlib.Path(__file__).parents[2] / "docs/from-published-amanda.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def names():
    """What all of the snippets define."""
    found = {}
    for snippet in SNIPPETS:
        exec(compile(snippet, PAGE.name, "exec"), found)
    return found


def train(tool):
    """A step of a small model under a tool."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.ReLU(), torch.nn.Flatten())
    model.append(torch.nn.Linear(8, 2))
    x = torch.randn(3, 1, 2, 2)
    with amanda.apply(tool):
        model(x).sum().backward()
    return tool


def test_a_published_tool_counts_forward_and_backward(names):
    tool = train(names["CountActivations"]())
    assert (tool.forward, tool.backward) == (1, 1)


def test_nodes_of_autograd_are_found_with_their_number_and_without(names):
    tool = train(names["AllGradientsOfLinear"]())
    assert tool.found == ["AddmmBackward0"] * 2


def test_a_mapping_tool_writes_what_both_sides_read(names):
    tool = train(names["Layers"]())
    assert tool.forward == ["conv", None, None, "dense", None]
    assert {"conv", "dense"} <= set(tool.backward)


def test_an_event_is_an_insertion(names):
    assert train(names["Before"]()).shapes == [("1/relu", (3, 2, 2, 2))]


@pytest.mark.parametrize(("namespace", "seen"), [("pytorch", 1), ("mapping", 1), ("tensorflow", 0)])
def test_the_table_of_namespaces(namespace, seen):
    tool = amanda.Tool(namespace=namespace)
    found = []
    tool.add_inst_for_op(lambda ctx: found.append(ctx.namespace), ops=["relu"])
    train(tool)
    assert found == ["pytorch"] * seen


@pytest.mark.parametrize("namespace", ["Onnx", "tensorfow"])
def test_a_misspelt_vocabulary_is_named(namespace):
    with pytest.raises(amanda.MissingContextMapError, match="did you mean"):
        train(amanda.Tool(namespace=namespace))


def test_a_rule_is_applied_when_outputs_and_gradients_are_known():
    from amanda_contextmap import MappingTool

    seen = []

    def rule(context):
        seen.append(context.is_forward())
        known = context["outputs"] if context.is_forward() else context["grad_inputs"]
        context["counts"] = [*context.get("counts", []), len(known)]

    counts = []
    reading = amanda.Tool()
    reading.depends_on(MappingTool([["pytorch", rule], ["tensorflow", None]], ops=["relu"]))
    reading.add_inst_for_op(
        lambda ctx: counts.append(ctx["counts"]), backward=True, require_outputs=True, ops=["relu"]
    )
    train(reading)
    assert seen == [True, True, False, False]
    assert counts == [[1, 1]]
