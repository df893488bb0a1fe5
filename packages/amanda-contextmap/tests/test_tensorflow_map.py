"""What TensorFlow's operators are, where running them tells less than the map says."""

import numpy as np
import pytest
from amanda_contextmap.layout import CHANNELS_LAST, MATRIX
from amanda_contextmap.tensorflow import context_map
from hand_made import Tensor, translated

M = Tensor(3, 4)


def look(type, tensors, attrs=()):
    return translated(context_map, type, tensors, attrs)


def conv(size, kernel, stride=1, padding="SAME", dilation=1, first=False):
    sizes = (3, size) if first else (size, 3)
    strides, dilations = ([1, 1, s] if first else [1, s, 1] for s in (stride, dilation))
    return look(
        "Conv",  # of any number of axes
        {"input": Tensor(2, *sizes), "filter": Tensor(kernel, 3, 8)},
        {
            "padding": padding,
            "strides": strides,
            "dilations": dilations,
            "data_format": "CHANNELS_FIRST" if first else "CHANNELS_LAST",
        },
    )


class TestSamePadding:
    """The size of the output is that of the input over the stride, rounded up."""

    @pytest.mark.parametrize(
        ("size", "kernel", "stride", "dilation", "pads"),
        [
            (8, 3, 1, 1, [1, 1]),
            (8, 2, 1, 1, [0, 1]),
            (8, 3, 2, 1, [0, 1]),
            (9, 3, 2, 1, [1, 1]),
            (8, 7, 2, 1, [2, 3]),
            (8, 3, 1, 2, [2, 2]),
            (8, 1, 2, 1, [0, 0]),
            (None, 3, 1, 1, [1, 1]),
        ],
    )
    def test_is_listed_as_onnx_lists_it(self, size, kernel, stride, dilation, pads):
        found = conv(size, kernel, stride, dilation=dilation)
        assert found.attrs["pads"] == pads
        assert "auto_pad" not in found.attrs

    def test_is_left_to_onnx_where_it_depends_on_a_size_that_is_not_known(self):
        found = conv(None, 3, stride=2)
        assert found.attrs["auto_pad"] == "SAME_UPPER"
        assert "pads" not in found.attrs


class TestDataFormat:
    def test_channels_last_are_turned(self):
        found = conv(8, 3, stride=2)
        assert found.layouts["X"] is CHANNELS_LAST
        assert found.output_layouts == [CHANNELS_LAST]

    def test_channels_first_cost_nothing(self):
        found = conv(8, 3, stride=2, first=True)
        assert found.layouts["X"] is None
        assert found.output_layouts == [None]
        assert found.attrs == conv(8, 3, stride=2).attrs

    def test_a_bias_is_broadcast_along_the_channels(self):
        tensors = {"value": Tensor(2, 3, 8, 8), "bias": Tensor(3)}
        first = look("BiasAdd", tensors, {"data_format": "NCHW"})
        bias = np.arange(3)
        assert first.layouts["B"].to_canonical(bias, np).shape == (3, 1, 1)
        assert look("BiasAdd", tensors, {"data_format": "NHWC"}).layouts["B"] is None


class TestLinearLayers:
    WEIGHT = Tensor(4, 5, parameter=True)

    def product(self, b, **flags):
        attrs = {"transpose_a": False, "transpose_b": False} | flags
        return look("MatMul", {"a": M, "b": b}, attrs)

    def test_a_matrix_of_parameters_is_seen_as_out_and_in(self):
        found = self.product(self.WEIGHT)
        assert (found.type, found.layouts["B"], found.attrs["transB"]) == ("Gemm", MATRIX, 1)

    def test_one_that_is_transposed_already_is_seen_as_it_is(self):
        found = self.product(self.WEIGHT, transpose_b=True)
        assert (found.type, found.layouts["B"], found.attrs["transB"]) == ("Gemm", None, 1)

    def test_other_products_are_seen_as_transposed_by_their_flags(self):
        found = self.product(M, transpose_a=True)
        assert found.type == "MatMul"
        assert found.layouts == {"A": MATRIX, "B": None}


class TestTransposedConvolution:
    def found(self, sizes, padding, stride=2):
        return look(
            "Conv2DBackpropInput",
            {
                "input_sizes": Tensor(4, value=None if sizes is None else np.array(sizes)),
                "filter": Tensor(3, 3, 6, 4),
                "out_backprop": Tensor(2, 8, 8, 4),
            },
            {"padding": padding, "strides": [1, stride, stride, 1], "explicit_paddings": []},
        )

    def test_the_size_of_the_result_is_told_apart(self):
        assert self.found([2, 16, 15, 6], "SAME").attrs["pads"] == [0, 1, 1, 1]

    def test_only_the_sizes_of_space_need_to_be_known(self):
        assert self.found([-1, 16, 15, 6], "SAME").attrs["pads"] == [0, 1, 1, 1]

    @pytest.mark.parametrize("padding", ["SAME", "VALID"])
    def test_it_keeps_its_name_where_results_of_several_sizes_are_possible(self, padding):
        assert self.found(None, padding).type == "tensorflow::Conv2DBackpropInput"

    @pytest.mark.parametrize(("padding", "pads"), [("SAME", [1] * 4), ("VALID", [0] * 4)])
    def test_with_steps_of_one_the_size_of_the_result_does_not_matter(self, padding, pads):
        found = self.found(None, padding, stride=1)
        assert (found.type, found.attrs["pads"]) == ("ConvTranspose", pads)


class TestNeverAWrongName:
    """An operator that ONNX has only for other arguments keeps its own name."""

    @pytest.mark.parametrize(
        ("type", "tensors", "attrs"),
        [
            ("Erfinv", {"x": M}, {}),
            ("FloorMod", {"x": M, "y": M}, {}),
            ("Select", {"condition": Tensor(3, dtype="bool"), "t": M, "e": M}, {}),
            ("MirrorPad", {"input": M, "paddings": M}, {"mode": "SYMMETRIC"}),
            (
                "GatherV2",
                {"params": M, "indices": M, "axis": Tensor(value=np.array(1))},
                {"batch_dims": 1},
            ),
            ("SoftmaxCrossEntropyWithLogits", {"features": M, "labels": M}, {}),
            (
                "StridedSlice",
                {"input": M, **{n: Tensor(1, value=np.array([0])) for n in ("begin", "end")}}
                | {"strides": Tensor(1, value=np.array([1]))},
                {"new_axis_mask": 1},
            ),
            (
                "MatMul",
                {"a": Tensor(3, 3, dtype="complex64"), "b": Tensor(3, 3, dtype="complex64")},
                {"transpose_a": False, "transpose_b": True},
            ),
        ],
    )
    def test_it_keeps_its_own(self, type, tensors, attrs):
        assert look(type, tensors, attrs).type == f"tensorflow::{type}"


class TestDynamicShapes:
    def test_a_shape_that_is_computed_stays_an_operand(self):
        shape = Tensor(2, dtype="int32")
        found = look("Reshape", {"tensor": M, "shape": shape})
        assert found.roles == {"data": M, "shape": shape}

    def test_parts_of_an_axis_whose_size_is_not_known(self):
        tensors = {"split_dim": Tensor(value=np.array(0)), "value": Tensor(None, 4)}
        found = look("Split", tensors, {"num_split": 2})
        assert found.attrs == {"axis": 0, "num_outputs": 2}
