"""The tool ``Gradients`` tells the norm of each parameter's and layer's gradient, step by step."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import amanda
import numpy as np

from amanda_tools.charts import bars
from amanda_tools.formats import Saving
from amanda_tools.numbering import Numbering
from amanda_tools.pictures import Pictured
from amanda_tools.tables import table_of

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from rich.console import RenderableType

    from amanda_tools.charts import Chart

    Array: TypeAlias = np.ndarray[Any, Any]

_SHOWN = 10
# What hands on a parameter as a whole: whoever takes it from there is given the parameter.
_MOVES = frozenset(["Cast", "Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"])


@dataclass
class Gradient:
    """This is the gradient of one parameter, over all steps.

    Attributes:
        id, type, scope: the operator that takes it first.
        input: its role there.
        operators: how many operators take it: its gradient is the sum of theirs.
        shape: of the parameter, as that operator takes it.
        steps: how many gradients there were.
        norm: the Euclidean norm of the last one, of the elements that are finite.
        mean, least, most: of the norms of all.
        zeros: the share of elements of the last one that are 0.
        not_finite: how many elements of all were infinite or NaN.
    """

    id: str
    type: str
    scope: str
    input: str
    operators: int
    shape: list[int]
    steps: int
    norm: float
    mean: float
    least: float
    most: float
    zeros: float
    not_finite: int


@dataclass
class _Parameter:
    """This is a parameter, with what is known of its gradients.

    Attributes:
        id, type, scope, input: the operator that takes it first, and its role there.
        uses: the operators and inputs that take it, some maybe to update it.
        gave: those of them that gave a gradient.
        norms: of the gradients so far: how many, their sum, the least and most, the last.
        sum, added: of the step that is going on, what came from which of several uses.
    """

    id: str
    type: str
    scope: str
    input: str
    uses: set[tuple[str, int]] = field(default_factory=set)
    gave: set[tuple[str, int]] = field(default_factory=set)
    shape: tuple[int, ...] = ()
    steps: int = 0
    total: float = 0.0
    least: float = math.inf
    most: float = 0.0
    norm: float = 0.0
    zeros: float = 0.0
    not_finite: int = 0
    sum: Array | None = None
    added: set[tuple[str, int]] = field(default_factory=set)

    def add(self, use: tuple[str, int], gradient: Array, order: Sequence[int] | None) -> None:
        """Take in what one use gives; the gradient is complete when all have given theirs.

        Args:
            order: the axes in the parameter's order; None where that is not known.
        """
        self.gave.add(use)
        if use in self.added:  # a step in which not all of them ran has ended
            self.end()
        if len(self.uses) == 1:
            self.complete(gradient)
            return
        in_order = gradient if order is None else gradient.transpose(order)
        if self.sum is None:
            self.shape, self.sum = gradient.shape, np.array(in_order)
        elif order or in_order.shape == self.sum.shape:
            self.sum = self.sum + in_order.reshape(self.sum.shape)
        else:  # it is not known how that operator takes it, but transposed, if it is a matrix
            self.sum = self.sum + in_order.T.reshape(self.sum.shape)
        self.added.add(use)
        if self.added == self.uses:
            self.end()

    def end(self) -> None:
        """Take in what there is of the step that is going on."""
        if self.sum is not None:
            self.complete(self.sum.reshape(self.shape))
        self.sum, self.added = None, set()

    def complete(self, gradient: Array) -> None:
        """Take in the gradient of a step."""
        square, wrong = _square(gradient)
        self.shape = gradient.shape
        self.norm = math.sqrt(square)
        self.zeros = 1 - int(np.count_nonzero(gradient)) / max(gradient.size, 1)
        self.not_finite += wrong
        self.steps += 1
        self.total += self.norm
        self.least, self.most = min(self.least, self.norm), max(self.most, self.norm)


class Gradients(Pictured[Gradient], Saving[Gradient], amanda.Tool):
    """Tells the norm of each parameter's gradient, and of each layer's.

    It is that which the operators give, in the backward pass, ahead of any clipping. That of a
    parameter that several operators take is the norm of their sum. Parameters go by the operator
    that takes them and their role there, in the portable vocabulary (``W`` of a convolution; ``B``,
    the weight, and ``C``, the offset, of a linear layer), and layers by their scope, so that names
    are alike on all frameworks. Of a table of TensorFlow that is looked up in by its variable there
    is none, unless it is written ``tf.gather(tf.convert_to_tensor(table), ids)``.

    Args:
        out: a file to write when the scope is left, as JSON, CSV or a picture
            (.svg), by its ending.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else.
    """

    row_type = Gradient
    rows_name = "parameters"
    keys = ("id", "input")
    units = MappingProxyType({"zeros": "share"})

    def __init__(self, out: str | os.PathLike[str] | None = None) -> None:
        super().__init__(namespace="onnx")
        self.save_to(out)
        self._numbers = Numbering()
        self._parameters: dict[int, _Parameter] = {}
        self._lock = threading.Lock()
        self.add_inst_for_op(self._meet)
        self.add_inst_for_gradient(self._watch)

    def rows(self) -> list[Gradient]:
        """Return the parameters that had a gradient, in the order in which they are first used."""
        with self._lock:
            for parameter in self._parameters.values():
                parameter.end()
            return [
                Gradient(
                    *(p.id, p.type, p.scope, p.input, len(p.gave), list(p.shape), p.steps),
                    *(p.norm, p.total / p.steps, p.least, p.most, p.zeros, p.not_finite),
                )
                for p in self._parameters.values()
                if p.steps
            ]

    def layers(self) -> dict[str, float]:
        """Return by scope the norm of the last gradients of all parameters together."""
        squares: dict[str, float] = {}
        for row in self.rows():
            squares[row.scope] = squares.get(row.scope, 0) + row.norm**2
        return {scope: math.sqrt(square) for scope, square in squares.items()}

    def totals(self) -> dict[str, Any]:
        """Return the norm of the last gradients of all parameters together."""
        norm = math.sqrt(sum(row.norm**2 for row in self.rows()))
        return {"norm": norm, "not_finite": sum(row.not_finite for row in self.rows())}

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters, the layers and the whole."""
        return {**super().to_dict(), "layers": self.layers()}

    def found(self) -> str:
        """Tell how many parameters there are, and the norm of all."""
        return f"{len(self.rows()):,} parameters, norm {self.totals()['norm']:.4g}"

    def charts(self) -> list[Chart]:
        """Draw the norm of each parameter's gradient, and of each layer's."""
        norms = {f"{row.id} {row.input}": row.norm for row in self.rows()}
        layers = {layer or "(own operators)": norm for layer, norm in self.layers().items()}
        return [
            bars("Norm of the last gradient of each parameter", {"norm": norms}),
            bars("Norm of the last gradients of each layer", {"norm": layers}),
        ]

    def report(self) -> list[RenderableType]:
        """Show the gradients with the largest norms and the smallest."""
        ranked = sorted(self.rows(), key=lambda row: -row.norm)
        shown = ranked if len(ranked) <= 2 * _SHOWN else ranked[:_SHOWN] + ranked[-_SHOWN:]
        titles = ("Gradient", "Steps", "Norm", "Mean", "Least", "Most", "Zeros", "Not finite")
        rows = (
            (f"{r.id} {r.input}", r.steps, r.norm, r.mean, r.least, r.most, r.zeros, r.not_finite)
            for r in shown
        )
        return [f"gradients: {self.found()}", table_of(titles, rows)]

    def _meet(self, ctx: amanda.OpContext) -> None:
        if ctx.op.opt_in or ctx.driver.purpose(ctx.op) != "model" or ctx.op.type in _MOVES:
            return
        for index in ctx.parameters:
            found = ctx.parameter(index)
            if found is None or found.trainable is False:
                continue
            taken = ctx.describe(ctx.inputs[index])
            if _elements(taken) == _elements(found.info):  # else its slicing operator counts
                op = ctx.op
                number = self._numbers.of(found.source)
                known = self._parameters.setdefault(
                    number, _Parameter(op.id, op.type, op.scope, ctx.input_names[index])
                )
                known.uses.add((op.id, index))
                ctx.state(self)[str(index)] = known, _order(ctx.places(index))

    def _watch(self, ctx: amanda.OpContext) -> None:
        chosen = [i for i in ctx.parameters if str(i) in ctx.state(self)]
        if chosen:
            ctx.insert_on_grad_inputs(self._take, inputs=chosen, ctx=ctx, chosen=chosen)

    def _take(self, *gradients: Any, ctx: amanda.OpContext, chosen: list[int]) -> None:
        known = ctx.state(self)
        for index, gradient in zip(chosen, gradients, strict=True):
            if gradient is not None:
                array = ctx.numpy(gradient)
                with self._lock:
                    parameter, order = known[str(index)]
                    parameter.add((ctx.op_id, index), array, order)


def _square(gradient: Array) -> tuple[float, int]:
    """Return the sum of the squares of what is finite, and how many elements are not."""
    if gradient.dtype.kind == "f":
        values = gradient.reshape(-1).astype(np.float64)
        with np.errstate(all="ignore"):
            square = float(values @ values)
        if math.isfinite(square):  # then so is each element
            return square, 0
    finite = np.isfinite(gradient)
    wrong = gradient.size - int(finite.sum())
    values = np.abs(gradient[finite]).astype(np.float64)
    return float(np.square(values).sum()), wrong


def _order(places: Array | None) -> Sequence[int] | None:
    """Return the axes of a parameter as an operator takes it, in the order in which they are kept.

    Args:
        places: those of its elements in the flat parameter, or None where they are not known.
    """
    if places is None or not places.size:
        return None
    first = (0,) * places.ndim
    steps = [places.take(min(1, n - 1), axis)[first[1:]] for axis, n in enumerate(places.shape)]
    order = np.argsort(np.negative(steps), kind="stable").tolist()
    kept = places.transpose(order).ravel()
    return order if np.array_equal(kept, np.arange(places.size)) else None


def _elements(info: amanda.TensorInfo) -> int | None:
    """Count the elements of a tensor; None where that is not known."""
    shape = info.shape
    return None if shape is None or None in shape else math.prod(n for n in shape if n is not None)
