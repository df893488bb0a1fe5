"""Patterns, on graphs that are made by hand."""

import numpy as np
import pytest
from amanda import Driver
from amanda_contextmap.onnx_map import OnnxMap
from amanda_contextmap.pattern import pattern
from amanda_contextmap.rule import rule


class Shape(tuple):
    @property
    def rank(self):
        return len(self)


class Tensor:
    dtype = "float32"

    def __init__(self, shape):
        self.shape = Shape(shape)


class HandMade:
    """A graph of operators, each with a type, what it takes, and its attributes.

    Names that no operator has are tensors from outside, numbers are constants.
    """

    def __init__(self, shape=(2, 3), **operators):
        self.shape = shape
        self.nodes = operators

    def operators(self):
        return list(self.nodes)

    def type(self, name):
        return self.nodes[name][0] if name in self.nodes else None

    def inputs(self, name):
        taken = self.nodes[name][1]
        return [(taken if isinstance(taken, str) else str(taken), 0) for taken in taken]

    def attrs(self, name):
        return self.nodes[name][2] if len(self.nodes[name]) > 2 else {}

    def readers(self, place):
        return [name for name in self.nodes if place in self.inputs(name)]

    def tensor(self, place):
        return Tensor(self.shape)

    def constant(self, place):
        if self.type(place[0]) == "Computed":
            return np.array([2, 3])
        try:
            return np.array(float(place[0]), np.float32)
        except ValueError:
            return None


def swish(**others):
    return HandMade(gate=("Sigmoid", ["x"]), result=("Mul", ["x", "gate"]), **others)


SWISH = pattern("swish", "Mul(x, Sigmoid(x))")


def test_a_form_matches_operators_of_its_types():
    found = SWISH.match(swish(), "result")
    assert found.parts == ("gate", "result")
    assert found.tensors == {"x": ("x", 0)}


def test_operands_of_commutative_operators_come_in_either_order():
    graph = HandMade(gate=("Sigmoid", ["x"]), result=("Mul", ["gate", "x"]))
    assert SWISH.match(graph, "result").tensors == {"x": ("x", 0)}
    graph = HandMade(gate=("Sigmoid", ["x"]), result=("Sub", ["gate", "x"]))
    assert pattern("less", "Sub(x, Sigmoid(x))").match(graph, "result") is None


def test_a_name_is_the_same_tensor_everywhere():
    graph = HandMade(gate=("Sigmoid", ["y"]), result=("Mul", ["x", "gate"]))
    assert SWISH.match(graph, "result") is None
    assert pattern("gate", "Mul(x, Sigmoid(y))").match(graph, "result") is not None


def test_what_others_read_is_no_inner_part():
    assert SWISH.match(swish(other=("Exp", ["gate"])), "result") is None
    assert SWISH.match(swish(other=("Exp", ["result"])), "result") is not None


def test_copies_that_nothing_reads_do_not_count():
    assert SWISH.match(swish(copy=("Identity", ["gate"])), "result") is not None
    graph = swish(copy=("Identity", ["gate"]), other=("Exp", ["copy"]))
    assert SWISH.match(graph, "result") is None


def test_copies_between_are_parts():
    graph = HandMade(
        gate=("Sigmoid", ["x"]), copy=("Identity", ["gate"]), result=("Mul", ["x", "copy"])
    )
    assert SWISH.match(graph, "result").parts == ("gate", "copy", "result")


def test_numbers_are_constants_of_that_value_as_far_as_it_was_rounded():
    scaled = pattern("scaled", "Mul(x, 0.70710678)")
    assert scaled.match(HandMade(result=("Mul", ["x", 0.70703125])), "result") is not None
    assert scaled.match(HandMade(result=("Mul", ["x", 0.72])), "result") is None
    assert scaled.match(HandMade(result=("Mul", ["x", "y"])), "result") is None


def test_a_name_with_an_underscore_is_a_constant_that_becomes_an_attribute():
    graph = HandMade(result=("Mul", ["x", 0.1]))
    found = pattern("scaled", "Mul(x, _factor)").match(graph, "result")
    assert found.attrs == {"factor": 0.1}
    assert found.tensors == {"x": ("x", 0)}


def test_a_constant_of_one_name_is_the_same_everywhere():
    twice = pattern("twice", "Sub(Mul(x, _factor), _factor)")
    graph = HandMade(inner=("Mul", ["x", 2]), result=("Sub", ["inner", 2]))
    assert twice.match(graph, "result") is not None
    graph = HandMade(inner=("Mul", ["x", 2]), result=("Sub", ["inner", 3]))
    assert twice.match(graph, "result") is None


def test_what_computes_a_constant_alone_is_a_part():
    graph = HandMade(sizes=("Computed", ["1"]), result=("Transpose", ["x", "sizes"]))
    found = pattern("turned", "Transpose(x, _perm)").match(graph, "result")
    assert found.parts == ("sizes", "result")
    assert found.attrs == {"perm": [2, 3]}
    graph.nodes["other"] = ("Exp", ["sizes"])
    found = pattern("turned", "Transpose(x, _perm)").match(graph, "result")
    assert found.parts == ("result",)


def test_a_name_in_brackets_is_a_shape_that_is_computed():
    reshape = pattern("reshape", "Reshape(x, [shape])")
    graph = HandMade((None, 6), sizes=("Pack", ["n", "6"]), result=("Reshape", ["x", "sizes"]))
    found = reshape.match(graph, "result")
    assert found.attrs == {"shape": [-1, 6]}
    assert found.parts == ("sizes", "result")
    graph.shape = (None, None)
    assert reshape.match(graph, "result") is None


def test_what_only_the_shape_of_is_read_is_no_part():
    graph = HandMade(
        y=("Exp", ["z"]),
        like=("Shape", ["y"]),
        result=("Reshape", ["x", "like"]),
    )
    found = pattern("reshape", "Reshape(x, [shape])").match(graph, "result")
    assert found.parts == ("like", "result")


def test_attributes_given_by_keyword_are_those_and_all_others_are_the_composites():
    mean = pattern("mean", "Sub(x, Mean(x, keep_dims=True))")

    def graph(keep):
        return HandMade(
            mean=("Mean", ["x"], {"keep_dims": keep, "T": "float32"}),
            result=("Sub", ["x", "mean"], {"grad": 1}),
        )

    assert mean.match(graph(True), "result").attrs == {"T": "float32", "grad": 1}
    assert mean.match(graph(False), "result") is None


def test_one_of_several_types_and_one_of_several_forms():
    either = pattern("either", "(Exp | Log)(Abs(x))", "Sqrt(x)")
    assert either.roots == {"Exp", "Log", "Sqrt"}
    for type in ("Exp", "Log"):
        graph = HandMade(inner=("Abs", ["x"]), result=(type, ["inner"]))
        assert either.match(graph, "result") is not None
    assert either.match(HandMade(result=("Sqrt", ["x"])), "result") is not None


class Plain(Driver):
    backend = vocabulary = "plain"
    xp = None
    activate = value = describe = variable = incompatible_reason = None


def composites(patterns, table, graph):
    context_map = OnnxMap("plain", table, (), patterns)
    return [(c.type, c.parts) for c in context_map.composites(graph, Plain())]


SWISH_RULE = {"swish": rule("Swish", "X=x", alpha=1.0)}


def test_a_map_finds_the_composites_that_it_has_a_rule_for():
    assert composites([SWISH], SWISH_RULE, swish()) == [("swish", ("gate", "result"))]
    unless = {"swish": rule("Swish", "X=x", when=lambda op: False)}
    assert composites([SWISH], unless, swish()) == []


def test_a_rule_leaves_no_attribute_of_a_composite_out():
    graph = HandMade(gate=("Sigmoid", ["x"], {"mode": "fast"}), result=("Mul", ["x", "gate"]))
    assert composites([SWISH], SWISH_RULE, graph) == []


@pytest.mark.parametrize("first", [0, 1])
def test_of_composites_that_share_operators_that_of_the_first_pattern_is_one(first):
    gate = pattern("gate", "Sigmoid(x)")
    table = SWISH_RULE | {"gate": rule("Sigmoid", "X=x")}
    patterns = [SWISH, gate] if first == 0 else [gate, SWISH]
    found = composites(patterns, table, swish())
    assert found == [[("swish", ("gate", "result"))], [("gate", ("gate",))]][first]
