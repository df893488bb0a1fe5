"""What PyTorch's operators are, where running them tells less than looking at what the map says."""

import pytest
from amanda_contextmap.torch import context_map
from hand_made import Tensor, translated

X = Tensor(2, 4, 8, 8)
M = Tensor(3, 4)
CONV = {"stride": [1], "padding": [0], "dilation": [1], "groups": 1}
POOL = {
    "kernel_size": [3, 3],
    "stride": [],
    "padding": [0],
    "ceil_mode": False,
    "count_include_pad": True,
    "divisor_override": None,
}
RECURRENT = {
    "has_biases": True,
    "num_layers": 1,
    "dropout": 0.0,
    "train": False,
    "bidirectional": False,
    "batch_first": False,
}
WEIGHTS = [Tensor(24, 5), Tensor(24, 6), Tensor(24), Tensor(24)]


def look(type, tensors, attrs=()):
    return translated(context_map, type, tensors, attrs)


def recurrent(type, hx, params, **attrs):
    tensors = {"input": Tensor(7, 2, 5)} | hx
    tensors |= {f"params[{i}]": weight for i, weight in enumerate(params)}
    return look(type, tensors, RECURRENT | attrs)


class TestNeverAWrongName:
    """An operator that ONNX has only for other arguments keeps its own name."""

    @pytest.mark.parametrize(
        ("type", "tensors", "attrs"),
        [
            ("erfinv", {"self": M}, {}),
            ("add", {"self": M, "other": M}, {"alpha": 2}),
            ("div", {"self": M, "other": M}, {"rounding_mode": "floor"}),
            ("remainder", {"self": M, "other": M}, {}),
            ("elu", {"self": M}, {"alpha": 1, "scale": 1.05, "input_scale": 1}),
            ("softplus", {"self": M}, {"beta": 2, "threshold": 20}),
            ("round", {"self": M}, {"decimals": 2}),
            ("avg_pool2d", {"self": X}, POOL | {"divisor_override": 2}),
            ("adaptive_avg_pool2d", {"self": X}, {"output_size": [3, 3]}),
            ("argmax", {"self": M}, {"dim": None, "keepdim": False}),
            ("sum", {"self": M}, {"dim": None, "dtype": "float64"}),
            ("linalg_vector_norm", {"self": M}, {"ord": 3, "dim": None}),
            ("repeat", {"self": M}, {"repeats": [2, 1, 1]}),
            ("view", {"self": M}, {"dtype": "int32"}),
            ("to", {"self": M}, {"dtype": None}),
            ("where", {"condition": M}, {}),
            ("cat", {"tensors[0]": Tensor(0), "tensors[1]": M}, {"dim": -1}),  # of a new cache
            (
                "cross_entropy_loss",
                {"self": M, "target": Tensor(3, dtype="int64")},
                {"label_smoothing": 0.1, "reduction": 1, "ignore_index": -100},
            ),
            (
                "cross_entropy_loss",
                {"self": M, "target": M},
                {"label_smoothing": 0.0, "reduction": 1, "ignore_index": -100},
            ),
            ("mylib::relu", {"input": M}, {}),
        ],
    )
    def test_it_keeps_its_own(self, type, tensors, attrs):
        assert look(type, tensors, attrs).type == f"torch::{type}"

    def test_recurrence_of_several_layers(self):
        found = recurrent("lstm", {"hx[0]": M, "hx[1]": M}, WEIGHTS * 2, num_layers=2)
        assert found.type == "torch::lstm"


class TestLinearLayers:
    def test_a_product_with_a_matrix_of_parameters_is_one(self):
        weight = Tensor(4, 5, parameter=True)
        found = look("matmul", {"self": Tensor(2, 3, 4), "other": weight})
        assert found.type == "Gemm"
        assert found.roles["B"] is weight
        assert found.layouts["B"] is not None

    def test_a_product_with_anything_else_is_not(self):
        assert look("matmul", {"self": M, "other": Tensor(4, 5)}).type == "MatMul"
        batched = Tensor(2, 4, 5, parameter=True)
        assert look("matmul", {"self": M, "other": batched}).type == "MatMul"


class TestInPlace:
    @pytest.mark.parametrize(
        ("type", "tensors", "attrs", "onnx"),
        [
            ("relu_", {"self": M}, {}, "Relu"),
            ("add_", {"self": M, "other": M}, {"alpha": 1}, "Add"),
            (
                "masked_fill_",
                {"self": M, "mask": Tensor(3, 4, dtype="bool")},
                {"value": 0},
                "Where",
            ),
            ("hardtanh_", {"self": M}, {"min_val": -1, "max_val": 1}, "Clip"),
        ],
    )
    def test_it_is_the_same_operator(self, type, tensors, attrs, onnx):
        assert look(type, tensors, attrs).type == onnx
        assert look(type.rstrip("_"), tensors, attrs).type == onnx


class TestBatchNormalization:
    def test_momentum_weighs_the_old_statistics(self):
        found = look(
            "batch_norm",
            {"input": X, "weight": M, "bias": M, "running_mean": M, "running_var": M},
            {"training": True, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": True},
        )
        assert found.attrs == {"epsilon": 1e-5, "momentum": 0.9, "training_mode": 1}
        assert list(found.roles) == ["X", "scale", "B", "input_mean", "input_var"]


class TestDropout:
    def test_in_training(self):
        found = look("dropout", {"input": M}, {"p": 0.3, "train": True})
        assert (found.type, found.attrs) == ("Dropout", {"ratio": 0.3, "training_mode": True})


class TestRecurrence:
    def test_both_directions(self):
        found = recurrent(
            "lstm", {"hx[0]": M, "hx[1]": M}, [*WEIGHTS, *WEIGHTS], bidirectional=True
        )
        assert found.type == "LSTM"
        assert found.attrs == {"direction": "bidirectional", "hidden_size": 6, "layout": 0}
        weights = ["W[0]", "W[1]", "R[0]", "R[1]", "B[0]", "B[1]", "B[2]", "B[3]"]
        assert list(found.roles) == ["X", *weights, "initial_h", "initial_c"]

    def test_without_biases(self):
        found = recurrent("gru", {"hx": M}, WEIGHTS[:2], has_biases=False)
        assert list(found.roles) == ["X", "W", "R", "initial_h"]
        assert found.attrs["linear_before_reset"] == 1

    @pytest.mark.parametrize(("type", "activation"), [("rnn_tanh", "Tanh"), ("rnn_relu", "Relu")])
    def test_plain_cells_differ_in_their_activation(self, type, activation):
        found = recurrent(type, {"hx": M}, WEIGHTS)
        assert (found.type, found.attrs["activations"]) == ("RNN", [activation])


class TestGroups:
    def test_of_a_transposed_convolution(self):
        found = look(
            "conv_transpose2d",
            {"input": X, "weight": Tensor(4, 3, 3, 3)},
            CONV | {"groups": 2, "output_padding": [1]},
        )
        assert found.attrs["group"] == 2
        assert found.attrs["output_padding"] == [1, 1]
