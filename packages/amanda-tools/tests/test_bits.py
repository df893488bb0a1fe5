"""Bits of numbers, held to what ``struct`` makes of their bytes."""

import struct

import numpy as np
import pytest
from amanda_tools.bits import flipped, positions

CODES = {"float16": "<e", "float32": "<f", "float64": "<d", "int8": "<b", "uint16": "<H"}
CODES |= {"int32": "<i", "int64": "<q"}


def by_bytes(value, bit, code):
    data = bytearray(struct.pack(code, value))
    data[bit // 8] ^= 1 << bit % 8
    return struct.unpack(code, bytes(data))[0]


@pytest.mark.parametrize("dtype", CODES)
def test_each_bit_of_each_type_is_the_one_of_its_bytes(dtype):
    value = np.array([3.14159 if "float" in dtype else 37], dtype)
    for bit in positions(None, dtype):
        result = flipped(value, [0], [bit], dtype)
        assert result.dtype == value.dtype
        np.testing.assert_equal(result[0], by_bytes(value[0].item(), bit, CODES[dtype]))


def test_of_a_bfloat16_they_are_the_upper_ones_of_a_float32():
    value = np.array([-2.5], np.float32)
    for bit in range(16):
        expected = by_bytes(-2.5, bit + 16, "<f")
        np.testing.assert_equal(flipped(value, [0], [bit], "bfloat16")[0], expected)


@pytest.mark.parametrize(
    ("value", "rounded"), [(1.00390625, 1.0), (1.01171875, 1.015625), (1.0040, 1.0078125)]
)
def test_a_number_is_rounded_to_the_nearest_bfloat16_ties_to_even(value, rounded):
    flips = flipped(np.array([value], np.float32), [0], [15], "bfloat16")  # that of the sign
    assert flips[0] == -rounded


def test_of_a_boolean_there_is_one():
    assert positions(None, "bool") == [0]
    assert flipped(np.array([True, False]), [1], [0], "bool").tolist() == [True, True]


def test_of_a_type_that_is_named_the_elements_are_cast_and_no_others():
    array = np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)
    result = flipped(array, [2], [15], "float16")
    assert result[1, 0] == -np.float32(np.float16(0.3))
    result[1, 0] = array[1, 0]
    np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize(
    ("bits", "dtype", "expected"),
    [
        ("sign", "float32", [31]),
        ("exponent", "float16", [10, 11, 12, 13, 14]),
        ("mantissa", "bfloat16", [0, 1, 2, 3, 4, 5, 6]),
        ("sign", "int8", [7]),
        ([3, 1, 1], "uint8", [1, 3]),
    ],
)
def test_are_named_by_what_they_are(bits, dtype, expected):
    assert positions(bits, dtype) == expected


@pytest.mark.parametrize(
    ("bits", "dtype", "message"),
    [
        ([32], "float32", "float32 has bits 0 to 31"),
        ([], "float32", "float32 has bits 0 to 31"),
        ("exponent", "int8", "int8 has no exponent"),
        ("parity", "float32", "not 'parity'"),
        (None, "complex64", "bits of complex64 are not known"),
    ],
)
def test_that_there_are_not_are_refused(bits, dtype, message):
    with pytest.raises(ValueError, match=message):
        positions(bits, dtype)
