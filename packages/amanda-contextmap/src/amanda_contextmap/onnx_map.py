"""The context map of one backend: a table of rules by native type."""

from __future__ import annotations

from amanda.driving import Translation

from amanda_contextmap.native import Native, dtype_name
from amanda_contextmap.schema import mismatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from amanda import Driver
    from amanda.driving import Execution

    from amanda_contextmap.rule import Rule

    Table = Mapping[str, Rule | tuple[Rule, ...]]


class OnnxMap:
    """Translates a backend's vocabulary into that of ONNX, operator by operator.

    The first rule of an operator's type that holds for it tells what it is. One that no rule
    holds for keeps its own name, with its vocabulary in front, and all that belongs to it. So does
    one whose types of data ONNX does not have together, where the framework casts.

    Args:
        vocabulary: the backend's.
        table: rules by native type.
        ignores: names of arguments that change nothing in what any of them computes.
    """

    def __init__(self, vocabulary: str, table: Table, ignores: Iterable[str] = ()) -> None:
        self.vocabulary = vocabulary
        self._ignores = frozenset(ignores)
        self.rules: dict[str, tuple[Rule, ...]] = {
            type: rules if isinstance(rules, tuple) else (rules,) for type, rules in table.items()
        }

    def native_types(self, types: frozenset[str]) -> frozenset[str]:
        """Native types that may be one of ``types`` here."""
        prefix = self.vocabulary + "::"
        named = {type.removeprefix(prefix) for type in types if type.startswith(prefix)}
        return frozenset(
            named | {t for t, rules in self.rules.items() if any(r.type in types for r in rules)}
        )

    def types(self) -> frozenset[str]:
        """The types of ONNX that a native operator may be."""
        return frozenset(rule.type for rules in self.rules.values() for rule in rules)

    def translate(self, execution: Execution, driver: Driver) -> Translation:
        """What an execution is in the vocabulary of ONNX."""
        type = execution.operator.type
        rules = self.rules.get(type, ())
        if rules:
            for rule in rules:
                translation = rule.apply(Native(execution, driver, self._ignores))
                if translation is not None and fits(translation, execution):
                    return translation
        return Translation(
            f"{self.vocabulary}::{type}",
            range(len(execution.inputs)),
            execution.input_names,
            execution.attrs,
        )


def fits(translation: Translation, execution: Execution) -> bool:
    """Whether ONNX has an operator for the types of data that an execution has."""
    tensors = []
    layouts = translation.input_layouts or [None] * len(translation.inputs)
    for role, place, layout in zip(
        translation.input_names, translation.inputs, layouts, strict=True
    ):
        dtype = getattr(layout, "dtype", None) or dtype_name(execution.inputs[place].dtype)
        if dtype != "resource":  # a variable that is read on the way
            tensors.append((role, dtype))
    return mismatch(translation.type, tensors, translation.attrs) is None
