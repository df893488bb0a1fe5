"""These operators of TensorFlow compute several of ONNX as one."""

from __future__ import annotations

from amanda_contextmap.factors import Whole

_LSTM, _GRU = frozenset(["LSTM"]), frozenset(["GRU"])
# Their weights are in one tensor, which is no W or R of ONNX.
_BY_KERAS = "make the recurrent network of layers of Keras"
_CUDNN = Whole(_LSTM | _GRU | {"RNN"}, f"{_BY_KERAS} with use_cudnn=False")

WHOLES = {
    "BlockLSTM": Whole(_LSTM, _BY_KERAS),
    "BlockLSTMV2": Whole(_LSTM, _BY_KERAS),
    "LSTMBlockCell": Whole(_LSTM, _BY_KERAS),
    "GRUBlockCell": Whole(_GRU, _BY_KERAS),
    "CudnnRNN": _CUDNN,
    "CudnnRNNV2": _CUDNN,
    "CudnnRNNV3": _CUDNN,
}
