"""A graph's picture is SVG, laid out in layers, from the inputs down.

An operator lies below all that it takes something from, except where that closes a loop. In a
layer, operators are ordered by where their neighbours in the layers above and below lie.
"""

from __future__ import annotations

import html
import itertools
from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from amanda_tools.graph.dot import label_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from amanda_tools.graph.network import Network, Node

    Link = tuple[str, str]
    Point = tuple[float, float]

# A node, or the layer at which a link passes by.
Item: TypeAlias = "str | tuple[str, str, int]"

_CHARACTER = 6.5  # pixels of the font
_HEIGHT, _ACROSS, _DOWN = 36, 24, 48
_SWEEPS = 6
_STYLE = (
    "text{font:11px sans-serif;text-anchor:middle}"
    ".type{font-weight:bold}.scope,.shape{fill-opacity:.7}.shape{font-size:9px}"
    "rect{fill:#eef4fb;fill:var(--box,#eef4fb);stroke:#5b83b0}"  # a page may be dark
    "path{fill:none;stroke:#777}.back{stroke-dasharray:4 3}"
)


def svg(network: Network) -> str:
    """Draw a network as SVG. What closes a loop is dashed, and an operator that feeds itself."""
    shapes: dict[Link, str] = {}
    for edge in network.edges:
        shapes.setdefault((edge.producer, edge.consumer), label_of(edge))
    back = _closing_loops(network.nodes, shapes)
    layers = _layers(network.nodes, [link for link in shapes if link not in back])
    ways = {link: _way(link, layers) for link in shapes if link[0] != link[1]}
    rows = _rows(layers, ways.values())
    places = _places(rows, network.nodes)
    width = max((x for x, _ in places.values()), default=0) + 200
    height = len(rows) * (_HEIGHT + _DOWN) + _ACROSS
    said = "" if network.partial is None else f"partial: {network.partial}"
    width = max(width, len(said) * _CHARACTER)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">',
        f"<style>{_STYLE}</style>",
        *([f'<text x="{width / 2:.0f}" y="12">{html.escape(said)}</text>'] if said else []),
    ]
    for link, way in ways.items():
        lines += _line([places[item] for item in way], shapes[link], link in back)
    for id, node in network.nodes.items():
        lines += _box(places[id], node, (id, id) in shapes)
    return "\n".join([*lines, "</svg>", ""])


def _closing_loops(nodes: Iterable[str], links: Iterable[Link]) -> set[Link]:
    """List the links that lead back to a node from which other links lead to them."""
    outgoing = defaultdict(list)
    for link in links:
        outgoing[link[0]].append(link)
    back: set[Link] = set()
    done: set[str] = set()
    for root in nodes:
        on_way = {root: iter(outgoing[root])} if root not in done else {}
        while on_way:
            node, rest = next(reversed(on_way.items()))
            found = next(rest, None)
            if found is None:
                on_way.popitem()
                done.add(node)
            elif found[1] in on_way:
                back.add(found)
            elif found[1] not in done:
                on_way[found[1]] = iter(outgoing[found[1]])
    return back


def _layers(nodes: Iterable[str], links: Sequence[Link]) -> dict[str, int]:
    """Return the layer of each node: as far down as the longest way to it."""
    above: dict[str, list[str]] = {node: [] for node in nodes}
    outgoing = defaultdict(list)
    for producer, consumer in links:
        above[consumer].append(producer)
        outgoing[producer].append(consumer)
    waiting = {node: len(producers) for node, producers in above.items()}
    ready = [node for node, count in waiting.items() if not count]
    layers: dict[str, int] = {}
    for node in ready:  # appended to below
        layers[node] = max((layers[producer] + 1 for producer in above[node]), default=0)
        for consumer in outgoing[node]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                ready.append(consumer)
    return layers


def _way(link: Link, layers: Mapping[str, int]) -> list[Item]:
    """List the items that a link passes, one in each layer."""
    first, last = layers[link[0]], layers[link[1]]
    step = 1 if first < last else -1
    return [link[0], *((*link, layer) for layer in range(first + step, last, step)), link[1]]


def _rows(layers: Mapping[str, int], ways: Iterable[Sequence[Item]]) -> list[list[Item]]:
    """Order the items of each layer from left to right."""
    rows: list[list[Item]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for node, layer in layers.items():
        rows[layer].append(node)
    near: dict[Item, list[Item]] = defaultdict(list)
    for way in ways:
        for item in way:
            if not isinstance(item, str):
                rows[item[2]].append(item)
        for one, other in itertools.pairwise(way):
            near[one].append(other)
            near[other].append(one)
    for sweep in range(_SWEEPS):
        order = rows if sweep % 2 == 0 else rows[::-1]
        known: dict[Item, float] = {item: i for i, item in enumerate(order[0])} if order else {}
        for row in order[1:]:
            middle = {item: _middle(item, near, known, i) for i, item in enumerate(row)}
            row.sort(key=middle.__getitem__)
            known = {item: i for i, item in enumerate(row)}
    return rows


def _middle(
    item: Item, near: Mapping[Item, Sequence[Item]], known: Mapping[Item, float], otherwise: float
) -> float:
    positions = [known[other] for other in near[item] if other in known]
    return sum(positions) / len(positions) if positions else otherwise


def _places(rows: Sequence[Sequence[Item]], nodes: Mapping[str, Node]) -> dict[Item, Point]:
    """Return the middle of each item; rows are centred."""
    widths = [[_width(nodes[i]) if isinstance(i, str) else 2 for i in row] for row in rows]
    totals = [sum(row) + _ACROSS * len(row) for row in widths]
    places: dict[Item, Point] = {}
    for number, (row, total) in enumerate(zip(rows, totals, strict=True)):
        x = (max(totals) - total) / 2 + _ACROSS
        for item, width in zip(row, widths[number], strict=True):
            places[item] = x + width / 2, number * (_HEIGHT + _DOWN) + _HEIGHT / 2 + _ACROSS / 2
            x += width + _ACROSS
    return places


def _width(node: Node) -> float:
    return max(len(node.type), len(node.scope), 6) * _CHARACTER + 12


def _line(points: Sequence[Point], shape: str, back: bool) -> Iterator[str]:
    (x, y), *rest = points
    path = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in rest:
        half = (y + to_y) / 2
        path.append(f"C{x:.1f} {half:.1f} {to_x:.1f} {half:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    dashed = ' class="back"' if back else ""
    yield f'<path d="{" ".join(path)}"{dashed}/>'
    (x, y), (to_x, to_y) = points[-2:]
    if shape:
        yield _text((x + to_x) / 2, (y + to_y) / 2, "shape", shape)


def _box(place: Point, node: Node, feeds_itself: bool) -> Iterator[str]:
    x, y = place
    width = _width(node)
    dashed = ' style="stroke-dasharray:4 3"' if feeds_itself else ""
    yield (
        f'<g><title>{html.escape(node.id)}</title><rect x="{x - width / 2:.1f}" '
        f'y="{y - _HEIGHT / 2:.1f}" width="{width:.1f}" height="{_HEIGHT}" rx="5"{dashed}/>'
    )
    yield _text(x, y - 3, "type", node.type)
    yield _text(x, y + 11, "scope", node.scope) + "</g>"


def _text(x: float, y: float, kind: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{html.escape(text)}</text>'
