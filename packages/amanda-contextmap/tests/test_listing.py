"""The table in the docs is the one that the maps make."""

from pathlib import Path

from amanda_contextmap.listing import listing
from amanda_contextmap.tensorflow import context_map as tensorflow
from amanda_contextmap.torch import context_map as torch

DOCS = Path(__file__).parents[1] / "docs" / "vocabulary.md"


def test_the_docs_hold_what_the_maps_say():
    assert DOCS.read_text("utf-8") == listing()


def test_every_rule_is_in_it():
    lines = {line.split("|")[1].strip(): line for line in listing().splitlines() if "|" in line}
    for onnx in (torch, tensorflow):
        for native, rules in onnx.rules.items():
            name = native.removesuffix("_") if native.removesuffix("_") in onnx.rules else native
            assert all(f"`{name}`" in lines[f"`{rule.type}`"] for rule in rules)
