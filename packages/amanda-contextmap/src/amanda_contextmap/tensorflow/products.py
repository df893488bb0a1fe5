"""These operators of TensorFlow compute several of ONNX as one, or look up rows in variables."""

from __future__ import annotations

from amanda_contextmap.factors import Whole

_LSTM, _GRU = frozenset(["LSTM"]), frozenset(["GRU"])
# Their weights are in one tensor, which is no W or R of ONNX.
_BY_KERAS = "make the recurrent network of layers of Keras"
_OF_VARIABLE = Whole(
    frozenset(["Gather"]), "write tf.gather(tf.convert_to_tensor(table), ids), whose table is seen"
)
_CUDNN = Whole(_LSTM | _GRU | {"RNN"}, f"{_BY_KERAS} with use_cudnn=False")

WHOLES = {
    "BlockLSTM": Whole(_LSTM, _BY_KERAS),
    "BlockLSTMV2": Whole(_LSTM, _BY_KERAS),
    "LSTMBlockCell": Whole(_LSTM, _BY_KERAS),
    "GRUBlockCell": Whole(_GRU, _BY_KERAS),
    "CudnnRNN": _CUDNN,
    "CudnnRNNV2": _CUDNN,
    "CudnnRNNV3": _CUDNN,
    "ResourceGather": _OF_VARIABLE,
    "ResourceGatherNd": _OF_VARIABLE,
}

# They are given a variable itself, and read rows of it.
LOOKUPS = ("ResourceGather", "ResourceGatherNd")
