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

    def test_an_operand_that_is_ignored_is_hidden(self):
        rules = by(rule("Relu", "X=x", ignores="state"))
        assert translated(rules, "op", {"state": Y, "x": X}).roles == {"X": X}


class TestNothingIsDropped:
    """An operator with an argument that a rule says nothing of is not what the rule is about."""

    RELU = by(rule("Relu", "X=x"))

    def test_a_tensor(self):
        assert translated(self.RELU, "op", {"x": X, "state": Y}).type == "own::op"
        assert translated(self.RELU, "op", {"x": X, "states[0]": Y}).type == "own::op"

    @pytest.mark.parametrize("value", [0, False, "", 6.0, [1, 2]])
    def test_an_attribute(self, value):
        assert translated(self.RELU, "op", {"x": X}, {"limit": value}).type == "own::op"

    def test_one_that_is_absent_is_nothing(self):
        assert translated(self.RELU, "op", {"x": X}, {"limit": None}).type == "Relu"

    def test_one_that_the_condition_or_an_attribute_asks_for_is_translated(self):
        rules = by(rule("Elu", "X=x", when=lambda op: op.value("scale") == 1, alpha="alpha"))
        given = {"scale": 1, "alpha": 2.0}
        assert translated(rules, "op", {"x": X}, given).attrs == {"alpha": 2.0}
        assert translated(rules, "op", {"x": X}, given | {"scale": 3}).type == "own::op"

    def test_one_whose_shape_is_asked_for_is_translated(self):
        rules = by(rule("Reshape", "data=x", shape=lambda op: op.sizes("like")))
        assert translated(rules, "op", {"x": X, "like": Y}).attrs == {"shape": [3]}

    def test_what_an_earlier_rule_asked_for_counts_for_no_later_one(self):
        rules = by(rule("Elu", "X=x", when=lambda op: op.value("a") == 1), rule("Relu", "X=x"))
        assert translated(rules, "op", {"x": X}, {"a": 2}).type == "own::op"

    def test_one_that_a_rule_or_the_map_ignores(self):
        ignoring = by(rule("Relu", "X=x", ignores="limit other"))
        assert translated(ignoring, "op", {"x": X}, {"limit": 1}).type == "Relu"
        mapped = OnnxMap("own", {"op": rule("Relu", "X=x")}, {"limit"})
        assert translated(mapped, "op", {"x": X}, {"limit": 1}).type == "Relu"


class TestTypesOfData:
    """Where a framework casts, and ONNX has no operator for it, there is none."""

    ADD = by(rule("Add", "A=x B=y"))
    I32, I64, F64, BOOL = (Tensor(3, dtype=d) for d in ("int32", "int64", "float64", "bool"))

    def test_equal_ones(self):
        assert translated(self.ADD, "op", {"x": self.I64, "y": self.I64}).type == "Add"

    @pytest.mark.parametrize("other", [I32, F64, BOOL])
    def test_different_ones(self, other):
        assert translated(self.ADD, "op", {"x": X, "y": other}).type == "own::op"

    def test_one_that_onnx_does_not_take(self):
        assert translated(self.ADD, "op", {"x": self.BOOL, "y": self.BOOL}).type == "own::op"

    def test_elements_of_a_list_are_of_one_type(self):
        rules = by(rule("Concat", "inputs=t"))
        assert translated(rules, "op", {"t[0]": X, "t[1]": Y}).type == "Concat"
        assert translated(rules, "op", {"t[0]": X, "t[1]": self.I64}).type == "own::op"

    @pytest.mark.parametrize("number", [2, 2.5, True])
    def test_a_number_becomes_what_a_tensor_of_floating_point_is(self, number):
        assert translated(self.ADD, "op", {"x": X}, {"y": number}).type == "Add"

    @pytest.mark.parametrize("number", [2.5, 1j])
    def test_a_number_that_changes_a_tensor_of_integers(self, number):
        assert translated(self.ADD, "op", {"x": self.I64}, {"y": 2}).type == "Add"
        assert translated(self.ADD, "op", {"x": self.I64}, {"y": number}).type == "own::op"

    def test_types_that_onnx_does_not_tie_may_differ(self):
        rules = by(rule("Gather", "data=x indices=i"))
        assert translated(rules, "op", {"x": X, "i": self.I64}).type == "Gather"

    def test_sizes_and_indices_are_seen_in_the_type_that_onnx_has_for_them(self):
        found = translated(by(rule("Reshape", "data=x shape=s")), "op", {"x": X, "s": self.I32})
        assert found.layouts["shape"].dtype == "int64"
        found = translated(by(rule("Reshape", "data=x shape=s")), "op", {"x": X, "s": self.I64})
        assert found.layouts["shape"] is None

    def test_an_operator_that_onnx_does_not_have_takes_what_its_author_says(self):
        rules = by(rule("Swirl", "X=x Y=y"))
        assert translated(rules, "op", {"x": X, "y": self.I64}).type == "Swirl"


class TestSettings:
    """What says how to compute: a shape, axes, ..."""

    def test_a_known_one_is_an_attribute(self, array):
        shape = Tensor(2, value=array([3, 2]))
        found = translated(by(rule("Reshape", "data=x shape=s")), "op", {"x": X, "s": shape})
        assert found.roles == {"data": X}
        assert found.attrs == {"shape": [3, 2]}

    def test_one_that_is_not_known_stays_an_operand(self):
        shape = Tensor(2, dtype="int64")
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

    def test_with_one_that_is_not_known_the_operator_keeps_its_name(self):
        rules = by(rule("Any", "X=x", other="nothing"))
        assert translated(rules, "op", {"x": X}).type == "own::op"

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
