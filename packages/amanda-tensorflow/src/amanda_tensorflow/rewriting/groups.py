"""Inserts stages around composites: groups of nodes that are one operator for some tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda.driving import Point

from amanda_tensorflow.composites import GradientGroup, Group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda_tensorflow.composites import Anchor
    from amanda_tensorflow.rewriting.edits import Edits
    from amanda_tensorflow.rewriting.rewriter import Rewriter

    Points = dict[Point, list[int]]


class AroundGroups:
    """Gives the parts of composites what routines before the whole return, and so on.

    What is inserted at a part alone is nearer to it: it sees what comes from before the whole, and
    what is after the whole sees what it returns.
    """

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter

    def after(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """What the rest of the graph reads in place of the result."""
        if not isinstance(anchor, Group):
            return
        result = f"{anchor.root}:0"
        outputs: list[str | None] = [edits.after.get(result, result)]
        for number in points[Point.REPLACE_OP]:
            name = self._rewriter.place(edits, number)
            outputs = [f"{name}:0"]
            edits.last[anchor.root] = name
            edits.replaced.add(anchor.root)
        for number in points[Point.AFTER_OP]:
            edits.last[anchor.root] = self._rewriter.emit(edits, number, outputs, ())
        if outputs[0] is not None and outputs[0] != result:
            edits.after[result] = outputs[0]

    def before(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """What the parts take from outside."""
        if not isinstance(anchor, Group):
            return
        edits.groups.append(anchor)
        taken = [edits.frame.inputs[uses[0][0]][uses[0][1]] for uses in anchor.uses]
        inputs: list[str | None] = [edits.current(tensor) for tensor in taken]
        # parts that compute constants need not wait, and TensorFlow fails to fold some that do
        waiting = {anchor.root, *(part for uses in anchor.uses for part, _ in uses)}
        for number in points[Point.BEFORE_OP]:
            name = self._rewriter.emit(edits, number, inputs, ())
            for part in waiting:
                edits.waits[part].append(name)
        if points[Point.BEFORE_OP]:
            for uses, tensor in zip(anchor.uses, inputs, strict=True):
                for part, position in uses:
                    edits.inputs_of.setdefault(part, edits.taken(part))
                    edits.inputs_of[part][position] = str(tensor)
        for number in points[Point.REPLACE_OP]:
            self._rewriter.connect(edits, number, inputs, edits.controls(anchor.root))

    def on_grad_inputs(self, edits: Edits, anchor: Anchor, points: Points) -> None:
        """What everyone outside takes for the gradients of a composite's inputs."""
        if not isinstance(anchor, GradientGroup) or not points[Point.ON_GRAD_INPUTS]:
            return
        calls = edits.frame.gradients.calls
        computed = [
            [edits.frame.tensor(str(calls[number].grad_inputs[at])) for number, at in uses]
            for uses in anchor.uses
        ]
        sums = [_sum(edits, tensors) for tensors in computed]
        gradients = list(sums)
        for number in points[Point.ON_GRAD_INPUTS]:
            self._rewriter.emit(edits, number, gradients, ())
        for tensors, before, now in zip(computed, sums, gradients, strict=True):
            if before is not None and now is not None and now != before:
                for place, tensor in enumerate(tensors):
                    edits.outer[tensor] = (
                        now
                        if len(tensors) == 1
                        else _share(edits, tensor, before, now, first=place == 0)
                    )


def _sum(edits: Edits, tensors: Sequence[str]) -> str | None:
    """A gradient that is computed in several parts; None for one that does not flow."""
    now = [edits.current(tensor) for tensor in tensors]
    if len(now) < 2:
        return now[0] if now else None
    name = f"{tensors[0].replace(':', '_')}/amanda/sum"
    node = edits.frame.body.add(name, "AddN", now)
    node.attr["N"].i = len(now)
    node.attr["T"].type = edits.frame.body.dtype(tensors[0])
    edits.frame.mark_edited()
    return f"{name}:0"


def _share(edits: Edits, tensor: str, before: str, now: str, *, first: bool) -> str:
    """What one part of a sum becomes if routines return another sum: all of it, or nothing.

    It stays what it is where they return the sum as it was, so that nothing is rounded otherwise.
    """
    body, stem = edits.frame.body, f"{tensor.replace(':', '_')}/amanda"
    dtype = body.dtype(tensor)

    def add(name: str, op: str, *inputs: str) -> str:
        body.add(f"{stem}/{name}", op, inputs).attr["T"].type = dtype
        return f"{stem}/{name}:0"

    kept = edits.current(tensor)
    equal = add("equal", "Equal", before, now)
    share = now if first else add("nothing", "ZerosLike", kept)
    return add("share", "SelectV2", equal, kept, share)
