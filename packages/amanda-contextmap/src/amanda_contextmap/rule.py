"""A rule tells what a native operator is in the vocabulary of ONNX, as one entry of a table.

    rule("Softmax", "input=self", axis=axis("dim", "self"))

says that an operator is a ``Softmax`` whose role ``input`` is played by what the backend calls
``self``, and whose attribute ``axis`` is its ``dim``, counted from the front.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amanda import ValueUnavailableError

from amanda_contextmap.layout import Cast
from amanda_contextmap.schema import base, only
from amanda_contextmap.translation import Translation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native

    Condition = Callable[[Native], bool]
    Attributes = Callable[[Native], Mapping[str, Any]]
    ToLayout = Callable[[Native], Layout | None]

# Inputs of ONNX operators that say how to compute rather than on what. One backend has them as
# tensors, another as plain arguments; they are attributes wherever their value is known.
SETTINGS = {
    "AffineGrid": {"size"},
    "Clip": {"min", "max"},
    "Col2Im": {"block_shape", "image_shape"},
    "ConstantOfShape": {"input"},
    "CumSum": {"axis"},
    "Dropout": {"ratio", "training_mode"},
    "Expand": {"shape"},
    "HannWindow": {"size"},
    "OneHot": {"depth", "values"},
    "Pad": {"pads", "constant_value", "axes"},
    "Reshape": {"shape"},
    "Resize": {"scales", "sizes"},
    "Slice": {"starts", "ends", "axes", "steps"},
    "Split": {"split"},
    "Squeeze": {"axes"},
    "Tile": {"repeats"},
    "TopK": {"K"},
    "Trilu": {"k"},
    "Unsqueeze": {"axes"},
    **{
        f"Reduce{kind}": {"axes"}
        for kind in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
}


@dataclass(slots=True, eq=False)
class Rule:
    """A rule tells what a native operator is in ONNX; :func:`rule` makes it, and says of what."""

    type: str
    roles: Mapping[str, str]
    outputs: tuple[str, ...] | None
    attributes: tuple[Attributes, ...]
    attrs: Mapping[str, Any]
    layouts: Mapping[str, Layout | ToLayout | None]
    when: Condition | None
    ignores: frozenset[str]

    def apply(self, op: Native) -> Translation | None:
        """Return what an operator is by this rule; None if it is not what the rule is about.

        It is not either if an attribute cannot be told, or if the operator is given something that
        the rule says nothing of: no argument is ever dropped but those that the rule names.
        """
        try:
            if self.when is not None and not self.when(op):
                return None
            translation = self._translation(op)
        except ValueUnavailableError:
            return None
        return None if op.unasked() - self.ignores else translation

    def _translation(self, op: Native) -> Translation:
        layouts = {
            role: layout(op) if callable(layout) else layout
            for role, layout in self.layouts.items()
        }
        input_layouts: list[Layout | None] = []
        settings = SETTINGS.get(self.type, ())
        inputs: list[int] = []
        names: list[str] = []
        attrs: dict[str, Any] = {}
        for role, name in self.roles.items():
            places = op.places(name)
            if not places or role in settings:
                try:
                    _put(attrs, role, op.value(name))
                except ValueUnavailableError:
                    if op.is_attribute(name):  # whose value cannot be told
                        raise
                else:
                    continue
            inputs += places
            indexed = op.is_list(name)
            names += [f"{role}[{i}]" if indexed else role for i in range(len(places))]
            layout = layouts.get(role, layouts.get(base(role)))
            if layout is None and places:
                layout = self._cast(role, op, name)
            input_layouts += [layout] * len(places)
        for attribute, source in self.attrs.items():
            _put(attrs, attribute, _value(source, op))
        for more in self.attributes:
            attrs.update(more(op))
        return Translation(
            self.type,
            inputs,
            names,
            attrs,
            None if self.outputs is None else tuple(range(len(self.outputs))),
            input_layouts,
            [layouts.get(name) for name in self.outputs or ()],
        )

    def _cast(self, role: str, op: Native, name: str) -> Layout | None:
        """Return the layout of indices and sizes that have the one type of integers of ONNX."""
        wanted = only(self.type, role)
        if wanted != "int64" or op.dtype(name) != "int32":
            return None
        return Cast("int32", wanted)


def rule(
    type: str,
    roles: str,
    *attributes: Attributes,
    outputs: str | None = None,
    layouts: Mapping[str, Layout | ToLayout | None] | None = None,
    when: Condition | None = None,
    ignores: str = "",
    **attrs: Any,
) -> Rule:
    """Make a rule that tells what a native operator is in ONNX.

    Args:
        type: its ONNX type.
        roles: pairs ``role=name``: who plays which role, in the order of the ONNX schema. A
            number in place of a tensor becomes an attribute under the name of the role; an
            operand that is absent is left out.
        *attributes: functions that give several attributes at once.
        outputs: names of the outputs, in the order of the backend's, whose further ones are
            hidden. By default they are as they are; needed where ``layouts`` names one.
        layouts: by role or output, the layout in which its tensor is shown, or a function that
            gives it; None where it is the native one.
        when: whether the rule holds for an operator; always, by default.
        ignores: names of the backend's arguments that change nothing in what is computed. An
            operator with an argument that is neither ignored nor asked for by the rule is not what
            the rule is about.
        **attrs: by name, what the attribute is: a string for the backend's attribute of that
            name, a function of the operator, or a constant. None leaves it out.
    """
    return Rule(
        type,
        dict(pair.split("=") for pair in roles.split()),
        None if outputs is None else tuple(outputs.split()),
        attributes,
        attrs,
        layouts or {},
        when,
        frozenset(ignores.split()),
    )


def axis(name: str, of: str) -> Callable[[Native], int]:
    """Make an attribute that is an axis of an operand, counted from the front."""
    return lambda op: op.axis(name, of)


def axes(name: str, of: str) -> Callable[[Native], list[int]]:
    """Make an attribute that is a list of axes of an operand, counted from the front."""
    return lambda op: op.axes(name, of)


def constant(value: str) -> Callable[[Native], str]:
    """Make an attribute that is always the same string."""
    return lambda op: value


def _value(source: Any, op: Native) -> Any:
    if isinstance(source, str):
        return op.value(source)
    return source(op) if callable(source) else source


def _put(attrs: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        attrs[name] = value
