"""A node may be added once more, with another version of what it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_tensorflow.graph.body import control_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.wanted import Wanted


def run_again(frame: Frame, node: str, inputs: Sequence[str], wanted: Wanted) -> str:
    """Add a node like another one, with other inputs, and return its first output."""
    frame.mark_edited()
    original = frame.body.nodes[node]
    name = name_again(node, wanted)
    again = frame.body.add(name, original.op, inputs, control_inputs(original))
    for key, value in original.attr.items():
        if key != "_class":
            again.attr[key].CopyFrom(value)
    if original.op == "StackV2":
        again.attr["stack_name"].s = name.encode()
    return f"{name}:0"


def name_again(node: str, wanted: Wanted) -> str:
    """Name what stands for a node where one version of what it takes is wanted."""
    number = f"{wanted.graph}/{wanted.again}/{wanted.loops}"
    if wanted.ask is not None:
        number += f"/{wanted.ask.what}_{wanted.ask.index}"
    if wanted.layer is not None:
        number += f"_{wanted.layer}"
    return f"{node}/amanda/{number}/{wanted.operator}"
