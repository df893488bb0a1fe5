"""Faults are bits that flip, and values that go wrong, in weights, activations and gradients."""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import amanda
import numpy as np
from amanda.driving import numbered
from amanda_contextmap import products

from amanda_tools.bits import NUMBERS, flipped, positions
from amanda_tools.charts import bars
from amanda_tools.formats import Saving
from amanda_tools.hidden import refuse_hidden, show_lookups
from amanda_tools.options import refuse_unused
from amanda_tools.packed_weights import PackedWeights
from amanda_tools.pictures import Pictured
from amanda_tools.tables import table_of

if TYPE_CHECKING:
    import os

    from rich.console import RenderableType

    from amanda_tools.charts import Chart

Target = Literal["weights", "activations", "gradients"]

_KEPT = 10_000  # faults whose rows are kept; all are counted
_SHOWN = 10


class Hits(NamedTuple):
    """Hits are the elements of a tensor that are hit, by flat index, with the bits to flip."""

    elements: Sequence[int]
    bits: Sequence[int]


@dataclass
class Fault:
    """This is a fault that was injected.

    Attributes:
        id, type, scope: the operator.
        target: ``weights``, ``activations`` or ``gradients``.
        iteration: which execution of the operator it was; of weights always 0, as their faults
            stay.
        element: the place in the flat tensor, in the layout of ONNX.
        bit: which bit was flipped, 0 for the lowest; None where the value was replaced.
        before, after: the element's value.
    """

    id: str
    type: str
    scope: str
    target: str
    iteration: int
    element: int
    bit: int | None
    before: float
    after: float


class Site(NamedTuple):
    """A site is a tensor of an operator that faults may hit.

    Attributes:
        ctx: of the operator.
        key: names it alike on all backends: scope and type, with a number for a second one.
        operator: it, as ONNX calls it.
    """

    ctx: amanda.OpContext
    key: str
    operator: amanda.Operator


# What is hit at an execution, given the site, how many executions there were before, the tensor's
# size, and the bits that may flip; None for nothing.
Choose = Callable[[Site, int, int, Sequence[int]], "Hits | None"]


def random_hits(rate: float | None, count: int, seed: int) -> Choose:
    """Make a function that draws hits anew for each execution of each operator, from a seed."""

    def choose(site: Site, iteration: int, size: int, positions: Sequence[int]) -> Hits | None:
        random = np.random.default_rng([seed, zlib.crc32(site.key.encode()), iteration])
        number = min(count, size) if rate is None else int(random.binomial(size, rate))
        if not number:
            return None
        elements = random.choice(size, number, replace=False)
        return Hits(elements.tolist(), random.choice(list(positions), number).tolist())

    return choose


class Faults(Pictured[Fault], Saving[Fault], amanda.Tool):
    """Flips bits, or sets values, at random in weights, activations or gradients.

    It speaks of operators and of the elements of tensors as ONNX does, so that one seed gives the
    same faults on every backend. Each execution draws anew, but for weights, whose faults stay.

    Args:
        target: ``activations`` (results of operators), ``weights`` (their first parameter), or
            ``gradients`` (of that).
        rate: the probability that an element is hit; without it ``count`` elements are.
        count: how many elements are hit at each execution; by default one.
        bits: bits of which one is flipped, by number from 0, the lowest, or ``sign``, ``exponent``
            or ``mantissa``; all by default.
        value: a value that the elements get instead.
        dtype: the type of data in which a bit is one, as if the tensor was stored in it; by
            default its own.
        ops: types of operators of ONNX; by default those of layers that multiply.
        scopes: globs of their scopes.
        seed: the seed of the random numbers.
        out: a file to write when the scope is left, as JSON, CSV or a picture by its ending (.json,
            .csv, .svg).

    Raises:
        OSError: it cannot be written there.
        ValueError: an option is out of range, or has no effect with the others.
    """

    row_type = Fault
    rows_name = "faults"
    lists_candidates = True

    def __init__(
        self,
        target: Target = "activations",
        rate: float | None = None,
        count: int | None = None,
        bits: list[int] | str | None = None,
        value: float | None = None,
        dtype: str | None = None,
        ops: list[str] | None = None,
        scopes: list[str] | None = None,
        seed: int = 0,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(namespace="onnx")
        if target not in ("weights", "activations", "gradients"):
            raise ValueError(f"target is weights, activations or gradients, not {target!r}")
        if rate is not None and not 0 <= rate <= 1:
            raise ValueError(f"rate is {rate}, and has to be from 0 to 1")
        if rate is not None:
            refuse_unused("rate", count=count)
        if value is not None:
            refuse_unused("value", bits=bits, dtype=dtype)
        count = 1 if count is None else count
        if count < 0 or seed < 0:
            raise ValueError("count and seed have to be 0 or more")
        positions(bits, dtype or "float64")
        self.save_to(out)
        self.target: Target = target
        self.choose = random_hits(rate, count, seed)
        self.injected = 0
        self._bits, self._value, self._dtype = bits, value, dtype
        self._faults: list[Fault] = []
        self._sites: list[Site] = []
        self._keys: dict[str, int] = {}  # how many operators there are of each scope and type
        self._lock = threading.Lock()
        register = self.add_inst_for_gradient if target == "gradients" else self.add_inst_for_op
        types = ops or list(products())  # what computes in a model: papers report faults of these
        register(self._analyze, ops=types, scopes=scopes)
        refuse_hidden(self, types, scopes)
        self._packed = PackedWeights(self, types, scopes)
        if target == "weights":
            show_lookups(self)

    def rows(self) -> list[Fault]:
        """Return the faults that were injected, the first 10,000 of them."""
        return list(self._faults)

    def on_exit(self) -> None:
        """Bring the file up to date, and warn of what is left alone."""
        super().on_exit()
        self._packed.warn()

    def start_anew(self) -> None:
        """Forget what was injected, and count executions from 0 again."""
        self.injected = 0
        self._faults.clear()
        for site in self._sites:
            site.ctx.state(self)["executions"] = 0

    def totals(self) -> dict[str, Any]:
        """Return how many faults were injected."""
        return {"injected": self.injected}

    def found(self) -> str:
        """Tell how many faults were injected, and into what."""
        return f"{self.injected:,} faults in {self.target}"

    def charts(self) -> list[Chart]:
        """Draw how many faults each operator had, and each bit."""
        hit = Counter(row.id for row in self._faults)
        flipped = Counter(f"bit {row.bit}" for row in self._faults if row.bit is not None)
        return [
            bars("Faults of each operator", {"faults": hit}),
            bars("Faults of each bit", {"faults": flipped}),
        ]

    def report(self) -> list[RenderableType]:
        """Show the first faults as a table, and tell how many were injected."""
        said = self.and_saved(f"faults: {self.found()}")
        titles = ("Fault", "Execution", "Element", "Bit", "Before", "After")
        rows = [
            (f.id, f.iteration, f.element, f.bit, f.before, f.after) for f in self._faults[:_SHOWN]
        ]
        return [table_of(titles, rows), said] if rows else [said]

    def _analyze(self, ctx: amanda.OpContext) -> None:
        state = ctx.state(self)
        if "site" not in state:
            key = f"{ctx.op.scope}/{ctx.op.type}"
            number = self._keys[key] = self._keys.get(key, 0) + 1
            state["site"] = Site(ctx, numbered(key, number), ctx.op)
            state["executions"] = 0
            self._sites.append(state["site"])
        site, weight = state["site"], ctx.weight_index
        if self.target == "activations":
            ctx.insert_after_op(self._hit, outputs=[0], site=site)
        elif weight is not None and self.target == "weights":
            ctx.insert_before_op(self._hit, inputs=[weight], site=site)
        elif weight is not None:
            ctx.insert_on_grad_inputs(self._hit, inputs=[weight], site=site)

    def _hit(self, tensor: Any, site: Site) -> Any:
        """Return the tensor with its faults; None for none."""
        if tensor is None:
            return None
        ctx = site.ctx
        state = ctx.state(self)
        with self._lock:
            execution = state["executions"]
            state["executions"] += 1
        stays = self.target == "weights"
        iteration = 0 if stays else execution
        info = ctx.describe(tensor)
        if info.dtype not in NUMBERS:
            raise ValueError(f"nothing is known of the bits of {info.dtype}; leave it out by ops=")
        before = ctx.numpy(tensor)
        dtype = self._dtype or info.dtype
        hits = self.choose(site, iteration, before.size, positions(self._bits, dtype))
        if hits is None:
            return None
        after = self._changed(before, hits, dtype)
        if not (stays and execution):
            self._keep(site, iteration, hits, before, after)
        return ctx.from_numpy(after, tensor)

    def _changed(self, array: Any, hits: Hits, dtype: str) -> Any:
        if self._value is None:
            return flipped(array, hits.elements, hits.bits, dtype)
        result = np.array(array)
        result.reshape(-1)[list(hits.elements)] = self._value
        return result

    def _keep(self, site: Site, iteration: int, hits: Hits, before: Any, after: Any) -> None:
        operator = site.operator
        before, after = before.reshape(-1), after.reshape(-1)
        with self._lock:
            self.injected += len(hits.elements)
            room = _KEPT - len(self._faults)
            for element, bit in list(zip(*hits, strict=True))[:room]:
                fault = Fault(
                    *(operator.id, operator.type, operator.scope, self.target, iteration),
                    *(element, bit if self._value is None else None),
                    *(float(before[element]), float(after[element])),
                )
                self._faults.append(fault)
