"""Which Einstein sums are linear layers, and how their tensors are seen."""

import pytest
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


@pytest.mark.parametrize(
    ("equation", "data", "weight"),
    [
        ("ab,ac->bc", (3, 4), (3, 5)),  # over the axis of the batch
        ("abc,abd->abcd", (2, 3, 4), (2, 3, 5)),  # over none
        ("ab,bc->ca", (3, 4), (4, 5)),  # transposed
        ("aa,ab->b", (3, 3), (3, 4)),  # a diagonal
        ("...b,bc->...c", (3, 4), (4, 5)),
        ("ab,bc", (3, 4), (4, 5)),
        ("ab,b->a", (3, 4), (4,)),
    ],
)
def test_any_other_sum_is_none(equation, data, weight):
    assert found(equation, data, weight).type == "Einsum"


def test_a_product_of_two_activations_is_none():
    assert found("ab,bc->ac", (3, 4), (4, 5), parameter=False).type == "Einsum"
