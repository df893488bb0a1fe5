"""How overhead grows with the number of operators, of modules and of tools, on PyTorch."""

from __future__ import annotations

import gc
import math
import time
from typing import TYPE_CHECKING, Any

import amanda
import torch
from torch import Tensor, nn

from benchmarks.empty import Empty
from benchmarks.measuring import PLAIN, Spread, around, interleaved, plainly
from benchmarks.results import Curve, Plot
from benchmarks.tool_ways import under

if TYPE_CHECKING:
    from benchmarks.measuring import Way
    from benchmarks.results import Part

OPERATORS = (10, 30, 100, 300, 1000, 3000, 10_000)
MODULES = (10, 30, 100, 300, 1000, 3000)
TOOLS = (1, 2, 4, 8, 16, 32)
UNDER = "under a tool"
LINEAR = 1.1  # an exponent up to this one passes for linear


class Lines(nn.Module):
    """So many operators, each in a line of its own of one function."""

    def __init__(self, count: int) -> None:
        super().__init__()
        names: dict[str, object] = {"relu": torch.relu}
        body = "".join("    x = relu(x)\n" for _ in range(count))
        exec(compile(f"def run(x):\n{body}    return x\n", f"<{count} lines>", "exec"), names)
        self.run: Any = names["run"]

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)  # type: ignore[no-any-return]


def modules(count: int) -> nn.Module:
    """So many modules of one operator each."""
    return nn.Sequential(*(nn.ReLU() for _ in range(count)))


def run(part: Part) -> None:
    """Measure all three, and fit exponents."""
    torch.set_num_threads(1)
    share = part.seconds(60) / 3
    operators = (10, 100, 1000) if part.is_quick else OPERATORS
    grown(part, "operators", {n: Lines(n) for n in operators}, share)
    counts = (10, 100) if part.is_quick else MODULES
    grown(part, "modules", {n: modules(n) for n in counts}, share)
    tools(part, share)


def grown(part: Part, what: str, models: dict[int, nn.Module], seconds: float) -> None:
    """Measure models of several sizes under an empty routine at every operator."""
    x = torch.randn(4)
    added: dict[int, Spread] = {}
    analyzed: dict[int, Spread] = {}
    rows = []
    for count, model in models.items():
        gc.unfreeze()
        with torch.no_grad():
            ways = {PLAIN: plainly(), UNDER: under(Empty)}
            found = interleaved(
                lambda model=model: model(x),  # type: ignore[misc]
                ways,
                seconds / len(models),
                least=part.rounds(3),
                clock=time.process_time,
            )
            analyzed[count] = first(model, x, 1 if count >= 3000 else part.rounds(5))
        added[count] = found[UNDER].added(found[PLAIN])
        per_one = added[count].text("{:.2f}", 1e6 / count)
        once = analyzed[count].text("{:.1f}", 1e6 / count)
        rows.append([f"{count:,}", added[count].text("{:.3f}", 1e3), per_one, once])
        part.table(
            f"Number of {what}",
            [what, "added to a call, ms", "of each, us", "first call, of each, us"],
            rows,
            "An empty routine before every operator (`relu` of four numbers). The first call, in "
            "which each is analyzed, is the whole of it.",
        )
    exponent(part, what, added, "added to a call")
    exponent(part, what, analyzed, "first call, in which all are analyzed")
    part.plot(
        Plot(
            f"growth_{what}",
            f"Growth with the number of {what}",
            what,
            "seconds",
            [curve("added to a call", added), curve("first call", analyzed)],
        )
    )


def first(model: nn.Module, x: Tensor, rounds: int) -> Spread:
    """Seconds of the first call in a scope."""
    times = []
    for _ in range(rounds):
        with amanda.apply(Empty()):
            start = time.process_time()
            model(x)
            times.append(time.process_time() - start)
    return Spread.of(times)


def tools(part: Part, seconds: float) -> None:
    """Measure how overhead grows with the number of tools."""
    model, x = Lines(100), torch.randn(4)
    ways: dict[str, Way] = {PLAIN: plainly()}
    ways |= {str(count): with_tools(count) for count in TOOLS}
    gc.unfreeze()
    with torch.no_grad():
        least = part.rounds(3)
        found = interleaved(lambda: model(x), ways, seconds, least=least, clock=time.process_time)
    added = {count: found[str(count)].added(found[PLAIN]) for count in TOOLS}
    rows = [
        [str(count), one.text("{:.2f}", 1e4), one.text("{:.2f}", 1e4 / count)]
        for count, one in added.items()
    ]
    part.table(
        "Number of tools",
        ["tools", "added to an operator, us", "of each tool, us"],
        rows,
        "Each has an empty routine before every one of a hundred operators.",
    )
    exponent(part, "tools", added, "added to a call")
    part.plot(
        Plot(
            "growth_tools",
            "Growth with the number of tools",
            "tools",
            "seconds added to a call of 100 operators",
            [curve("added to a call", added)],
        )
    )


def with_tools(count: int) -> Way:
    """The way under so many tools."""
    return around(lambda: amanda.apply(*(Empty() for _ in range(count))))


def curve(label: str, found: dict[int, Spread]) -> Curve:
    """What was measured as points of a plot; a logarithm shows what is above nothing."""
    shown = {count: one for count, one in found.items() if one.low > 0}
    return Curve(
        label,
        [float(count) for count in shown],
        [one.median for one in shown.values()],
        [one.low for one in shown.values()],
        [one.high for one in shown.values()],
    )


def exponent(part: Part, what: str, found: dict[int, Spread], label: str) -> None:
    """Fit a power of the number to the medians, by least squares of the logarithms."""
    points = [(math.log(n), math.log(one.median)) for n, one in found.items() if one.median > 0]
    x_mean = sum(x for x, _ in points) / len(points)
    y_mean = sum(y for _, y in points) / len(points)
    above = sum((x - x_mean) * (y - y_mean) for x, y in points)
    slope = above / sum((x - x_mean) ** 2 for x, _ in points)
    low, high = min(found), max(found)
    part.goal(
        f"growth with the number of {what}, {low:,} to {high:,}: {label}",
        f"linear (exponent up to {LINEAR})",
        f"exponent {slope:.2f}",
        round(slope, 2) <= LINEAR,
    )
