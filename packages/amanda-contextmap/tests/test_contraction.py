"""Which Einstein sums are linear layers, and how their tensors are seen."""

import pytest
from amanda_contextmap.tensorflow import context_map as tensorflow_map
from amanda_contextmap.torch import context_map
from hand_made import Tensor, translated

np = pytest.importorskip("numpy")


def found(equation, data, weight, parameter=True):
    tensors = {"tensors[0]": Tensor(*data), "tensors[1]": Tensor(*weight, parameter=parameter)}
    return translated(context_map, "einsum", tensors, {"equation": equation, "path": None})


def turned(layout, array, way="to_canonical"):
    return array if layout is None else getattr(layout, way)(array, np)


LINEAR = [
    ("ab,bc->ac", (3, 4), (4, 5)),
    ("ab,cb->ac", (3, 4), (5, 4)),
    ("abc,cd->abd", (2, 3, 4), (4, 5)),
    ("abc,cde->abde", (2, 3, 4), (4, 2, 5)),
    ("abc,dce->abde", (2, 3, 4), (2, 4, 5)),
    ("abcd,cde->abe", (2, 3, 4, 5), (4, 5, 6)),
    ("abcd,dce->abe", (2, 3, 4, 5), (5, 4, 6)),
    ("a,ab->b", (3,), (3, 4)),
]


@pytest.mark.parametrize(("equation", "data", "weight"), LINEAR)
def test_a_product_with_a_matrix_of_parameters_is_a_linear_layer(equation, data, weight):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=data), rng.normal(size=weight)
    operator = found(equation, data, weight)
    assert operator.type == "Gemm"
    a, b = turned(operator.layouts["A"], x), turned(operator.layouts["B"], w)
    assert b.ndim == 2
    product = turned(operator.output_layouts[0], a @ b.T, "to_native")
    np.testing.assert_allclose(product, np.einsum(equation, x, w))


@pytest.mark.parametrize(("equation", "data", "weight"), LINEAR)
def test_what_a_tool_returns_is_turned_back(equation, data, weight):
    w = np.random.default_rng(0).normal(size=weight)
    layout = found(equation, data, weight).layouts["B"]
    assert (layout.to_native(layout.to_canonical(w, np), np) == w).all()


PRODUCTS = [
    ("ab,bc->ac", (3, 4), (4, 5)),
    ("ab,bc->ca", (3, 4), (4, 5)),
    ("ab,ac->bc", (3, 4), (3, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("aecd,abcd->acbe", (2, 5, 3, 4), (2, 6, 3, 4)),  # scores of attention
    ("acbe,aecd->abcd", (2, 3, 6, 5), (2, 5, 3, 4)),  # and what they choose
    ("ibj,jkb->kib", (3, 2, 4), (4, 5, 2)),
    ("bij,bjk->bik", (1, 3, 4), (2, 4, 5)),  # a batch of one is repeated, as ONNX does
]


@pytest.mark.parametrize(("equation", "left", "right"), PRODUCTS)
def test_a_product_of_batches_is_one_of_matrices(equation, left, right):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=left), rng.normal(size=right)
    operator = found(equation, left, right, parameter=False)
    assert operator.type == "MatMul"
    assert operator.attrs == {}
    a, b = turned(operator.layouts["A"], x), turned(operator.layouts["B"], y)
    product = turned(operator.output_layouts[0], a @ b, "to_native")
    np.testing.assert_allclose(product, np.einsum(equation, x, y))


@pytest.mark.parametrize(("equation", "left", "right"), PRODUCTS)
def test_operands_that_a_tool_returns_are_turned_back(equation, left, right):
    operator = found(equation, left, right, parameter=False)
    for role, shape in (("A", left), ("B", right)):
        array = np.random.default_rng(0).normal(size=shape)
        back = turned(operator.layouts[role], turned(operator.layouts[role], array), "to_native")
        assert (back == array).all()


def test_tensorflow_has_the_same_sums():
    tensors = {"inputs[0]": Tensor(2, None, 3, 4), "inputs[1]": Tensor(2, 6, 3, 4)}
    attrs = {"equation": "aecd,abcd->acbe"}
    assert translated(tensorflow_map, "Einsum", tensors, attrs).type == "MatMul"
    tensors["inputs[1]"] = Tensor(3, 4, 5, parameter=True)
    attrs = {"equation": "abcd,cde->abe"}
    assert translated(tensorflow_map, "Einsum", tensors, attrs).type == "Gemm"


@pytest.mark.parametrize(
    ("equation", "data", "weight"),
    [
        ("abc,abd->abcd", (2, 3, 4), (2, 3, 5)),  # over none
        ("abc,abd->cd", (2, 3, 4), (2, 3, 5)),  # over two axes
        ("abc,acd->ad", (2, 3, 4), (2, 4, 5)),  # also over one of the first operand alone
        ("abcd,ade->abce", (2, 3, 4, 5), (2, 5, 6)),  # with two axes of rows
        ("aa,ab->b", (3, 3), (3, 4)),  # a diagonal
        ("...b,bc->...c", (3, 4), (4, 5)),
        ("ab,bc", (3, 4), (4, 5)),
        ("ab,b->a", (3, 4), (4,)),
        ("ab,bc->ac", (3, 1), (4, 5)),  # PyTorch repeats the column
        ("ab,bc->ac", (3, 4), (1, 5)),
        ("ab,bc->ac", (3, 4, 2), (4, 5)),  # which is an error
    ],
)
@pytest.mark.parametrize("parameter", [False, True])
def test_any_other_sum_is_none(equation, data, weight, parameter):
    assert found(equation, data, weight, parameter).type == "Einsum"


def test_a_linear_layer_has_a_parameter():
    assert found("ab,bc->ac", (3, 4), (4, 5), parameter=False).type == "MatMul"
    assert found("abcd,cde->abe", (2, 3, 4, 5), (4, 5, 6), parameter=False).type == "Einsum"
