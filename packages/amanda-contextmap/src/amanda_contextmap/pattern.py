"""A pattern tells what several native operators are as one, as an entry of a table.

    pattern("silu", "Mul(x, Sigmoid(x))")

says that a ``Mul`` of some tensor with its own ``Sigmoid`` is a composite of type ``silu``, which
takes that tensor as ``x``; a rule for ``silu`` tells what that is in ONNX.

A form is an expression: calls are operators of that type (of one of two for ``(A | B)(x)``) with
the attributes that are given by keyword, numbers are constants of that value, names are tensors
that come from outside, the same one wherever the name is the same. A name with ``_`` in front is a
constant of any value, the same one wherever the name is the same, which the composite has as an
attribute without the ``_``. A name in brackets is the shape of the result, which other operators
compute; the composite has it as an attribute, with -1 for a size that is not known. The operands of
commutative operators may come in either order. What computes the constants or the shape, and
nothing else, is a part as well.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from amanda_contextmap.graph import Graph, Place

_COMMUTATIVE = frozenset(["Add", "AddV2", "Maximum", "Minimum", "Mul"])
_TRANSPARENT = frozenset(["Identity"])
_OF_SHAPES = frozenset(["Rank", "Shape", "ShapeN", "Size"])  # they read no elements
_TOLERANCE = 0.004  # that of bfloat16, in which a constant may have been rounded


@dataclass(slots=True, eq=False)
class Match:
    """A match is one way in which a form fits a graph.

    Attributes:
        result: the tensor that they give.
        parts: the operators, those that are read before those that read them.
        tensors: those that come from outside, by name.
        constants: the constants, by name.
        settings: the attributes of all operators that the form does not give, of the one nearest to
            the result where several have one of that name.
    """

    result: Place
    parts: tuple[str, ...] = ()
    tensors: Mapping[str, Place] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Return the attributes of the composite."""
        return {**self.settings, **self.constants}

    def with_tensor(self, name: str, place: Place) -> Match:
        """Return the same with a tensor from outside."""
        return replace(self, tensors={**self.tensors, name: place})

    def with_constant(self, name: str, value: Any) -> Match:
        """Return the same with a constant."""
        return replace(self, constants={**self.constants, name: value})

    def with_part(self, name: str, settings: Mapping[str, Any]) -> Match:
        """Return the same with an operator that reads the ones before."""
        parts = (*(part for part in self.parts if part != name), name)
        return replace(self, parts=parts, settings={**self.settings, **settings})


class Pattern:
    """A pattern tells what some operators are as one; it is made by :func:`pattern`.

    Attributes:
        type: the type of the composite.
        roots: the types of the operator that gives the result.
    """

    def __init__(self, type: str, forms: Iterable[ast.expr]) -> None:
        self.type = type
        self._forms = tuple(forms)
        self.roots = frozenset().union(*(_root_types(form) for form in self._forms))

    def match(self, graph: Graph, root: str) -> Match | None:
        """Return the match whose last operator is ``root``; None if there is none.

        Nothing outside of a match may read what its other operators give.
        """
        for form in self._forms:
            for found in _matches(form, (root, 0), graph, Match((root, 0))):
                whole = _with_constants(found, graph)
                if _closed(whole, graph):
                    return whole
        return None


def pattern(type: str, *forms: str) -> Pattern:
    """Make a pattern of operators of any of these forms, which are one.

    Args:
        type: what rules call it, in small letters, so that no operator is called the same.
        *forms: see the module's documentation.
    """
    return Pattern(type, [ast.parse(form.strip(), mode="eval").body for form in forms])


def _with_constants(match: Match, graph: Graph) -> Match:
    """Return the match with what computes nothing but its constants."""
    parts, outside = list(match.parts), set(match.tensors.values())
    waiting = [place for part in parts for place in graph.inputs(part)]
    while waiting:
        place = waiting.pop()
        name = place[0]
        if name in parts or place in outside or graph.type(name) is None:
            continue
        if set(parts).issuperset(_readers(place, graph)):
            parts.insert(0, name)
            if graph.type(name) not in _OF_SHAPES:
                waiting += graph.inputs(name)
    return replace(match, parts=tuple(parts))


def _closed(match: Match, graph: Graph) -> bool:
    """Tell whether only the result of a match is read from outside."""
    *inner, root = match.parts
    read = {place for part in match.parts for place in graph.inputs(part)}
    return not any(place[0] == root for place in match.tensors.values()) and all(
        set(match.parts).issuperset(_readers(place, graph)) for place in read if place[0] in inner
    )


def _readers(place: Place, graph: Graph) -> Iterator[str]:
    """List the operators that read a tensor, but for copies that nothing reads."""
    for name in graph.readers(place):
        if graph.type(name) not in _TRANSPARENT or [*_readers((name, 0), graph)]:
            yield name


def _matches(form: ast.expr, place: Place, graph: Graph, so_far: Match) -> Iterator[Match]:
    if isinstance(form, ast.Call):
        yield from _operators(form, place, graph, so_far)
    elif isinstance(form, ast.List):
        sizes = _shape(place, graph, so_far.result)
        if graph.type(place[0]) not in (None, "Const") and sizes is not None:
            yield so_far.with_constant(ast.unparse(form.elts[0]), sizes)
    elif isinstance(form, ast.Name) and not form.id.startswith("_"):
        if so_far.tensors.get(form.id, place) == place:
            yield so_far.with_tensor(form.id, place)
    else:
        value = graph.constant(place)
        if value is None:
            return
        if isinstance(form, ast.Name):
            name, known = form.id[1:], _plain(value)
            if so_far.constants.get(name, known) == known:
                yield so_far.with_constant(name, known)
        elif value.size and bool((abs(value - (n := _number(form))) <= _TOLERANCE * abs(n)).all()):
            yield so_far


def _shape(place: Place, graph: Graph, result: Place) -> list[int] | None:
    """Return what a tensor says of the result's shape; None if more than one size is not known."""
    value, shape = graph.constant(place), graph.tensor(result).shape
    if value is not None:
        return [int(size) for size in value]
    if shape.rank is None:
        return None
    sizes = [-1 if size is None else int(size) for size in shape]
    return sizes if sizes.count(-1) < 2 else None


def _plain(value: Any) -> Any:
    """Return a constant as plain Python; a number as it was written, before it was rounded."""
    is_number = value.ndim == 0 and value.dtype.kind not in "iub"
    return float(str(value[()])) if is_number else value.tolist()


def _operators(form: ast.Call, place: Place, graph: Graph, so_far: Match) -> Iterator[Match]:
    name, index = place
    type = graph.type(name)
    if type is None or index:
        return
    operands = graph.inputs(name)
    if type in _TRANSPARENT and type not in _types(form):
        for found in _matches(form, operands[0], graph, so_far):
            yield found.with_part(name, {})
        return
    if type not in _types(form) or len(operands) != len(form.args):
        return
    attrs = dict(graph.attrs(name))
    for keyword in form.keywords:
        if attrs.pop(keyword.arg or "", None) != ast.literal_eval(keyword.value):
            return
    orders = [operands, operands[::-1]] if type in _COMMUTATIVE else [operands]
    for order in orders:
        for found in _all(form.args, order, graph, so_far):
            yield found.with_part(name, attrs)


def _all(
    forms: Collection[ast.expr], places: Iterable[Place], graph: Graph, so_far: Match
) -> Iterator[Match]:
    """List the ways in which each form fits its operand, and all of them fit together."""
    found: Iterable[Match] = [so_far]
    for form, place in zip(forms, places, strict=True):
        found = [more for match in found for more in _matches(form, place, graph, match)]
    yield from found


def _types(form: ast.Call) -> frozenset[str]:
    return _names(ast.unparse(form.func))


@functools.cache
def _names(alternatives: str) -> frozenset[str]:
    return frozenset(name.strip() for name in alternatives.split("|"))


def _root_types(form: ast.expr) -> frozenset[str]:
    assert isinstance(form, ast.Call), "the result of a pattern is that of an operator"
    return _types(form)


def _number(form: ast.expr) -> float:
    return float(ast.literal_eval(form))
