"""Operators of two runs are matched by their ids, or by layer, type and order."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from amanda_tools.recording import Recorded

# What lies between the operators that compute may differ between backends.
_MOVES = frozenset(
    {"Cast", "Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Expand", "Flatten"}
)


class Matched(NamedTuple):
    """This tells which operators of two runs are the same.

    Attributes:
        pairs: the id in the second run for one in the first.
        only_first, only_second: ids of those without a counterpart.
    """

    pairs: Mapping[str, str]
    only_first: Sequence[str]
    only_second: Sequence[str]


def matched(first: Sequence[Recorded], second: Sequence[Recorded]) -> Matched:
    """Match the operators of two runs, each of which goes by its first tensor."""
    operators = [_operators(rows) for rows in (first, second)]
    one, other = operators
    pairs: dict[str, str] = {}
    across = {row.backend for row in one.values()} != {row.backend for row in other.values()}
    if not across:
        pairs = {id: id for id in one if id in other and one[id].type == other[id].type}
    rest = [
        {id: row for id, row in one.items() if id not in pairs},
        {id: row for id, row in other.items() if id not in pairs.values()},
    ]
    if across:
        rest = [{id: r for id, r in each.items() if r.type not in _MOVES} for each in rest]
    layers = frozenset.intersection(*(frozenset(r.scope for r in o.values()) for o in operators))
    groups = [_grouped(each, layers) for each in rest]
    for key, ids in groups[0].items():
        pairs.update(_in_order(ids, groups[1].get(key, []), one, other))
    found = set(pairs.values())
    return Matched(
        pairs, [id for id in rest[0] if id not in pairs], [id for id in rest[1] if id not in found]
    )


def _operators(rows: Sequence[Recorded]) -> dict[str, Recorded]:
    found: dict[str, Recorded] = {}
    for row in rows:
        if row.direction == "forward" or row.id not in found:
            found.setdefault(row.id, row)
    return found


def _grouped(
    operators: Mapping[str, Recorded], layers: Collection[str]
) -> dict[tuple[str, str], list[str]]:
    """Return ids by type and the nearest scope that both runs have."""
    groups: dict[tuple[str, str], list[str]] = {}
    for id, row in operators.items():
        scope = row.scope
        while scope and scope not in layers:  # a function within a layer may add to it
            scope = re.sub(r"(^|[./])[^./]*$", "", scope)
        groups.setdefault((scope, row.type), []).append(id)
    return groups


def _in_order(
    ids: Sequence[str],
    others: Sequence[str],
    one: Mapping[str, Recorded],
    other: Mapping[str, Recorded],
) -> list[tuple[str, str]]:
    """Pair ids of one layer and type, in order, but for those whose size one run lacks."""
    sizes = [prod(one[id].shape) for id in ids]
    other_sizes = [prod(other[id].shape) for id in others]
    blocks = SequenceMatcher(None, sizes, other_sizes, autojunk=False).get_matching_blocks()
    return [(ids[block.a + i], others[block.b + i]) for block in blocks for i in range(block.size)]
