"""A campaign of faults tells how often one changes what a model predicts, by layer and bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import amanda
import numpy as np

from amanda_tools.arrays import returned
from amanda_tools.charts import bars
from amanda_tools.faults import Faults, Hits, Site, Target
from amanda_tools.formats import save
from amanda_tools.interrupts import leave_with
from amanda_tools.pictures import Pictured
from amanda_tools.progress import progress
from amanda_tools.tables import table_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import RenderableType

    from amanda_tools.charts import Chart


@dataclass
class Trial:
    """A trial is a run with one fault.

    Attributes:
        id, type, scope, target, iteration, element, bit, before, after: the fault; see
            :class:`amanda_tools.Fault`.
        outcome: ``same``, ``changed``, or ``failed`` where the run ended with an error.
        changed: the share of predictions that differ from those without faults.
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
    outcome: str
    changed: float


@dataclass
class Share:
    """A share tells how many of some trials changed the predictions.

    Attributes:
        trials: how many there were.
        changed: how many of them changed a prediction.
        failed: how many ended with an error.
    """

    trials: int = 0
    changed: int = 0
    failed: int = 0

    @property
    def rate(self) -> float:
        """Return the share of trials that changed a prediction or failed."""
        return (self.changed + self.failed) / self.trials if self.trials else 0.0


class Campaign(Pictured[Trial]):
    """A campaign has trials, and tells how often they changed the predictions.

    Args:
        trials: those that were made.
        planned: how many were to be made, if that is more.
    """

    row_type = Trial
    rows_name = "trials"

    def __init__(self, trials: Sequence[Trial], planned: int | None = None) -> None:
        self._trials = list(trials)
        self._planned = len(self._trials) if planned is None else planned

    def rows(self) -> list[Trial]:
        """Return the trials."""
        return list(self._trials)

    def totals(self) -> dict[str, Any]:
        """Count the trials, and those that changed a prediction or failed."""
        total = self._shares(lambda _: "")[""] if self._trials else Share()
        return {**vars(total), "rate": total.rate}

    @property
    def partial(self) -> str | None:
        """Tell how many of the planned trials were made; None if all of them were."""
        made = len(self._trials)
        return None if made == self._planned else f"{made:,} of {self._planned:,} trials"

    def by_layer(self) -> dict[str, Share]:
        """Tell how often predictions changed, by the operator that had the fault."""
        return self._shares(lambda trial: trial.id)

    def by_bit(self) -> dict[int | None, Share]:
        """Tell how often predictions changed, by the bit that was flipped; None for values."""
        shares = self._shares(lambda trial: trial.bit)
        return dict(sorted(shares.items(), key=lambda item: -1 if item[0] is None else item[0]))

    def by_layer_and_bit(self) -> dict[tuple[str, int | None], Share]:
        """Tell how often predictions changed, by the operator and the flipped bit."""
        return self._shares(lambda trial: (trial.id, trial.bit))

    def found(self) -> str:
        """Tell how many faults there were, and what share of them changed a prediction."""
        total = self.totals()
        rate = f"{total['rate']:.1%}"
        return f"{total['trials']:,} faults, of which {rate} changed a prediction"

    def report(self) -> list[RenderableType]:
        """Show tables by layer and by bit, and the total."""
        tables: list[RenderableType] = [
            _table("Layer", self.by_layer()),
            _table("Bit", self.by_bit()),
        ]
        said = "" if self.partial is None else f"; partial: {self.partial}"
        return [*tables, f"campaign: {self.found()}{said}"]

    def charts(self) -> list[Chart]:
        """Draw how often a prediction changed, by layer and by bit."""
        layers = {layer: share.rate for layer, share in self.by_layer().items()}
        bits = {str(bit): share.rate for bit, share in self.by_bit().items()}
        return [
            bars("Share that changed, by layer", {"share": layers}),
            bars("Share that changed, by bit", {"share": bits}),
        ]

    def save(self, out: str | os.PathLike[str]) -> None:
        """Write the trials, as JSON (with totals) or CSV, or a picture (.svg), by the ending.

        Raises:
            OSError: it cannot be written there.
            ValueError: its name ends in something else.
        """
        save(self, out)

    def _shares(self, key: Callable[[Trial], Any]) -> dict[Any, Share]:
        shares: dict[Any, Share] = {}
        for trial in self._trials:
            share = shares.setdefault(key(trial), Share())
            share.trials += 1
            share.changed += trial.outcome == "changed"
            share.failed += trial.outcome == "failed"
        return shares


def _table(title: str, shares: Mapping[Any, Share]) -> RenderableType:
    titles = (title, "Faults", "Changed", "Failed", "Share")
    return table_of(
        titles,
        ((key, s.trials, s.changed, s.failed, f"{s.rate:.1%}") for key, s in shares.items()),
    )


def campaign(
    run: Callable[[], Any],
    trials: int = 100,
    target: Target = "activations",
    *,
    bits: list[int] | str | None = None,
    value: float | None = None,
    dtype: str | None = None,
    ops: list[str] | None = None,
    scopes: list[str] | None = None,
    by: Literal["element", "layer"] = "element",
    seed: int = 0,
) -> Campaign:
    """Run a model again and again, each time with one fault, and compare what it predicts.

    Args:
        run: runs the model on inputs of its own and returns the predictions, as class numbers:
            anything that NumPy takes. Any difference counts as a change.
        trials: how many faults.
        target, bits, value, dtype, ops, scopes, seed: as for :class:`amanda_tools.Faults`.
        by: whether each element is hit with the same probability, or each layer.

    Raises:
        TypeError: NumPy does not take what it returns.
        ValueError: an option is out of range, or ``run`` predicts otherwise when it is called
            again, or runs no such operator.
        KeyboardInterrupt: Ctrl-C; its attribute ``found`` is the campaign as far as it came, which
            says that it is partial.
    """
    if trials < 1:
        raise ValueError(f"trials is {trials}, and has to be 1 or more")
    if by not in ("element", "layer"):
        raise ValueError(f"by is 'element' or 'layer', not {by!r}")
    tool = Faults(target, bits=bits, value=value, dtype=dtype, ops=ops, scopes=scopes, seed=seed)
    seen = _Seen(target)
    tool.choose = seen.note
    with amanda.apply(tool):
        expected = returned(run(), "run()")
        sites = list(seen.sites.values())
        if not sites:
            raise ValueError(
                f"run() runs no operator with {target} that faults may hit; name its types by ops="
            )
        tool.choose = _nothing
        if not _equal(returned(run(), "run()"), expected):
            raise ValueError(
                "run() predicts otherwise when it is called again; seed what is random"
            )
        weights = np.array([site.elements if by == "element" else 1 for site in sites], float)
        weights /= weights.sum()
        found: list[Trial] = []
        try:
            with progress("faults", trials) as step:
                for number in range(trials):
                    random = np.random.default_rng([seed, number])
                    planned = sites[random.choice(len(sites), p=weights)].plan(random)
                    tool.start_anew()
                    tool.choose = planned
                    found.append(_tried(tool, run, expected))
                    step()
        except KeyboardInterrupt as stop:
            leave_with(stop, Campaign(found, trials), f"{len(found):,} of {trials:,} trials")
            raise
    return Campaign(found)


def _tried(tool: Faults, run: Callable[[], Any], expected: Any) -> Trial:
    try:
        predicted = returned(run(), "run()")
    except amanda.AmandaError:
        raise
    except Exception:  # the model was not made for such numbers
        outcome, changed = "failed", 1.0
    else:
        same = _equal(predicted, expected)
        outcome = "same" if same else "changed"
        changed = 0.0 if same else _share(predicted, expected)
    faults = tool.rows()
    if len(faults) != 1:
        raise ValueError("run() runs other operators when called again, so that a fault hit none")
    return Trial(**vars(faults[0]), outcome=outcome, changed=changed)


def _equal(one: Any, other: Any) -> bool:
    return one.shape == other.shape and not _differing(one, other).any()


def _differing(one: Any, other: Any) -> Any:
    return (one != other) & ~((one != one) & (other != other))  # NaNs are alike


def _share(one: Any, other: Any) -> float:
    return float(_differing(one, other).mean()) if one.shape == other.shape else 1.0


def _nothing(site: Site, iteration: int, size: int, positions: Sequence[int]) -> None:
    return None


class _Seen:
    """This takes note of the sites that a run without faults has."""

    def __init__(self, target: Target) -> None:
        self._stays = target == "weights"
        self.sites: dict[str, _Hittable] = {}

    def note(self, site: Site, iteration: int, size: int, positions: Sequence[int]) -> None:
        seen = self.sites.setdefault(site.key, _Hittable(site.key, positions, []))
        if not (self._stays and seen.sizes):
            seen.sizes.append(size)


@dataclass
class _Hittable:
    """A hittable site has the size of its tensor at each execution."""

    key: str
    positions: Sequence[int]
    sizes: list[int]

    @property
    def elements(self) -> int:
        return sum(self.sizes)

    def plan(self, random: np.random.Generator) -> Callable[..., Hits | None]:
        """Draw one fault, at an element of an execution; return what injects it."""
        element = int(random.integers(self.elements))
        bit = int(random.choice(list(self.positions)))
        execution = 0
        while element >= self.sizes[execution]:
            element -= self.sizes[execution]
            execution += 1
        hits = Hits([element], [bit])

        def choose(site: Site, iteration: int, size: int, positions: Sequence[int]) -> Hits | None:
            return hits if site.key == self.key and iteration == execution else None

        return choose
