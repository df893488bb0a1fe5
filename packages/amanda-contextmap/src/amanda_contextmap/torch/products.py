"""These operators of PyTorch multiply or look up, and ONNX lacks them; or they compute several as
one.
"""

from __future__ import annotations

from amanda_contextmap.factors import Factor, Factors, Whole

_LEFT, _RIGHT = Factor(channel=-2, summed=-1), Factor(channel=-1, summed=-2)
# ONNX has none that multiply and add at once but of matrices, and none of groups of rows.
_ADDED: dict[str, Factors] = {
    "baddbmm": {"batch1": _LEFT, "batch2": _RIGHT},
    "addbmm": {"batch1": Factor(channel=-2), "batch2": Factor(channel=-1)},
    "addmv": {"mat": Factor(channel=0, summed=-1), "vec": Factor()},
}
PRODUCTS: dict[str, Factors] = {
    **_ADDED,
    **{f"{type}_": factors for type, factors in _ADDED.items()},
    "_grouped_mm": {"self": _LEFT, "mat2": _RIGHT},
}

# What PyTorch runs in the place of layers of a transformer that are evaluated.
_FAST_PATH = "run the model after torch.backends.mha.set_fastpath_enabled(False)"
_ATTENTION = frozenset(["Attention", "Gemm", "MatMul", "Softmax"])
_FEED_FORWARD = frozenset(["Gelu", "LayerNormalization", "Relu"])
# What ONNX has one layer of: rules hold for these, and other networks keep their names.
_LAYERS = "make the recurrent network of modules of one layer each, without projections"

WHOLES = {
    "_transformer_encoder_layer_fwd": Whole(_ATTENTION | _FEED_FORWARD, _FAST_PATH),
    "_native_multi_head_attention": Whole(_ATTENTION, _FAST_PATH),
    "lstm": Whole(frozenset(["LSTM"]), _LAYERS),
    "gru": Whole(frozenset(["GRU"]), _LAYERS),
    "rnn_tanh": Whole(frozenset(["RNN"]), _LAYERS),
    "rnn_relu": Whole(frozenset(["RNN"]), _LAYERS),
    "bilinear": Whole(frozenset(["Einsum"]), "write it as products of matrices"),
}

# They sum up the rows of each bag.
LOOKUPS = ("embedding_bag",)

_LINEAR = frozenset(["Gemm", "MatMul"])
_LINEARS = (
    *("linear", "linear_relu", "linear_leaky_relu", "linear_tanh", "linear_dynamic"),
    *("linear_relu_dynamic", "linear_dynamic_fp16", "linear_relu_dynamic_fp16"),
)
_CONVOLUTIONS = tuple(
    f"conv{n}d{suffix}" for n in (1, 2, 3) for suffix in ("", "_relu", "_dynamic")
)
_CELLS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
# Quantized modules pack weights in objects, and kernels of int4 in tensors of their own layout.
PACKED = {
    **{f"quantized::{name}": _LINEAR for name in _LINEARS},
    **{f"quantized::{name}": frozenset(["Conv"]) for name in (*_CONVOLUTIONS, "conv2d_add")},
    **{
        f"quantized::conv_transpose{n}d{suffix}": frozenset(["ConvTranspose"])
        for n in (1, 2, 3)
        for suffix in ("", "_dynamic")
    },
    "quantized_lstm": frozenset(["LSTM"]),
    "quantized_gru": frozenset(["GRU"]),
    **{
        f"quantized::quantized_{cell}_cell_dynamic": frozenset([type])
        for cell, type in _CELLS.items()
    },
    "_weight_int8pack_mm": _LINEAR,
    "_weight_int4pack_mm": _LINEAR,
    "_weight_int4pack_mm_for_cpu": _LINEAR,
    "_dyn_quant_matmul_4bit": _LINEAR,
}
