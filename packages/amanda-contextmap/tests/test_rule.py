"""How a rule is applied, and how a map chooses among its rules."""

import pytest
from amanda_contextmap import axes, axis, constant, rule
from amanda_contextmap.layout import MATRIX
from amanda_contextmap.onnx_map import OnnxMap
from hand_made import Tensor, translated

X, Y = Tensor(2, 3), Tensor(3)


def by(*rules):
    return OnnxMap("own", {"op": rules})


class TestRoles:
    def test_operands_play_their_roles_in_the_order_of_the_rule(self):
        found = translated(by(rule("Sub", "A=second B=first")), "op", {"first": X, "second": Y})
        assert list(found.roles.items()) == [("A", Y), ("B", X)]

    def test_an_absent_operand_is_left_out(self):
        rules = by(rule("Conv", "X=x W=w B=b"))
        found = translated(rules, "op", {"x": X, "w": Y}, {"b": None})
        assert list(found.roles) == ["X", "W"]
        assert found.attrs == {}

    def test_a_number_in_place_of_a_tensor_is_an_attribute(self):
        found = translated(by(rule("Add", "A=x B=y")), "op", {"x": X}, {"y": 2.5})
        assert list(found.roles) == ["A"]
        assert found.attrs == {"B": 2.5}

    def test_elements_of_a_list_are_numbered(self):
        rules = by(rule("Concat", "inputs=tensors"))
        found = translated(rules, "op", {"tensors[0]": X, "tensors[1]": Y})
        assert found.roles == {"inputs[0]": X, "inputs[1]": Y}

    def test_an_element_of_a_list_may_play_a_role(self):
        rules = by(rule("LSTM", "R=weights[1]"))
        found = translated(rules, "op", {"weights[0]": X, "weights[1]": Y})
        assert found.roles == {"R": Y}

    def test_an_operand_without_a_role_is_hidden(self):
        found = translated(by(rule("Relu", "X=x")), "op", {"state": Y, "x": X})
        assert found.roles == {"X": X}


class TestSettings:
    """What says how to compute: a shape, axes, ..."""

    def test_a_known_one_is_an_attribute(self, array):
        shape = Tensor(2, value=array([3, 2]))
        found = translated(by(rule("Reshape", "data=x shape=s")), "op", {"x": X, "s": shape})
        assert found.roles == {"data": X}
        assert found.attrs == {"shape": [3, 2]}

    def test_one_that_is_not_known_stays_an_operand(self):
        shape = Tensor(2)
        found = translated(by(rule("Reshape", "data=x shape=s")), "op", {"x": X, "s": shape})
        assert found.roles == {"data": X, "shape": shape}
        assert found.attrs == {}

    def test_data_is_no_setting_of_an_operator_that_has_none(self, array):
        keys = Tensor(2, 2, value=array([[1, 2], [3, 4]]))
        found = translated(by(rule("Attention", "Q=q K=k")), "op", {"q": X, "k": keys})
        assert found.roles == {"Q": X, "K": keys}

    @pytest.fixture
    def array(self):
        return pytest.importorskip("numpy").array


class TestAttributes:
    def attrs(self, *attributes, given=(), **attrs):
        return translated(by(rule("Any", "X=x", *attributes, **attrs)), "op", {"x": X}, given).attrs

    def test_by_the_name_of_the_backend(self):
        assert self.attrs(alpha="slope", given={"slope": 0.1}) == {"alpha": 0.1}

    def test_constant(self):
        assert self.attrs(beta=1.5, mode=constant("edge")) == {"beta": 1.5, "mode": "edge"}

    def test_computed(self):
        assert self.attrs(group=lambda op: op.size("x", 0)) == {"group": 2}

    def test_several_at_once(self):
        assert self.attrs(lambda op: {"a": op.rank("x"), "b": 3}) == {"a": 2, "b": 3}

    def test_none_is_left_out(self):
        assert self.attrs(scale="scale", given={"scale": None}) == {}

    def test_what_is_not_known_is_left_out(self):
        assert self.attrs(scale="scale", other="nothing", given={"scale": 2}) == {"scale": 2}

    def test_axes_are_counted_from_the_front(self):
        given = {"dim": -1, "dims": (-2, 1)}
        assert self.attrs(axis=axis("dim", "x"), axes=axes("dims", "x"), given=given) == {
            "axis": 1,
            "axes": [0, 1],
        }


class TestLayouts:
    def test_of_a_role(self):
        found = translated(
            by(rule("Gemm", "A=x B=y", layouts={"B": MATRIX})), "op", {"x": X, "y": Y}
        )
        assert found.layouts == {"A": None, "B": MATRIX}

    def test_of_an_output(self):
        rules = by(rule("Any", "X=x", outputs="Y Z", layouts={"Z": MATRIX}))
        found = translated(rules, "op", {"x": X})
        assert found.outputs == (0, 1)
        assert found.output_layouts == [None, MATRIX]

    def test_by_a_function(self):
        rules = by(
            rule("Any", "X=x", layouts={"X": lambda op: MATRIX if op.rank("x") == 2 else None})
        )
        assert translated(rules, "op", {"x": X}).layouts == {"X": MATRIX}
        assert translated(rules, "op", {"x": Y}).layouts == {"X": None}


class TestChoice:
    RULES = by(
        rule("Vector", "X=x", when=lambda op: op.rank("x") == 1),
        rule("Matrix", "X=x", when=lambda op: op.rank("x") == 2),
    )

    def test_the_first_rule_that_holds(self):
        assert translated(self.RULES, "op", {"x": Y}).type == "Vector"
        assert translated(self.RULES, "op", {"x": X}).type == "Matrix"

    def test_a_rule_that_cannot_be_told_to_hold_does_not(self):
        assert translated(self.RULES, "op", {"x": Tensor(ranked=False)}).type == "own::op"

    def test_an_operator_that_no_rule_is_about_keeps_its_name_and_all_else(self):
        tensors, attrs = {"a": X, "b": Y}, {"p": 1}
        for type in ("op", "other", "lib::op"):
            found = translated(by(), type, tensors, attrs)
            assert found.type == f"own::{type}"
            assert (found.roles, found.attrs) == (tensors, attrs)

    def test_native_types_are_all_that_may_be_of_a_type(self):
        assert self.RULES.native_types(frozenset(["Matrix"])) == {"op"}
        assert self.RULES.native_types(frozenset(["Conv"])) == frozenset()

    def test_and_those_that_are_named_with_their_vocabulary(self):
        named = frozenset(["own::erfinv", "own::lib::op", "another::erfinv"])
        assert self.RULES.native_types(named) == {"erfinv", "lib::op"}
