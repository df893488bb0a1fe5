"""The rewriter inserts stages into frames.

Every node that reads a tensor is given the version of it that S3 says
(``docs/semantics.md#s3-gradients``): an operator and its own gradient the substituted inputs, its
own gradient the original outputs, and everybody else the substituted outputs.
"""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING

from amanda_tensorflow.rewriting.edits import Edits
from amanda_tensorflow.rewriting.groups import AroundGroups
from amanda_tensorflow.rewriting.layers import AroundLayers
from amanda_tensorflow.rewriting.nodes import StageNodes
from amanda_tensorflow.rewriting.operators import AroundOperators
from amanda_tensorflow.rewriting.reading import Readers
from amanda_tensorflow.rewriting.returned import Returned
from amanda_tensorflow.rewriting.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda.driving import Point

    from amanda_tensorflow.composites import Anchor
    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.wanted import Wanted
    from amanda_tensorflow.routines.stages import Stage


class Rewriter:
    """The rewriter inserts stages; the frames that are marked as edited are then the result.

    Attributes:
        nodes: those that run the stages.
        returned: versions that the outermost frame returns beside its outputs.
    """

    def __init__(
        self,
        root: Frame,
        stages: Sequence[Stage],
        stashed: Callable[[int, Wanted], int | None] = lambda *_: None,
    ) -> None:
        self.root = root
        self.nodes = StageNodes(root, stages)
        self._frames = list(root.walk())
        self._edits = {frame: Edits(frame) for frame in self._frames}
        self._at: dict[tuple[int, Anchor], dict[Point, list[int]]] = {}
        for number, stage in enumerate(stages):
            points = self._at.setdefault((stage.frame, stage.anchor), collections.defaultdict(list))
            points[stage.point].append(number)
        self._versions = Versions(self._edits, self.nodes.arguments.of_versions(stashed))
        self._readers = Readers(self._versions)
        self.returned = Returned(root, self._versions)

    def run(self, returning_versions: bool = False) -> None:
        """Insert all stages, and have every node read what it is to read.

        Args:
            returning_versions: whether the outermost frame is to return what the backward function
                of a pair will need, beside what that is known to need.
        """
        operators = AroundOperators(self.nodes, self._readers)
        groups, layers = AroundGroups(self.nodes), AroundLayers(self.nodes)
        # in an order in which all that a stage reads is known
        self._insert(operators.after, groups.after)
        self._insert(layers.after, inner_first=True)
        self._insert(operators.on_grad_inputs, groups.on_grad_inputs)
        self._insert(layers.on_grad_inputs, inner_first=True)
        self._insert(layers.before)
        for edits in self._edits.values():
            layers.read(edits)
        self._insert(groups.before, operators.before, layers.on_grad_outputs)
        self._insert(operators.on_grad_outputs, operators.before_backward)
        for (index, _), points in self._at.items():
            numbers = itertools.chain(*points.values())
            self.nodes.ask(self._edits[self._frames[index]], numbers, self._versions)
        for edits in self._edits.values():
            self._readers.rewire(edits)
            if self.nodes.hosts:  # else nothing assigns what the others read
                edits.run_in_order()
        if returning_versions:
            self.returned.add()
        for edits in self._edits.values():
            edits.drop_unread()

    def _insert(
        self,
        *inserting: Callable[[Edits, Anchor, dict[Point, list[int]]], None],
        inner_first: bool = False,
    ) -> None:
        """Insert stages in some ways, one after the other; those of outer layers come first."""
        places = list(self._at.items())
        for insert in inserting:
            for (index, anchor), points in reversed(places) if inner_first else places:
                insert(self._edits[self._frames[index]], anchor, points)

    def last_stage(self, name: str) -> str | None:
        """Return the outermost frame's node that is done when an operator and its routines are."""
        return self._edits[self.root].last.get(name)

    def host_nodes(self) -> list[str]:
        """List the nodes of the outermost frame that call back into Python."""
        return [name for _, name in self._edits[self.root].hosts]

    def read(self, tensor: str) -> str:
        """Return what a tensor of the outermost frame is for whoever asks for it."""
        return self._edits[self.root].current(tensor)
