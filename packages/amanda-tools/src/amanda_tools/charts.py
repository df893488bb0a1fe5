"""Charts of what tools found are drawn as SVG, which needs no library."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    Numbers = Mapping[Any, Mapping[Any, float]]

# Its width, its height, and what is drawn.
Chart: TypeAlias = tuple[float, float, list[str]]

_CELL, _ROW, _BAR, _TITLE = 34, 14, 220, 26
_LABEL = 6.2  # pixels for a character
_STYLE = (
    "text{font:11px sans-serif}.title{font-size:13px;font-weight:bold}.middle{text-anchor:middle}"
)


def page(*charts: Chart) -> str:
    """Make an SVG picture of charts below one another."""
    width = max((w for w, _, _ in charts), default=0) + 20
    lines, y = [], 10.0
    for _, height, drawn in charts:
        lines += [f'<g transform="translate(10 {y:.0f})">', *drawn, "</g>"]
        y += height + 20
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y:.0f}">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *lines, "</svg>", ""])


def bars(title: str, numbers: Numbers) -> Chart:
    """Draw, for each of several names, a bar for each key, relative to the largest number."""
    names = list(dict.fromkeys(name for row in numbers.values() for name in row))
    values = [value for row in numbers.values() for value in row.values()]
    largest = max(filter(math.isfinite, values), default=0) or 1
    left = max((len(str(name)) for name in names), default=0) * _LABEL + 10
    drawn, y, right = [_text(0, 12, title, "title")], float(_TITLE), 8.0 * len(title)
    for name in names:
        drawn.append(_text(0, y + 10, name))
        for key, row in numbers.items():
            value = row.get(name, 0.0)
            length = _BAR * value / largest if math.isfinite(value) else _BAR
            color = _hue(key)
            drawn.append(_rect(left, y, max(length, 0.5), _ROW - 3, color))
            label = f"{key}: {_number(value)}"
            drawn.append(_text(left + length + 4, y + 9, label))
            right = max(right, left + length + 14 + len(label) * _LABEL)
            y += _ROW
        y += 6
    return right, y, drawn


def heatmap(title: str, numbers: Numbers) -> Chart:
    """Draw a cell for each two keys, from no color for 0 to blue for 1."""
    drawn = [_text(0, 12, title, "title")]
    for column, key in enumerate(numbers):
        drawn.append(_text(40 + (column + 0.5) * _CELL, _TITLE + 8, key, "middle"))
    for line, (key, row) in enumerate(numbers.items()):
        y = _TITLE + 14 + line * _CELL
        drawn.append(_text(0, y + _CELL / 2 + 4, key))
        for column, value in enumerate(row.values()):
            shade = 0.7 * max(0.0, min(1.0, value))  # at most, so that the number can be read
            x = 40 + column * _CELL
            drawn.append(_rect(x, y, _CELL - 1, _CELL - 1, f"rgba(66,120,214,{shade:.2f})"))
            drawn.append(_text(x + _CELL / 2, y + _CELL / 2 + 4, f"{value:.2f}", "middle"))
    size = len(numbers) * _CELL
    return size + 60, size + _TITLE + 20, drawn


def note(text: str) -> Chart:
    """Draw a line of text."""
    return len(text) * _LABEL, _ROW, [_text(0, 10, text)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def _hue(key: object) -> str:
    number = key if isinstance(key, int) else 0
    return f"hsl({(215 + number * 47) % 360},55%,60%)"


def _rect(x: float, y: float, width: float, height: float, fill: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'
    )


def _text(x: float, y: float, text: object, kind: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{kind}>{html.escape(str(text))}</text>'
