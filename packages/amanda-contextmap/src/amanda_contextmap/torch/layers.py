"""These operators are layers, embeddings and losses: linear, normalized, attentive, recurrent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_contextmap.contraction import einstein_sum
from amanda_contextmap.layout import MATRIX, UNBATCHED, Chain, Directions, Expanded, Gates, Permute
from amanda_contextmap.rule import constant, rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Rule


# Linear maps


def _is_matrix_of_parameters(name: str) -> Callable[[Native], bool]:
    return lambda op: op.is_parameter(name) and op.rank(name) == 2


def _product(a: str, b: str) -> tuple[Rule, ...]:
    """Return the rules of a matrix product: a linear layer if its second operand is a parameter."""
    roles, layer = f"A={a} B={b}", _is_matrix_of_parameters(b)
    return (
        rule("Gemm", roles, layouts={"B": MATRIX}, when=layer, **_GEMM),
        rule("MatMul", roles),
    )


def _no_cast(op: Native) -> bool:
    return not op.has("out_dtype")


_GEMM: dict[str, Any] = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 1}
_SCALED: dict[str, Any] = _GEMM | {"alpha": "alpha", "beta": "beta"}

_LINEAR: dict[str, Rule | tuple[Rule, ...]] = {
    "linear": rule("Gemm", "A=input B=weight C=bias", **_GEMM),
    "addmm": rule("Gemm", "A=mat1 B=mat2 C=self", layouts={"B": MATRIX}, when=_no_cast, **_SCALED),
    "matmul": _product("self", "other"),
    "linalg_matmul": _product("self", "other"),
    "mm": _product("self", "mat2"),
    "_int_mm": rule("MatMulInteger", "A=self B=mat2"),
    "bmm": rule("MatMul", "A=self B=mat2", when=_no_cast),
    "mv": rule("MatMul", "A=self B=vec"),
    "dot": rule("MatMul", "A=self B=tensor"),
    "det": rule("Det", "X=self", when=lambda op: op.rank("self") >= 2),
    "linalg_det": rule("Det", "X=A"),
    "einsum": einstein_sum("tensors", _GEMM, ignores="path"),
}


# Normalization and dropout


def _first_normalized(op: Native) -> int:
    return op.rank("input") - len(op.value("normalized_shape"))


def _rms_epsilon(op: Native) -> float:
    """Return the epsilon, by default the spacing near one of the numbers in which it computes."""
    if op.has("eps"):
        return float(op.value("eps"))
    return 2.0**-52 if op.dtype("input") == "float64" else 2.0**-23


_BATCH_NORM = rule(
    "BatchNormalization",
    "X=input scale=weight B=bias input_mean=running_mean input_var=running_var",
    outputs="Y",
    epsilon="eps",
    momentum=lambda op: 1 - op.value("momentum"),  # ONNX weighs the old mean, PyTorch the new one
    training_mode=lambda op: int(op.value("training")),
)
_LAYER_NORM = rule(
    "LayerNormalization",
    "X=input Scale=weight B=bias",
    outputs="Y",
    axis=_first_normalized,
    epsilon="eps",
)
_DROPOUT = rule(
    "Dropout",
    "data=input",
    outputs="output",
    ratio="p",
    training_mode=lambda op: bool(op.value("train")),
)
_NORMALIZATION: dict[str, Rule] = {
    "batch_norm": _BATCH_NORM,
    "native_batch_norm": _BATCH_NORM,
    "_native_batch_norm_legit": _BATCH_NORM,
    "_batch_norm_impl_index": _BATCH_NORM,
    "layer_norm": _LAYER_NORM,
    "native_layer_norm": _LAYER_NORM,
    "group_norm": rule(
        "GroupNormalization",
        "X=input scale=weight bias=bias",
        epsilon="eps",
        num_groups="num_groups",
    ),
    "instance_norm": rule(
        "InstanceNormalization",
        "input=input scale=weight B=bias",
        ignores="momentum running_mean running_var",  # of statistics that it does not use
        when=lambda op: op.value("use_input_stats") is True,
        epsilon="eps",
    ),
    "rms_norm": rule(
        "RMSNormalization",
        "X=input scale=weight",
        outputs="Y",
        axis=_first_normalized,
        epsilon=_rms_epsilon,
    ),
    "dropout": _DROPOUT,
    "native_dropout": _DROPOUT,
}


# Embeddings and attention


def _one_head(op: Native) -> int | None:
    """Return the number of heads: one without an axis for them, else None, as the shape has it."""
    return 1 if op.rank("query") == 3 else None


def _of_each_head(op: Native) -> Layout | None:
    """Return the layout of a mask for each example, which is the same for all heads, here one."""
    if op.rank("query") == 3 and op.has("attn_mask") and op.rank("attn_mask") == 3:
        return Expanded(1)
    return None


def _plain_attention(op: Native) -> bool:
    """Tell whether there is no dropout, for which ONNX has no place."""
    return op.rank("query") in (3, 4) and op.value("dropout_p") == 0


_LOOKUPS: dict[str, Rule] = {
    "embedding": rule(
        "Gather",
        "data=weight indices=indices",
        axis=0,
        ignores="padding_idx scale_grad_by_freq sparse",  # these are about its gradient alone
    ),
    "scaled_dot_product_attention": rule(
        "Attention",
        "Q=query K=key V=value attn_mask=attn_mask",
        outputs="Y",
        layouts={"attn_mask": _of_each_head},
        when=_plain_attention,
        ignores="enable_gqa",  # the numbers of heads tell
        q_num_heads=_one_head,
        kv_num_heads=_one_head,
        is_causal=lambda op: int(op.value("is_causal")),
        scale="scale",
    ),
}


# Recurrence: of one layer, as ONNX has it


def _recurrent(
    type: str, gates: Sequence[int], activation: str | None = None, **attrs: Any
) -> tuple[Rule, ...]:
    """Return the rules of a recurrent layer: with biases or not, in one direction or in both.

    Args:
        type: its ONNX type.
        gates: for each gate in the order of ONNX, its place in the order of PyTorch.
        activation: that of a plain cell.
        **attrs: further attributes.
    """
    cells = ("hx[0]", "hx[1]") if type == "LSTM" else ("hx",)
    states = dict(zip(("initial_h", "initial_c"), cells, strict=False))

    def holds(biases: bool, both: bool) -> Callable[[Native], bool]:
        return lambda op: (
            op.has("input")
            and op.value("num_layers") == 1
            and op.value("has_biases") is biases
            and op.value("bidirectional") is both
            and len(op.places("params")) == (4 if biases else 2) * (1 + both)  # no projections
            and op.rank("input") == 3
        )

    rules = []
    for biases in (True, False):
        for both in (False, True):
            step = 4 if biases else 2  # weights of one direction: W, R, their biases
            params = range(0, step * (1 + both), step)
            roles = {"X": "input"}
            roles |= {f"W{_part(i, both)}": f"params[{p}]" for i, p in enumerate(params)}
            roles |= {f"R{_part(i, both)}": f"params[{p + 1}]" for i, p in enumerate(params)}
            weight = Gates(gates) if both else Chain(Gates(gates), Expanded(0))
            layouts = {"X": _steps_first, "W": weight, "R": weight, "Y": _directions(both)}
            if biases:
                layouts["B"] = Gates(gates)
                pairs = [p + 2 + i for p in params for i in range(2)]
                roles |= {f"B[{i}]": f"params[{p}]" for i, p in enumerate(pairs)}
            rules.append(
                rule(
                    type,
                    " ".join(f"{role}={name}" for role, name in (roles | states).items()),
                    outputs="Y Y_h Y_c" if type == "LSTM" else "Y Y_h",
                    layouts=layouts,
                    when=holds(biases, both),
                    ignores="dropout train",  # between layers, of which there is one
                    hidden_size=lambda op: op.size("params[1]", 1),
                    direction=constant("bidirectional" if both else "forward"),
                    layout=0,
                    activations=[activation] * (1 + both) if activation else None,
                    **attrs,
                )
            )
    return tuple(rules)


def _part(index: int, several: bool) -> str:
    return f"[{index}]" if several else ""


def _steps_first(op: Native) -> Layout | None:
    return Permute(0, 1) if op.value("batch_first") else None


def _directions(both: bool) -> Callable[[Native], Layout]:
    def layout(op: Native) -> Layout:
        apart = Directions(1 + both, axis=1)
        first = _steps_first(op)
        return apart if first is None else Chain(first, apart)

    return layout


_RECURRENT: dict[str, tuple[Rule, ...]] = {
    "lstm": _recurrent("LSTM", (0, 3, 1, 2)),  # ifgo as iofg
    "gru": _recurrent("GRU", (1, 0, 2), linear_before_reset=1),  # rzn as zrn
    "rnn_tanh": _recurrent("RNN", (0,), "Tanh"),
    "rnn_relu": _recurrent("RNN", (0,), "Relu"),
}


# Losses


def _reduction(op: Native) -> str:
    return ("none", "mean", "sum")[op.value("reduction")]


def _of_classes(op: Native) -> bool:
    """Tell whether the targets are the indices of classes, and not smoothed."""
    return "int" in op.dtype("target") and op.value("label_smoothing") == 0


def _lone(operand: str) -> Callable[[Native], Layout | None]:
    """Return the layout that sees one example on its own as a batch of one."""
    return lambda op: UNBATCHED if op.rank(operand) == 1 else None


def _lone_loss(operand: str) -> Callable[[Native], Layout | None]:
    return lambda op: _lone(operand)(op) if _reduction(op) == "none" else None


_NLL = rule(
    "NegativeLogLikelihoodLoss",
    "input=self target=target weight=weight",
    outputs="loss",
    layouts={"input": _lone("self"), "target": _lone("self"), "loss": _lone_loss("self")},
    ignore_index="ignore_index",
    reduction=_reduction,
)
_LOSSES: dict[str, Rule] = {
    "cross_entropy_loss": rule(
        "SoftmaxCrossEntropyLoss",
        "scores=self labels=target weights=weight",
        outputs="output",
        layouts={"scores": _lone("self"), "labels": _lone("self"), "output": _lone_loss("self")},
        when=_of_classes,
        ignore_index="ignore_index",
        reduction=_reduction,
    ),
    "nll_loss": _NLL,
    "nll_loss_nd": _NLL,
    "nll_loss2d": _NLL,
    "nll_loss_forward": _NLL,
    "nll_loss2d_forward": _NLL,
}

TABLE: Mapping[str, Rule | tuple[Rule, ...]] = {
    **_LINEAR,
    **_NORMALIZATION,
    **_LOOKUPS,
    **_RECURRENT,
    **_LOSSES,
}
