"""Layouts lead to what ONNX has, and back."""

import numpy as np
import pytest
from amanda_contextmap.layout import (
    CHANNELS_LAST,
    KERNEL_IO,
    MATRIX,
    UNBATCHED,
    Chain,
    Directions,
    Expanded,
    Gates,
    Permute,
    Reshaped,
    Squeezed,
)

CASES = {
    # layout, native shape, canonical shape
    "NHWC": (CHANNELS_LAST, (2, 5, 6, 3), (2, 3, 5, 6)),
    "NWC": (CHANNELS_LAST, (2, 5, 3), (2, 3, 5)),
    "NDHWC": (CHANNELS_LAST, (2, 4, 5, 6, 3), (2, 3, 4, 5, 6)),
    "HWIO": (KERNEL_IO, (5, 6, 3, 8), (8, 3, 5, 6)),
    "WIO": (KERNEL_IO, (5, 3, 8), (8, 3, 5)),
    "DHWIO": (KERNEL_IO, (4, 5, 6, 3, 8), (8, 3, 4, 5, 6)),
    "in, out": (MATRIX, (3, 8), (8, 3)),
    "batched matrices": (MATRIX, (2, 3, 8), (2, 8, 3)),
    "one example": (UNBATCHED, (3, 5, 6), (1, 3, 5, 6)),
    "bias": (Reshaped((-1,), (-1, 1, 1)), (3,), (3, 1, 1)),
    "gates": (Gates((0, 3, 1, 2)), (8, 3), (8, 3)),
    "directions": (Directions(2, axis=1), (7, 2, 10), (7, 2, 2, 5)),
    "one axis less": (Squeezed(1), (2, 1, 5, 3), (2, 5, 3)),
    "chain": (Chain(Permute(0, 1), Expanded(0)), (3, 8), (1, 8, 3)),
}


@pytest.mark.parametrize(("layout", "native", "canonical"), CASES.values(), ids=CASES)
def test_there_and_back(layout, native, canonical):
    tensor = np.arange(np.prod(native)).reshape(native)
    turned = layout.to_canonical(tensor, np)
    assert turned.shape == canonical
    np.testing.assert_array_equal(layout.to_native(turned, np), tensor)


def test_a_kernel_has_its_elements_where_onnx_has_them():
    kernel = np.random.default_rng(0).standard_normal((5, 6, 3, 8))
    assert KERNEL_IO.to_canonical(kernel, np)[7, 2, 4, 1] == kernel[4, 1, 2, 7]


def test_gates_are_put_in_order():
    gates = np.repeat(["i", "f", "g", "o"], 2)
    assert "".join(Gates((0, 3, 1, 2)).to_canonical(gates, np)) == "iiooffgg"
