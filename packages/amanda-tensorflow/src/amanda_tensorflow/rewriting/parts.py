"""A gradient may be the sum of parts, each computed by another node."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amanda_tensorflow.rewriting.edits import Edits
    from amanda_tensorflow.rewriting.nodes import StageNodes

    Uses = Sequence[Iterable[tuple[int, int]]]
    """For each gradient the numbers of the calls that return its parts, and at which positions."""


def on_sums(nodes: StageNodes, edits: Edits, numbers: Iterable[int], uses: Uses) -> None:
    """Run stages on gradients that are sums of parts, and have those outside read what they give.

    Args:
        nodes: adds the nodes of stages.
        edits: what is inserted into the frame.
        numbers: the stages.
        uses: what returns the parts of each gradient.
    """
    parts = [Parts.returned(edits, of) for of in uses]
    sums = [of.sum for of in parts]
    for number in numbers:
        nodes.emit(edits, number, sums, ())
    for of, now in zip(parts, sums, strict=True):
        of.replace(now)


class Parts:
    """These are the tensors that a gradient is the sum of.

    Args:
        edits: what is inserted into the frame.
        tensors: the parts; none for a gradient that does not flow.

    Attributes:
        sum: the gradient, as routines are given it; None for one that does not flow.
    """

    def __init__(self, edits: Edits, tensors: Sequence[str]) -> None:
        self._edits = edits
        self._tensors = tensors
        self.sum = self._sum()

    @classmethod
    def returned(cls, edits: Edits, uses: Iterable[tuple[int, int]]) -> Parts:
        """Make parts of what gradient calls return, given their numbers and the positions."""
        calls = edits.frame.gradients.calls
        return cls(
            edits, [edits.frame.tensor(str(calls[number].grad_inputs[at])) for number, at in uses]
        )

    def replace(self, now: str | None) -> None:
        """Have everyone outside of the calls read parts that add up to another gradient."""
        if self.sum is None or now is None or now == self.sum:
            return
        for place, tensor in enumerate(self._tensors):
            self._edits.outer[tensor] = (
                now if len(self._tensors) == 1 else self._share(tensor, now, first=place == 0)
            )

    def _sum(self) -> str | None:
        edits, tensors = self._edits, self._tensors
        now = [edits.current(tensor) for tensor in tensors]
        if len(now) < 2:
            return now[0] if now else None
        name = edits.frame.body.unused(f"{tensors[0].replace(':', '_')}/amanda/sum")
        node = edits.frame.body.add(name, "AddN", now)
        node.attr["N"].i = len(now)
        node.attr["T"].type = edits.frame.body.dtype(tensors[0])
        edits.frame.mark_edited()
        return f"{name}:0"

    def _share(self, tensor: str, now: str, *, first: bool) -> str:
        """Replace one part where routines return another sum: by all of that sum, or by nothing.

        It stays what it is where they return the sum as it was, so that nothing is rounded
        otherwise.
        """
        edits, body = self._edits, self._edits.frame.body
        stem, dtype = f"{tensor.replace(':', '_')}/amanda", body.dtype(tensor)

        def add(name: str, op: str, *inputs: str) -> str:
            node = body.add(body.unused(f"{stem}/{name}"), op, inputs)
            node.attr["T"].type = dtype
            return f"{node.name}:0"

        kept = edits.current(tensor)
        equal = add("equal", "Equal", str(self.sum), now)
        share = now if first else add("nothing", "ZerosLike", kept)
        return add("share", "SelectV2", equal, kept, share)
