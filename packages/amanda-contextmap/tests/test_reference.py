"""Numbers in place of tensors, as they come to ONNX's reference implementation."""

import numpy as np
import pytest
from amanda_contextmap.testing import reference

HALVES = np.array([4, 9, -1], np.float16)
INTEGERS = np.array([4, 9], np.int32)


def result(type, tensors, **attrs):
    (found,) = reference(type, list(tensors), list(tensors.values()), attrs)
    return found.dtype, found.tolist()


def test_a_number_has_the_type_of_a_related_tensor():
    assert result("Add", {"A": HALVES}, B=1) == (np.float16, [5, 10, 0])
    assert result("Clip", {"input": INTEGERS}, min=5) == (np.int32, [5, 9])


def test_a_number_that_is_related_to_no_tensor_has_its_own():
    assert result("Pow", {"X": HALVES[:2]}, Y=0.5) == (np.float16, [2, 3])


def test_related_numbers_have_one_type():
    assert result("Range", {}, start=0, limit=1.0, delta=0.25) == (np.float32, [0, 0.25, 0.5, 0.75])


def test_the_order_of_related_numbers_does_not_matter():
    condition = {"condition": np.array([True, False])}
    assert result("Where", condition, X=1, Y=2.5) == (np.float32, [1, 2.5])
    assert result("Where", condition, X=2.5, Y=1) == (np.float32, [2.5, 1])


def test_a_number_that_a_related_tensor_cannot_hold_is_refused():
    with pytest.raises(ValueError, match=r"B=4\.5 is no int32"):
        result("Less", {"A": INTEGERS}, B=4.5)
