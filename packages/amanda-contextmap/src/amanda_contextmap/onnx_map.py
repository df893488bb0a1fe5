"""The context map of one backend to ONNX is a table of rules by native type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda.driving import Composite, Execution, Operator

from amanda_contextmap.context_map import ContextMap
from amanda_contextmap.native import Native, dtype_name
from amanda_contextmap.schema import mismatch
from amanda_contextmap.translation import Translation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from amanda import Driver

    from amanda_contextmap.factors import Factors, Whole
    from amanda_contextmap.graph import Graph
    from amanda_contextmap.pattern import Pattern
    from amanda_contextmap.rule import Rule

    Table = Mapping[str, Rule | tuple[Rule, ...]]


class OnnxMap(ContextMap):
    """An ONNX map translates a backend's vocabulary into that of ONNX, operator by operator.

    The first rule of an operator's type that holds for it tells what it is. One that no rule
    holds for keeps its own name, with its vocabulary in front, and all that belongs to it. So does
    one whose types of data ONNX does not have together, where the framework casts.

    Args:
        vocabulary: the backend's.
        table: rules by native type.
        ignores: names of arguments that change nothing in what any of them computes.
        patterns: what several operators are as one; of those that share operators the first holds.
            Rules tell by its type what a composite is, and where none holds there is none.
        functions: by type, the Python functions that are one in the same way.
        products: the factors of operators that multiply and that no rule holds for, by type.
        wholes: the operators that compute several of ONNX as one, by type.
        lookups: the types of operators that look up rows of a table and that no rule holds for.
        packed: the operators whose weights are packed for a kernel of few bits, and so are no
            tensors that a tool is shown in their own layout; by type, the types of ONNX.
    """

    def __init__(
        self,
        vocabulary: str,
        table: Table,
        ignores: Iterable[str] = (),
        patterns: Sequence[Pattern] = (),
        functions: Mapping[str, str] | None = None,
        products: Mapping[str, Factors] | None = None,
        wholes: Mapping[str, Whole] | None = None,
        lookups: Sequence[str] = (),
        packed: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self.vocabulary = vocabulary
        self._ignores = frozenset(ignores)
        self._patterns = patterns
        self._functions = functions or {}
        self.products = products or {}
        self.wholes = wholes or {}
        self.lookups = lookups
        self.packed = packed or {}
        self.rules: dict[str, tuple[Rule, ...]] = {
            type: rules if isinstance(rules, tuple) else (rules,) for type, rules in table.items()
        }

    def native_types(self, types: frozenset[str]) -> frozenset[str]:
        """List the native types that may be one of ``types`` in ONNX."""
        prefix = self.vocabulary + "::"
        named = {type.removeprefix(prefix) for type in types if type.startswith(prefix)}
        return frozenset(
            named | {t for t, rules in self.rules.items() if any(r.type in types for r in rules)}
        )

    def types(self) -> frozenset[str]:
        """List the types of ONNX that a native operator may be."""
        return frozenset(rule.type for rules in self.rules.values() for rule in rules)

    def translate(self, execution: Execution, driver: Driver) -> Translation:
        """Return what an execution is in the vocabulary of ONNX."""
        return self._by_rules(execution, driver) or Translation(
            f"{self.vocabulary}::{execution.operator.type}",
            range(len(execution.inputs)),
            execution.input_names,
            execution.attrs,
        )

    def composites(self, graph: Graph, driver: Driver) -> Sequence[Composite]:
        """Find what is one operator of ONNX and several in a graph."""
        by_type: dict[str | None, list[str]] = {}
        for name in graph.operators():
            by_type.setdefault(graph.type(name), []).append(name)
        found: list[Composite] = []
        taken: set[str] = set()
        for pattern in self._patterns:
            for root in (name for type in sorted(pattern.roots) for name in by_type.get(type, ())):
                composite = None if root in taken else _composite(pattern, graph, root)
                if composite is None or not taken.isdisjoint(composite.parts):
                    continue
                if self._by_rules(_shown(composite, graph, driver), driver) is not None:
                    taken.update(composite.parts)
                    found.append(composite)
        return found

    def functions(self) -> Mapping[str, str]:
        """List the Python functions that may be one operator of ONNX, by type."""
        return self._functions

    def is_one(self, execution: Execution, driver: Driver) -> bool:
        """Tell whether a rule holds for a call of such a function."""
        return self._by_rules(execution, driver) is not None

    def _by_rules(self, execution: Execution, driver: Driver) -> Translation | None:
        for rule in self.rules.get(execution.operator.type, ()):
            translation = rule.apply(Native(execution, driver, self._ignores))
            if translation is not None and fits(translation, execution):
                return translation
        return None


def _composite(pattern: Pattern, graph: Graph, root: str) -> Composite | None:
    match = pattern.match(graph, root)
    if match is None:
        return None
    tensors = match.tensors
    return Composite(pattern.type, match.parts, [*tensors.values()], [*tensors], match.attrs)


def _shown(composite: Composite, graph: Graph, driver: Driver) -> Execution:
    """Return a composite as the driver will show it."""
    name, type = composite.parts[-1], composite.type
    operator = Operator(id=name, type=type, name=name, scope="", backend=driver.backend)
    tensors = [graph.tensor(place) for place in composite.inputs]
    return Execution(operator, tensors, composite.input_names, composite.attrs)


def fits(translation: Translation, execution: Execution) -> bool:
    """Tell whether ONNX has an operator for the data types that an execution has."""
    tensors = []
    layouts = translation.input_layouts or [None] * len(translation.inputs)
    for role, place, layout in zip(
        translation.input_names, translation.inputs, layouts, strict=True
    ):
        dtype = getattr(layout, "dtype", None) or dtype_name(execution.inputs[place].dtype)
        if dtype != "resource":  # a variable that is read on the way
            tensors.append((role, dtype))
    return mismatch(translation.type, tensors, translation.attrs) is None
