"""Pictures of what grows, or is compared; without matplotlib there are none."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.measuring import reason

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.results import Plot


@dataclass
class Drawn:
    """A picture's path as the report says it, or why there is none."""

    path: str = ""
    failure: str | None = None


def draw(plots: list[Plot], folder: Path) -> dict[str, Drawn]:
    """Draw all plots into a folder beside the report."""
    drawn: dict[str, Drawn] = {}
    for plot in plots:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _draw(plot, folder / f"{plot.name}.svg")
            drawn[plot.name] = Drawn(f"{folder.name}/{plot.name}.svg")
        except Exception as error:  # the tables are the report; a picture may be missing
            traceback.print_exc()
            drawn[plot.name] = Drawn(failure=f"No picture: {reason(error)}.")
    return drawn


def _draw(plot: Plot, file: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = plot.name  # the same picture is the same file
    from matplotlib import pyplot

    height = max(4.5, 0.2 * len(plot.names) * len(plot.curves))
    figure, axes = pyplot.subplots(figsize=(8, height), layout="constrained")
    if plot.names:
        _bars(axes, plot)
    else:
        _lines(axes, plot)
    axes.set_title(plot.title)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.grid(alpha=0.3)
    if len(plot.curves) > 1:
        axes.legend(fontsize="small")
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def _lines(axes: Any, plot: Plot) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for curve in plot.curves:
        (line,) = axes.plot(curve.x, curve.y, marker="o", markersize=3, label=curve.label)
        axes.fill_between(curve.x, curve.low, curve.high, color=line.get_color(), alpha=0.2)


def _bars(axes: Any, plot: Plot) -> None:
    height = 0.8 / len(plot.curves)
    for index, curve in enumerate(plot.curves):
        places = [row + index * height for row in range(len(plot.names))]
        below = [max(0.0, y - low) for y, low in zip(curve.y, curve.low, strict=True)]
        above = [max(0.0, high - y) for y, high in zip(curve.y, curve.high, strict=True)]
        axes.barh(places, curve.y, height, xerr=[below, above], label=curve.label)
    middle = 0.4 - height / 2
    names = [name.replace("`", "") for name in plot.names]
    axes.set_yticks([row + middle for row in range(len(names))], names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(left=0.9)
    axes.set_xticks(ticks := [1, 1.5, 2, 3, 5, 10, 20], [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.axvline(1, color="black", linewidth=0.8)
