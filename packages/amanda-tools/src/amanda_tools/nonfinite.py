"""The tool ``NanWatch`` tells which operator made the first NaN or infinity."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import amanda

from amanda_tools.charts import bars
from amanda_tools.finiteness import FINITE, INF, NAN, Look, is_float, worst_number
from amanda_tools.formats import Saving
from amanda_tools.pictures import Pictured
from amanda_tools.place import source_text
from amanda_tools.tables import table_of

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from rich.console import RenderableType

    from amanda_tools.charts import Chart

_CALLED = {FINITE: "finite", INF: "inf", NAN: "nan"}
_WORDS = {"nan": "NaN", "inf": "Inf"}
_INPUTS = {"finite": "finite inputs", "inf": "inputs with Inf"}
_DEEPEST = 16  # backward executions of one operator inside each other; those that failed make room


@dataclass
class NonFinite:
    """This is an operator that made NaNs or infinities of what was less than that.

    Attributes:
        id, type, scope: the operator; a backward operator if the direction is ``backward``.
        source: file and line of the program's code that runs the forward operator, or made its
            node of a graph; None if nobody can tell.
        direction: ``forward`` or ``backward``.
        operator: the id of the forward operator that it belongs to.
        made: ``nan`` or ``inf``.
        of: what was in its inputs and attributes at worst: ``finite``, ``inf``, or, for what the
            program itself brought in, ``nan``.
        iteration: how many times it had run before it first did so.
        elements: how many elements of its results were so then.
        inputs: its inputs then: name, type, shape, least and most, and how many are not finite.
        executions: how many executions did so.
    """

    id: str
    type: str
    scope: str
    source: str | None
    direction: str
    operator: str
    made: str
    of: str
    iteration: int
    elements: int
    inputs: list[str]
    executions: int = 0

    def told(self) -> str:
        """Tell what happened, in a sentence."""
        where = f" ({self.source})" if self.source else ""
        verb = "is given" if self.of == "nan" else "makes"
        of = "" if self.of == "nan" else f" of {_INPUTS[self.of]}"
        given = f": {'; '.join(self.inputs)}" if self.inputs else ""
        return (
            f"{self.direction} {self.id}{where} {verb} {self.elements:,} {_WORDS[self.made]}"
            f"{of}{given}"
        )


class NanWatch(Pictured[NonFinite], Saving[NonFinite], amanda.Tool):
    """Names the operators that make a NaN or an infinity, the first one first.

    An operator makes one if its inputs and its attributes have none: a NaN of finite numbers or of
    infinities, an infinity of finite numbers. What hands on that of another is not named, nor is a
    mask that is filled with an infinity on purpose. A NaN in the data or in a parameter is named at
    the first operator that is given it. Forward and backward operators are looked at, in loops and
    in TorchScript too, and those of optimizers.

    Args:
        stop: end the program at the first one, by an error from there that names the line.
        infinities: name operators that make infinities too, and not NaNs alone.
        out: a file to write when the scope is left, as JSON, CSV or a picture by its ending (.json,
            .csv, .svg).

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else.
    """

    row_type = NonFinite
    keys = ("direction", "id", "made", "source")
    merges = MappingProxyType({"executions": "sum", "elements": "sum", "iteration": "least"})

    def __init__(
        self,
        stop: bool = False,
        infinities: bool = True,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self.save_to(out)
        self.stop = stop
        self.infinities = infinities
        self.executions = 0
        self._rows: dict[tuple[str, str, str], NonFinite] = {}
        self._unseen: dict[str, str] = {}
        self._lock = threading.Lock()
        self.add_inst_for_op(self._forward, opt_in=True)
        self.add_inst_for_op(self._backward, backward=True, keep_forward=False)

    def rows(self) -> list[NonFinite]:
        """Return the operators that made one, in the order in which they first did."""
        return list(self._rows.values())

    def first(self) -> NonFinite | None:
        """Return the operator that made the first one; None if there is none."""
        return next(iter(self._rows.values()), None)

    def found(self) -> str:
        """Tell the first one, or that there is none."""
        first = self.first()
        what = "NaN or Inf" if self.infinities else "NaN"
        none = f"no {what} was made in {self.executions:,} executions"
        return none if first is None else first.told()

    def charts(self) -> list[Chart]:
        """Draw how many elements of each operator's results were so when it first made one."""
        made = {f"{row.direction} {row.id}": float(row.elements) for row in self.rows()}
        return [bars("Elements that are NaN or infinite", {"elements": made})]

    def report(self) -> list[RenderableType]:
        """Tell what was found, with a table of all operators that made one."""
        shown: list[RenderableType] = [f"nan: {self.found()}"]
        if len(self._rows) > 1:
            titles = ("Makes NaN or Inf", "Direction", "Made", "Of", "Elements", "Times", "Source")
            shown.append(
                table_of(
                    titles,
                    (
                        (r.id, r.direction, r.made, r.of, r.elements, r.executions, r.source)
                        for r in self._rows.values()
                    ),
                )
            )
        if self._unseen:
            id, why = next(iter(self._unseen.items()))
            shown.append(f"nan: could not look at {len(self._unseen):,} operators; {id}: {why}")
        return shown

    # Analysis

    def _forward(self, ctx: amanda.OpContext) -> None:
        if not ctx.driver.gives_values(ctx.op):
            return
        if ctx.op.opt_in and ctx.driver.purpose(ctx.op) == "model":
            return  # what is hidden in a model hands on what others made
        floats = [i for i, tensor in enumerate(ctx.inputs) if is_float(ctx, tensor)]
        site = _Site(self, ctx, ctx.op, [ctx.input_names[i] for i in floats])
        ctx.state(self)["forward"] = site
        ctx.insert_after_op(site.after_op, with_inputs=floats)

    def _backward(self, ctx: amanda.OpContext) -> None:
        assert ctx.backward_op is not None
        site = _Site(self, ctx, ctx.backward_op, [])
        ctx.insert_before_backward_op(site.before_backward_op)
        ctx.insert_after_backward_op(site.after_backward_op)

    # At each execution

    def looked(self, site: _Site, given: Sequence[Any], made: Sequence[Any]) -> None:
        """Take notice of an execution, and end it if that is asked for."""
        look = Look(site.ctx)
        after = max(map(look.worst, made), default=FINITE)
        first = None
        if after > FINITE and (after == NAN or self.infinities):
            before = max(site.known(), *map(look.worst, given), FINITE)
            first = self._noted(site, look, before, after, given, made)
        with self._lock:
            self.executions += 1
            site.executions += 1
            site.latest = after
            if look.unseen:
                self._unseen.setdefault(site.operator.id, look.unseen)
        if first is not None and self.stop:
            raise FloatingPointError(first.told())

    def _noted(
        self,
        site: _Site,
        look: Look,
        before: int,
        after: int,
        given: Sequence[Any],
        made: Sequence[Any],
    ) -> NonFinite | None:
        """Return the row of an operator, if it made what its inputs had not; else None."""
        from_outside = before == after == NAN and not self._has_nan()
        if before >= after and not from_outside:
            return None
        operator, what = site.operator, _CALLED[after]
        with self._lock:
            row = self._rows.setdefault(
                (operator.id, site.direction, what),
                NonFinite(
                    *(operator.id, operator.type, operator.scope, site.source, site.direction),
                    *(site.forward, what, _CALLED[before], site.executions),
                    elements=sum(look.count(tensor, after) for tensor in made),
                    inputs=look.ranges(site.names, given),
                ),
            )
            row.executions += 1
        return row

    def _has_nan(self) -> bool:
        return any(row.made == "nan" for row in self._rows.values())


class _Site:
    """A site is what is known of an operator at all its executions, with its routines."""

    def __init__(
        self, tool: NanWatch, ctx: amanda.OpContext, operator: amanda.Operator, names: list[str]
    ) -> None:
        self.tool = tool
        self.ctx = ctx
        self.operator = operator
        self.source = source_text(ctx.op)
        self.forward = ctx.op.id
        self.direction = "forward" if ctx.is_forward() else "backward"
        self.names = names
        self.constants = worst_number(ctx.attrs) if ctx.is_forward() else FINITE
        self.executions = 0
        self.latest = FINITE  # the worst that its latest execution gave
        self.of: _Site | None = None if ctx.is_forward() else ctx.state(tool).get("forward")
        self._waiting: deque[Sequence[Any]] = deque(maxlen=_DEEPEST)

    def known(self) -> int:
        """Return the worst of what an execution takes beside its inputs: attributes, and for a
        backward operator what the forward operator gave.
        """
        return self.constants if self.of is None else max(self.constants, self.of.latest)

    def after_op(self, *tensors: Any) -> None:
        made = len(tensors) - len(self.names)
        self.tool.looked(self, tensors[made:], tensors[:made])

    def before_backward_op(self, *grads: Any) -> None:
        self._waiting.append(grads)

    def after_backward_op(self, *grads: Any) -> None:
        self.tool.looked(self, self._waiting.pop(), grads)
