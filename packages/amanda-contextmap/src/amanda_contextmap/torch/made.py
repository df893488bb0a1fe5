"""These operators make tensors: filled, drawn, counted up, copied, of another data type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_contextmap.dtypes import CODES, as_number, dtype_of
from amanda_contextmap.native import dtype_name
from amanda_contextmap.rule import rule
from amanda_contextmap.torch.conditions import same_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Rule


# From nothing, of the type that PyTorch takes by default or is told


def _of_default(op: Native) -> bool:
    dtype = op.get("dtype")
    return dtype is None or dtype_name(dtype) == "float32"


def _dtype(op: Native, *numbers: Any) -> str:
    """Return the data type that it is told, else that of its numbers."""
    dtype = op.get("dtype")
    return dtype_of(numbers) if dtype is None else dtype_name(dtype)


def _range(op: Native) -> Mapping[str, Any]:
    given = {
        "start": op.get("start", 0),
        "limit": op.value("end"),
        "delta": op.get("step", 1),
    }
    dtype = _dtype(op, *given.values())
    return {name: as_number(number, dtype) for name, number in given.items()}


def _filled(number: float) -> Rule:
    return rule("ConstantOfShape", "input=size", when=_of_default, value=number)


def _fill_value(op: Native) -> Any:
    number = op.value("fill_value")
    return as_number(number, _dtype(op, number))


def _periodic(op: Native) -> int:
    return int(op.get("periodic", True))


# In the shape of another tensor, whose elements do not matter


def _filled_like(number: Callable[[Native], Any]) -> Rule:
    def of_its_type(op: Native) -> Any:
        dtype = op.get("dtype")
        return as_number(number(op), op.dtype("self") if dtype is None else dtype_name(dtype))

    return rule("Expand", "", input=of_its_type, shape=lambda op: op.sizes("self"))


def _drawn_like(type: str, **attrs: Any) -> Rule:
    return rule(type, "input=self", when=same_dtype, ignores="generator", **attrs)


# From another tensor


def _to_dtype(op: Native) -> bool:
    """Tell whether it converts, rather than only to copy or to move to another device."""
    dtype = op.get("dtype")
    return not isinstance(dtype, int) and dtype is not None


def _dtype_code(op: Native) -> int | None:
    return CODES.get(dtype_name(op.value("dtype")))


def _same_shape(op: Native) -> bool:
    return op.shape("src") == op.shape("self")


def _same_type(op: Native) -> bool:
    return op.dtype("src") == op.dtype("self")


def _overwriting(type: str, when: Callable[[Native], bool], **attrs: Any) -> Rule:
    """Return a rule that ignores what is written to, of which only data type and shape matter."""
    return rule(type, "input=src", when=when, ignores="self", **attrs)


_CAST = rule("Cast", "input=self", when=_to_dtype, to=_dtype_code)
_CAST_LIKE = rule("CastLike", "input=self target_type=other", when=lambda op: op.has("other"))
_IDENTITY = rule("Identity", "input=self")

TABLE: dict[str, Rule | tuple[Rule, ...]] = {
    "arange": rule("Range", "", _range),
    "zeros": _filled(0.0),
    "ones": _filled(1.0),
    "full": rule("ConstantOfShape", "input=size", value=_fill_value),
    "hann_window": rule("HannWindow", "size=window_length", when=_of_default, periodic=_periodic),
    "zeros_like": _filled_like(lambda op: 0),
    "ones_like": _filled_like(lambda op: 1),
    "full_like": _filled_like(lambda op: op.value("fill_value")),
    "randn_like": _drawn_like("RandomNormalLike", mean=0.0, scale=1.0),
    "rand_like": _drawn_like("RandomUniformLike", low=0.0, high=1.0),
    "bernoulli": rule(
        "Bernoulli", "input=self", when=lambda op: op.get("p") is None, ignores="generator"
    ),
    "to": (_CAST, _CAST_LIKE),
    "_to_copy": _CAST,
    "type_as": _CAST_LIKE,
    "clone": _IDENTITY,
    "contiguous": _IDENTITY,
    "copy": (
        _overwriting("Identity", lambda op: _same_shape(op) and _same_type(op)),
        _overwriting(
            "Cast",
            lambda op: _same_shape(op) and op.dtype("self") in CODES,
            to=lambda op: CODES[op.dtype("self")],
        ),
        _overwriting("Expand", _same_type, shape=lambda op: op.sizes("self")),
    ),
}
