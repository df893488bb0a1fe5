"""Stages are inserted around composites: groups of nodes that are one operator for some tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda import UnsupportedError
from amanda.driving import Point

from amanda_tensorflow.composites import GradientGroup, Group
from amanda_tensorflow.rewriting.parts import on_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda_tensorflow.composites import Anchor
    from amanda_tensorflow.rewriting.edits import Edits
    from amanda_tensorflow.rewriting.nodes import StageNodes

    Points = dict[Point, list[int]]


class AroundGroups:
    """This inserts stages around composites: parts take what routines before the whole return.

    What is inserted at a part alone is nearer to it: it sees what comes from before the whole, and
    what is after the whole sees what it returns.
    """

    def __init__(self, nodes: StageNodes) -> None:
        self._nodes = nodes

    def after(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """Have the rest of the graph read what stages after a composite, or for it, return."""
        if not isinstance(anchor, Group):
            return
        result = f"{anchor.root}:0"
        outputs: list[str | None] = [edits.after.get(result, result)]
        for number in points[Point.REPLACE_OP]:
            name = self._nodes.place(edits, number)
            outputs = [f"{name}:0"]
            edits.last[anchor.root] = name
            edits.replaced.add(anchor.root)
        for number in points[Point.AFTER_OP]:
            edits.last[anchor.root] = self._nodes.emit(edits, number, outputs, ())
        if outputs[0] is not None and outputs[0] != result:
            edits.after[result] = outputs[0]

    def before(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """Have the parts take from outside what stages before a composite return."""
        if not isinstance(anchor, Group):
            return
        edits.groups.append(anchor)
        inputs: list[str | None] = [self._taken(edits, uses) for uses in anchor.uses]
        # parts that compute constants need not wait, and TensorFlow fails to fold some that do
        waiting = {anchor.root, *(part for uses in anchor.uses for part, _ in uses)}
        for number in points[Point.BEFORE_OP]:
            name = self._nodes.emit(edits, number, inputs, ())
            for part in waiting:
                edits.waits[part].append(name)
        if points[Point.BEFORE_OP]:
            for uses, tensor in zip(anchor.uses, inputs, strict=True):
                for part, position in uses:
                    edits.inputs_of.setdefault(part, edits.taken(part))
                    edits.inputs_of[part][position] = str(tensor)
        for number in points[Point.REPLACE_OP]:
            self._nodes.connect(edits, number, inputs, edits.controls(anchor.root))

    def _taken(self, edits: Edits, uses: Sequence[tuple[str, int]]) -> str:
        """Return what a composite takes for an input, which all its parts do that take it.

        Raises:
            UnsupportedError: they lie in several layers, around which routines replace it.
        """
        (part, position), *others = uses
        taken = edits.taken(part)[position]
        if any(edits.taken(other)[at] != taken for other, at in others):
            raise UnsupportedError(
                f"{part!r} and {others[0][0]!r} are parts of one operator for some tools, and lie "
                "in several layers at which routines replace what they take; insert at the layers "
                "or at the operator in scopes of their own"
            )
        return taken

    def on_grad_inputs(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """Have everyone outside take what stages on a composite's input gradients return."""
        if isinstance(anchor, GradientGroup) and points[Point.ON_GRAD_INPUTS]:
            on_sums(self._nodes, edits, points[Point.ON_GRAD_INPUTS], anchor.uses)
