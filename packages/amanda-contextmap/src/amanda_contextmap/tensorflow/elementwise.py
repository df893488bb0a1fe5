"""These operators work element by element: arithmetic, comparisons, activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_contextmap.layout import Reshaped
from amanda_contextmap.rule import constant, rule

if TYPE_CHECKING:
    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Rule


def _same_shapes(op: Native) -> bool:
    """Tell whether shapes agree: the older ``Select`` also takes a vector that chooses rows."""
    return op.rank("condition") == op.rank("t")


def _of_integers(op: Native) -> bool:
    return "int" in op.dtype("x")


def _in_order(op: Native) -> bool:
    """Tell whether the bounds are in order; else TensorFlow gives the least, ONNX the greatest."""
    return bool(op.value("clip_value_min") <= op.value("clip_value_max"))


def _bias(op: Native) -> Layout | None:
    """Return the layout of a bias; with channels last it is broadcast as it is."""
    if op.get("data_format") != "NCHW":
        return None
    return Reshaped((-1,), (-1, *[1] * (op.rank("value") - 2)))


_BINARY = "A=x B=y"
_MAX = "data_0[0]=x data_0[1]=y"

TABLE: dict[str, Rule] = {
    # arithmetic
    "Add": rule("Add", _BINARY),
    "AddV2": rule("Add", _BINARY),
    "AddN": rule("Sum", "data_0=inputs"),
    "BiasAdd": rule("Add", "A=value B=bias", layouts={"B": _bias}),
    "Sub": rule("Sub", _BINARY),
    "Mul": rule("Mul", _BINARY),
    "Div": rule("Div", _BINARY),
    "RealDiv": rule("Div", _BINARY),
    "TruncateDiv": rule("Div", _BINARY, when=_of_integers),
    "FloorMod": rule("Mod", _BINARY, when=_of_integers, fmod=0),
    "Mod": rule("Mod", _BINARY, fmod=1),
    "TruncateMod": rule("Mod", _BINARY, fmod=1),
    "Pow": rule("Pow", "X=x Y=y"),
    "Square": rule("Pow", "X=x", Y=2),
    "Rsqrt": rule("Pow", "X=x", Y=-0.5),
    "Maximum": rule("Max", _MAX),
    "Minimum": rule("Min", _MAX),
    "Abs": rule("Abs", "X=x"),
    "Neg": rule("Neg", "X=x"),
    "Reciprocal": rule("Reciprocal", "X=x"),
    "Inv": rule("Reciprocal", "X=x"),
    "Sqrt": rule("Sqrt", "X=x"),
    "Exp": rule("Exp", "input=x"),
    "Log": rule("Log", "input=x"),
    "Erf": rule("Erf", "input=x"),
    "Sign": rule("Sign", "input=x"),
    "Floor": rule("Floor", "X=x"),
    "Ceil": rule("Ceil", "X=x"),
    "Round": rule("Round", "X=x"),
    "Rint": rule("Round", "X=x"),
    "Sin": rule("Sin", "input=x"),
    "Cos": rule("Cos", "input=x"),
    "Tan": rule("Tan", "input=x"),
    "Asin": rule("Asin", "input=x"),
    "Acos": rule("Acos", "input=x"),
    "Atan": rule("Atan", "input=x"),
    "Sinh": rule("Sinh", "input=x"),
    "Cosh": rule("Cosh", "input=x"),
    "Asinh": rule("Asinh", "input=x"),
    "Acosh": rule("Acosh", "input=x"),
    "Atanh": rule("Atanh", "input=x"),
    "ClipByValue": rule("Clip", "input=t min=clip_value_min max=clip_value_max", when=_in_order),
    # comparisons and logic
    "Equal": rule("Equal", _BINARY, when=lambda op: op.get("incompatible_shape_error", True)),
    "Less": rule("Less", _BINARY),
    "LessEqual": rule("LessOrEqual", _BINARY),
    "Greater": rule("Greater", _BINARY),
    "GreaterEqual": rule("GreaterOrEqual", _BINARY),
    "LogicalAnd": rule("And", _BINARY),
    "LogicalOr": rule("Or", _BINARY),
    "LogicalNot": rule("Not", "X=x"),
    "BitwiseAnd": rule("BitwiseAnd", _BINARY),
    "BitwiseOr": rule("BitwiseOr", _BINARY),
    "BitwiseXor": rule("BitwiseXor", _BINARY),
    "Invert": rule("BitwiseNot", "X=x"),
    "LeftShift": rule("BitShift", "X=x Y=y", direction=constant("LEFT")),
    "RightShift": rule("BitShift", "X=x Y=y", direction=constant("RIGHT")),
    "IsNan": rule("IsNaN", "X=x"),
    "IsInf": rule("IsInf", "X=x"),
    "SelectV2": rule("Where", "condition=condition X=t Y=e"),
    "Select": rule("Where", "condition=condition X=t Y=e", when=_same_shapes),
    # activations
    "Relu": rule("Relu", "X=features"),
    "Relu6": rule("Clip", "input=features", min=0, max=6),
    "LeakyRelu": rule("LeakyRelu", "X=features", alpha="alpha"),
    "Elu": rule("Elu", "X=features", alpha=1.0),
    "Selu": rule("Selu", "X=features", alpha=1.6732632423543772, gamma=1.0507009873554805),
    "Sigmoid": rule("Sigmoid", "X=x"),
    "Tanh": rule("Tanh", "input=x"),
    "Softplus": rule("Softplus", "X=features"),
    "Softsign": rule("Softsign", "input=features"),
}
