"""The tool ``EffectivePath`` extracts the paths of examples, and unites those of a class."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import amanda
import numpy as np

from amanda_tools.charts import bars, heatmap
from amanda_tools.effective_path.extraction import Execution, Pass
from amanda_tools.effective_path.synapses import RULES
from amanda_tools.formats import Saving
from amanda_tools.graph import Graph
from amanda_tools.interrupts import uninterrupted
from amanda_tools.pictures import Pictured
from amanda_tools.progress import progress
from amanda_tools.tables import table_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from amanda_tools.charts import Chart
    from amanda_tools.effective_path.extraction import Layer
    from amanda_tools.effective_path.synapses import Array

# Operators of which any input may flow through, and not the first alone.
_SEVERAL = frozenset(["Add", "Sub", "Mul", "Div", "Concat"])


@dataclass
class LayerPath:
    """A layer path is what one layer has of the effective path of one example.

    Attributes:
        example: which one it was, from 0.
        label: the class that was predicted.
        id, type, scope: the operator.
        neurons: how many of its outputs are on the path.
        synapses: how many of the addends of its outputs are.
        total: how many addends there are.
    """

    example: int
    label: int
    id: str
    type: str
    scope: str
    neurons: int
    synapses: int
    total: int

    @property
    def density(self) -> float:
        """Return the share of addends that are on the path."""
        return self.synapses / self.total


class EffectivePath(Pictured[LayerPath], Saving[LayerPath], amanda.Tool):
    """Extracts effective paths (Qiu et al., CVPR 2019, "Adversarial Defense Through Network
    Profiling Based Path Extraction").

    From the predicted class back to the input, each active neuron has as effective synapses the
    fewest that together give a share of its value, the largest first; what they come from is
    active in turn. The path of a class is the union of those of its examples.

    It runs on convolutions, linear layers, pooling, means, normalization as one operator or spelled
    out, activation functions, residual additions, concatenations and what moves elements. A path
    that reaches any other operator, such as attention, is refused by an error that names it. A
    pass begins whenever an operator runs that has run in the pass before, and the first axis of
    inputs is that of examples. The synapses of a class are kept as a bit for each addend.

    Args:
        share: the part of a neuron's value that its synapses have to give (theta in the paper).
        scores: id of the operator that gives the scores of the classes, of shape (examples,
            classes); by default the last linear layer of a pass, with its offset.
        out: a file to write when the scope is left: a picture (.svg), JSON (.json) or CSV (.csv),
            by its ending.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else, or the share is not above 0 and up to 1.
    """

    row_type = LayerPath
    rows_name = "layers"

    def __init__(
        self,
        share: float = 0.5,
        scores: str | None = None,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(namespace="onnx")
        if not 0 < share <= 1:
            raise ValueError(f"share is above 0 and up to 1, not {share}")
        self.save_to(out)
        self.share = share
        self.graph = Graph(namespace="onnx")
        self.depends_on(self.graph)
        self._scores = scores
        self._rows: list[LayerPath] = []
        self._examples: dict[int, int] = defaultdict(int)  # by class
        self._classes: dict[int, dict[str, Array]] = {}  # bits, by layer
        self._sizes: dict[str, int] = {}
        self._pass = Pass()
        self._outside: set[str] = set()
        self._whole: set[str] | None = None  # the operators of a pass that came to its end
        self._cuts = 0  # scopes of which it knows that they were cut short
        self._left_out: list[str] = []
        self._lock = threading.RLock()
        self.add_inst_for_op(self._locate)
        self.add_inst_for_op(self._analyze, ops=RULES)

    # What was found

    def rows(self) -> list[LayerPath]:
        """Return each layer's part in each example's path, from the scores back to the input."""
        self._end_pass()
        return self._rows

    def found(self) -> str:
        """Tell how many examples there are, of how many classes."""
        rows = self.rows()
        share = sum(row.synapses for row in rows) / max(1, sum(row.total for row in rows))
        count = sum(self._examples.values())
        return f"{count:,} examples of {len(self._examples):,} classes, {share:.1%} of the synapses"

    @property
    def partial(self) -> str | None:
        """Tell why that is not all that there was to find; None if it is."""
        said = super().partial
        reasons = [*([] if said is None else [said]), *self._left_out]
        return "; ".join(reasons) or None

    def synapses(self, label: int) -> dict[str, Array]:
        """Return by layer which addends are on the path of a class, in the order of the outputs.

        For a convolution, (channels of the output, places, channels of the input x places of the
        kernel), flattened.

        Raises:
            LookupError: nothing was predicted to be of that class.
        """
        self._end_pass()
        if label not in self._classes:
            known = ", ".join(map(str, sorted(self._classes)))
            raise LookupError(f"no example was predicted to be of class {label}; there are {known}")
        return {
            id: np.unpackbits(bits, count=self._sizes[id]).astype(bool)
            for id, bits in self._classes[label].items()
        }

    def densities(self) -> dict[int, dict[str, float]]:
        """Return, for each class, the share of each layer's synapses that are on its path."""
        self._end_pass()
        return {
            label: {id: _count(bits) / self._sizes[id] for id, bits in self._classes[label].items()}
            for label in sorted(self._classes)
        }

    def similarity(self) -> dict[int, dict[int, float]]:
        """Return, for each two classes, the Jaccard similarity of their paths: 1 for equal ones."""
        self._end_pass()
        labels = sorted(self._classes)
        return {
            one: {other: _common(self._classes[one], self._classes[other]) for other in labels}
            for one in labels
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the layers of each example, and the classes' densities and similarity."""
        self._end_pass()
        found = super().to_dict()
        for row, known in zip(found[self.rows_name], self._rows, strict=True):
            row["density"] = known.density
        return {**found, "densities": self.densities(), "similarity": self.similarity()}

    def report(self) -> list[RenderableType]:
        """Show tables of densities and of similarity."""
        densities, similarity = self.densities(), self.similarity()
        shown: list[RenderableType] = [f"effective path: {self.found()}"]
        if densities:
            labels = list(densities)
            layers = list(next(iter(densities.values())))
            rows = ([layer, *(densities[c].get(layer) for c in labels)] for layer in layers)
            shown.append(table_of(["Density", *map(str, labels)], rows))
            common = ([str(c), *similarity[c].values()] for c in labels)
            shown.append(table_of(["Similarity", *map(str, labels)], common))
        return shown

    def charts(self) -> list[Chart]:
        """Draw the densities by layer for each class, and the similarity of classes."""
        return [
            bars("Density of the effective path", self.densities()),
            heatmap("Similarity of classes (Jaccard)", self.similarity()),
        ]

    def on_exit(self) -> None:
        """Extract the paths of the last pass, and bring the file up to date."""
        try:
            with self._lock:
                if len(self.cut_short) > self._cuts and not self._is_whole(self._pass):
                    self._pass = Pass()
                    self._left_out.append("the pass that was under way is left out")
                self._cuts = len(self.cut_short)
            self._end_pass()
        finally:
            super().on_exit()

    # What runs

    def _analyze(self, ctx: amanda.OpContext) -> None:
        if ctx.op.opt_in or ctx.driver.purpose(ctx.op) != "model":
            return
        count = len(ctx.inputs) if ctx.op.type in _SEVERAL else min(2, len(ctx.inputs))
        flowing = range(count) if ctx.op.type in _SEVERAL else [0]
        data = [i for i in flowing if i not in ctx.parameters]
        execution = Execution(ctx.op, dict(ctx.attrs), ctx.layouts, data, count)
        ctx.insert_after_op(self._ran, with_inputs=range(count), ctx=ctx, execution=execution)

    def _locate(self, ctx: amanda.OpContext) -> None:
        if ctx.driver.model(ctx.op) is None:
            self._outside.add(ctx.op.id)

    def _ran(self, *tensors: Any, ctx: amanda.OpContext, execution: Execution) -> None:
        count = len(tensors) - execution.inputs
        inputs = [execution.kept(ctx, x, execution.whole) for x in tensors[count:]]
        outputs = [execution.kept(ctx, y, len(y.shape) == 2) for y in tensors[:count]]
        with self._lock:
            if execution.operator.id in self._pass:
                self._whole = set(self._pass.ran)
                self._end_pass()
            self._pass.add(execution, inputs, outputs)

    def _end_pass(self) -> None:
        with self._lock:
            ended, self._pass = self._pass, Pass()
            count, paths = ended.paths(self.graph, self._scores, self.share, self._outside)
            done = 0
            try:
                with progress("effective paths", count) as step:
                    for label, layers in paths:
                        with uninterrupted():
                            self._add(label, layers)
                            done += 1
                        step()
            except KeyboardInterrupt:
                self._left_out.append(f"{count - done:,} of {count:,} examples of a pass left out")
                raise

    def _is_whole(self, ended: Pass) -> bool:
        """Tell whether as much ran of a pass as of one that another pass followed."""
        return not ended.ran or (self._whole is not None and self._whole <= ended.ran.keys())

    def _add(self, label: int, layers: Sequence[Layer]) -> None:
        """Take note of the path of an example."""
        example = sum(self._examples.values())
        self._examples[label] += 1
        known = self._classes.setdefault(label, {})
        for operator, neurons, synapses in layers:
            self._rows.append(
                LayerPath(
                    *(example, label, operator.id, operator.type, operator.scope),
                    *(neurons, int(synapses.sum()), synapses.size),
                )
            )
            self._unite(known, operator, synapses)

    def _unite(self, known: dict[str, Array], operator: amanda.Operator, synapses: Array) -> None:
        size = self._sizes.setdefault(operator.id, synapses.size)
        if size != synapses.size:
            raise amanda.UnsupportedError(
                f"{self.name}: {operator.named} has {synapses.size:,} synapses, and had {size:,} "
                "before; give examples of one size, or a tool of its own for each size"
            )
        bits = np.packbits(synapses)
        known[operator.id] = known[operator.id] | bits if operator.id in known else bits


def _count(bits: Array) -> int:
    return int(np.unpackbits(bits).sum())


def _common(one: Mapping[str, Array], other: Mapping[str, Array]) -> float:
    both = either = 0
    for id in one.keys() | other.keys():
        empty = np.zeros(1, np.uint8)
        first, second = one.get(id, empty), other.get(id, empty)
        both += _count(first & second)
        either += _count(first | second)
    return both / either if either else 1.0
