"""These operators work element by element: arithmetic, comparisons, activations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_contextmap.layout import Reshaped
from amanda_contextmap.rule import constant, rule
from amanda_contextmap.torch.conditions import in_place, of_booleans
from amanda_contextmap.torch.promotion import both, of_integers

if TYPE_CHECKING:
    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Condition, Rule


def _plain(op: Native) -> bool:
    """Tell whether there is no factor for the second operand, and no rounding of a quotient."""
    return op.get("alpha", 1) == 1 and op.get("rounding_mode") is None


def _true_quotient(op: Native) -> bool:
    """Tell whether it divides floats; integers give floats too, which ONNX has not."""
    return op.get("rounding_mode") is None and not of_integers(op)


def _truncated_quotient(op: Native) -> bool:
    return op.get("rounding_mode") == "trunc" and of_integers(op)


def _keeps_base(op: Native) -> bool:
    """Tell whether the result is of the base's type, as in ONNX, whatever the exponent's."""
    base = op.dtype("self")
    if op.places("exponent"):
        return op.dtype("exponent") == base
    return "int" not in base or isinstance(op.value("exponent"), int)


def _base_number(op: Native) -> int | float:
    """Return the base as a number of the exponent's type."""
    number = op.value("self")
    return number if _is_integer(op.dtype("exponent")) else float(number)


def _keeps_exponent(op: Native) -> bool:
    return not op.places("self") and not (
        _is_integer(op.dtype("exponent")) and isinstance(op.value("self"), float)
    )


def _is_integer(dtype: str) -> bool:
    return "int" in dtype


def _unit_elu(op: Native) -> bool:
    return bool(op.value("scale") == op.value("input_scale") == 1)


def _softplus(op: Native) -> bool:
    """Tell whether it has no threshold that floats would show, as ONNX has none."""
    return bool(op.value("beta") == 1 and op.value("threshold") >= 20)


def _of_its_own(op: Native) -> bool:
    """Tell whether the result is of booleans, also where it is written to an operand."""
    return not in_place(op) or of_booleans(op)


def _by_channel(op: Native) -> Layout | None:
    """Return the layout of slopes, one for each channel, as they are broadcast against a batch."""
    if op.size("weight", 0) == 1:
        return None
    return Reshaped((-1,), (-1, *[1] * (op.rank("self") - 2)))


_BINARY, _REVERSED = "A=self B=other", "A=other B=self"
_MAX = "data_0[0]=self data_0[1]=other"
_CHOICE = "X=self Y=other"


def _arithmetic(
    type: str, roles: str = _BINARY, when: Condition | None = None, **attrs: Any
) -> Rule:
    """Return the rule of an operator of two operands, which it casts to one data type."""
    return rule(type, roles, when=when, layouts=both(*roles.split()), **attrs)


def _comparison(type: str) -> Rule:
    return _arithmetic(type, when=_of_its_own)


TABLE: dict[str, Rule | tuple[Rule, ...]] = {
    # arithmetic
    "add": _arithmetic("Add", when=_plain),
    "sub": _arithmetic("Sub", when=_plain),
    "rsub": _arithmetic("Sub", _REVERSED, when=_plain),
    "mul": _arithmetic("Mul"),
    "div": (
        _arithmetic("Div", when=_true_quotient),
        _arithmetic("Div", when=_truncated_quotient),
    ),
    "remainder": _arithmetic("Mod", when=of_integers, fmod=0),
    "fmod": _arithmetic("Mod", fmod=1),
    "pow": (
        rule(
            "Pow", "X=self Y=exponent", when=lambda op: bool(op.places("self")) and _keeps_base(op)
        ),
        rule("Pow", "Y=exponent", when=_keeps_exponent, X=_base_number),
    ),
    "maximum": _arithmetic("Max", _MAX),
    "minimum": _arithmetic("Min", _MAX),
    "abs": rule("Abs", "X=self"),
    "square": rule("Pow", "X=self", Y=2),
    "rsqrt": rule("Pow", "X=self", Y=-0.5),
    "neg": rule("Neg", "X=self"),
    "reciprocal": rule("Reciprocal", "X=self"),
    "sqrt": rule("Sqrt", "X=self"),
    "exp": rule("Exp", "input=self"),
    "log": rule("Log", "input=self"),
    "erf": rule("Erf", "input=self"),
    "sign": rule("Sign", "input=self"),
    "floor": rule("Floor", "X=self"),
    "ceil": rule("Ceil", "X=self"),
    "round": rule("Round", "X=self", when=lambda op: op.get("decimals", 0) == 0),
    "sin": rule("Sin", "input=self"),
    "cos": rule("Cos", "input=self"),
    "tan": rule("Tan", "input=self"),
    "asin": rule("Asin", "input=self"),
    "acos": rule("Acos", "input=self"),
    "atan": rule("Atan", "input=self"),
    "sinh": rule("Sinh", "input=self"),
    "cosh": rule("Cosh", "input=self"),
    "asinh": rule("Asinh", "input=self"),
    "acosh": rule("Acosh", "input=self"),
    "atanh": rule("Atanh", "input=self"),
    "clamp": rule("Clip", "input=self min=min max=max"),
    "clamp_min": rule("Clip", "input=self min=min"),
    "clamp_max": rule("Clip", "input=self max=max"),
    # comparisons and logic
    "eq": _comparison("Equal"),
    "lt": _comparison("Less"),
    "le": _comparison("LessOrEqual"),
    "gt": _comparison("Greater"),
    "ge": _comparison("GreaterOrEqual"),
    "logical_and": rule("And", _BINARY),
    "logical_or": rule("Or", _BINARY),
    "logical_xor": rule("Xor", _BINARY),
    "logical_not": rule("Not", "X=self"),
    "bitwise_and": (rule("And", _BINARY, when=of_booleans), rule("BitwiseAnd", _BINARY)),
    "bitwise_or": (rule("Or", _BINARY, when=of_booleans), rule("BitwiseOr", _BINARY)),
    "bitwise_xor": (rule("Xor", _BINARY, when=of_booleans), rule("BitwiseXor", _BINARY)),
    "bitwise_not": (
        rule("Not", "X=self", when=of_booleans),
        rule("BitwiseNot", "X=self"),
    ),
    "bitwise_left_shift": rule("BitShift", "X=self Y=other", direction=constant("LEFT")),
    "bitwise_right_shift": rule("BitShift", "X=self Y=other", direction=constant("RIGHT")),
    "isposinf": rule("IsInf", "X=self", detect_negative=0, detect_positive=1),
    "isneginf": rule("IsInf", "X=self", detect_negative=1, detect_positive=0),
    "isnan": rule("IsNaN", "X=self"),
    "isinf": rule("IsInf", "X=self"),
    "where": rule(
        "Where",
        f"condition=condition {_CHOICE}",
        when=lambda op: op.has("self"),
        layouts=both(*_CHOICE.split()),
    ),
    "masked_fill": rule("Where", "condition=mask X=value Y=self"),
    # activations
    "relu": rule("Relu", "X=self"),
    "relu6": rule("Clip", "input=self", min=0, max=6),
    "hardtanh": rule("Clip", "input=self min=min_val max=max_val"),
    "leaky_relu": rule("LeakyRelu", "X=self", alpha="negative_slope"),
    "prelu": rule("PRelu", "X=self slope=weight", layouts={"slope": _by_channel}),
    "elu": rule("Elu", "X=self", when=_unit_elu, alpha="alpha"),
    "selu": rule("Selu", "X=self", alpha=1.6732632423543772, gamma=1.0507009873554805),
    "celu": rule("Celu", "X=self", alpha="alpha"),
    "gelu": rule("Gelu", "X=self", approximate="approximate"),
    "silu": rule("Swish", "X=self", alpha=1.0),
    "mish": rule("Mish", "X=self"),
    "hardswish": rule("HardSwish", "X=self"),
    "hardsigmoid": rule("HardSigmoid", "X=self", alpha=1 / 6, beta=0.5),
    "sigmoid": rule("Sigmoid", "X=self"),
    "tanh": rule("Tanh", "input=self"),
    "softplus": rule("Softplus", "X=self", when=_softplus),
    "hardshrink": rule("Shrink", "input=self", lambd="lambd", bias=0.0),
    "threshold": rule(
        "ThresholdedRelu", "X=self", when=lambda op: op.value("value") == 0, alpha="threshold"
    ),
    "softshrink": rule("Shrink", "input=self", lambd="lambd", bias="lambd"),
}

_SAME = {
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "absolute": "abs",
    "negative": "neg",
    "clip": "clamp",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__iand__": "bitwise_and",
    "__ior__": "bitwise_or",
    "__ixor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
    "__ilshift__": "bitwise_left_shift",
    "__irshift__": "bitwise_right_shift",
}

TABLE |= {name: TABLE[other] for name, other in _SAME.items()}
