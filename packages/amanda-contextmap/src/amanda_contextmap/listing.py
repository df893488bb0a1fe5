"""The maps are written here as a table, which ``docs/vocabulary.md`` holds.

Run this module to write it::

    python -m amanda_contextmap.listing packages/amanda-contextmap/docs/vocabulary.md
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from amanda_contextmap.schema import base
from amanda_contextmap.tensorflow import context_map as tensorflow
from amanda_contextmap.torch import context_map as torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amanda_contextmap.onnx_map import OnnxMap
    from amanda_contextmap.rule import Rule

_INTRODUCTION = """\
# What each operator of ONNX stands for

This table is made from the maps by `python -m amanda_contextmap.listing`, and a test holds it to
them. An operator of PyTorch or TensorFlow is seen under the ONNX name beside it wherever ONNX
computes the same for its arguments and types of data, and under its own name elsewhere. PyTorch's
operators that write to their first operand (`relu_`) are seen as those that do not. Under
TensorFlow, names in small letters are composites: several operators that are one in ONNX.

In another *layout* are the inputs and outputs that may be seen in another shape, order of axes or
type of data than the framework has them, so that a tool sees one form on both; what a tool returns
is put back into the native one.

| ONNX | PyTorch | TensorFlow | inputs | layout |
| --- | --- | --- | --- | --- |
"""


def listing() -> str:
    """Return the table in Markdown, with an ONNX operator on each line."""
    found: dict[str, dict[str, list[Rule]]] = defaultdict(lambda: defaultdict(list))
    names: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for onnx in (torch, tensorflow):
        for native, rule in _rules(onnx):
            found[rule.type][onnx.vocabulary].append(rule)
            names[rule.type][onnx.vocabulary].add(native)
    return _INTRODUCTION + "".join(_line(type, names[type], found[type]) for type in sorted(found))


def _rules(onnx: OnnxMap) -> Iterable[tuple[str, Rule]]:
    for native, rules in onnx.rules.items():
        if not (native.endswith("_") and native[:-1] in onnx.rules):
            yield from ((native, rule) for rule in rules)


def _line(type: str, names: dict[str, set[str]], rules: dict[str, list[Rule]]) -> str:
    every = [rule for chosen in rules.values() for rule in chosen]
    inputs = _first_seen(base(role) for rule in every for role in rule.roles)
    layouts = _first_seen(base(role) for rule in every for role in rule.layouts)
    cells = [
        f"`{type}`",
        _code(sorted(names["torch"])),
        _code(sorted(names["tensorflow"])),
        _code(inputs),
        _code(layouts),
    ]
    return f"| {' | '.join(cells)} |\n"


def _first_seen(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))


def _code(words: Iterable[str]) -> str:
    return " ".join(f"`{word}`" for word in words)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(listing(), "utf-8")
