"""A function returns versions beside its outputs that its backward function needs."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from amanda_tensorflow.notes import notes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.wanted import Wanted
    from amanda_tensorflow.rewriting.versions import Versions


class Returned:
    """This adds versions to what the outermost frame returns.

    Attributes:
        versions: those that it returns, in order: beside which outputs they travel, and the
            operator whose gradient needs them.
    """

    def __init__(self, root: Frame, versions: Versions) -> None:
        self.root = root
        self._versions = versions
        self.versions: list[tuple[Sequence[int], Wanted]] = []

    def add(self) -> None:
        """Return what any gradient outside may need."""
        for index, tensor in enumerate(self.root.outputs):
            for operator in dict.fromkeys(self._versions.operators(self.root, tensor)):
                version = self._versions.find(self.root, tensor, operator)
                if version is not None:
                    self._return((index,), operator, version)
        captured = {
            id(tensor)
            for graph in notes_of(self.root.graph).gradients_in
            for tensor in graph.external_captures
        }
        outputs = self.root.graph.outputs
        beside = [i for i, tensor in enumerate(outputs) if id(tensor) in captured]
        for wanted, dtype in self.root.handed.items() if beside else ():
            self._return_asked(wanted, dtype, beside)

    def _return_asked(self, wanted: Wanted, dtype: int, beside: Sequence[int]) -> None:
        """Return what routines on gradients ask for beside tensors that get to the gradients.

        What comes along with an output is returned beside that, what comes by itself beside any.
        """
        found: dict[str, list[int]] = collections.defaultdict(list)
        for index in beside:
            version = self._versions.find(self.root, self.root.outputs[index], wanted)
            if version is not None:
                found[version].append(index)
        if not found:
            asked = self._versions.asked(self.root, wanted, dtype, in_gradient=True)
            if asked is not None:
                found[asked] = list(beside)
        for version, indices in found.items():
            self._return(indices, wanted, version)

    def _return(self, beside: Sequence[int], operator: Wanted, version: str) -> None:
        self.root.body.outputs.append(version)
        self.versions.append((beside, operator))
