"""Executions are read from files: traces, and Chrome traces of profiles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from amanda_tools.execution import Execution, Kind, Tensors
from amanda_tools.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from amanda_tools.execution import Direction

_NO_TENSORS = Tensors([], [])


class Recorded(NamedTuple):
    """This is an execution of a file, with the row, thread or process that it is of."""

    execution: Execution
    track: str | None
    lane: object


def of_trace(rows: Iterable[Mapping[str, Any]]) -> list[Recorded]:
    """Return the executions of a trace, in the order in which they ended."""
    found = [
        _recorded(row, row["type"], row["direction"], (row["start"], row["duration"]), rank)
        for row in rows
        for rank in [row.get("rank")]
    ]
    return _with_own_times(found)


def of_chrome_trace(events: Sequence[Mapping[str, Any]]) -> list[Recorded]:
    """Return the executions of a profile's Chrome trace, in the order in which they ended.

    Raises:
        KeyError, TypeError, ValueError: it is of something else.
    """
    threads = {
        (event.get("pid"), event.get("tid")): str(event["args"]["name"])
        for event in events
        if event.get("name") == "thread_name"
    }
    processes = list(dict.fromkeys(pid for pid, _ in threads))
    found = []
    for event in events:
        if event.get("ph") != "X" or event.get("cat") != "operator":
            continue
        lane = event["pid"], event["tid"]
        times = round(event["ts"] * 1000), round(event["dur"] * 1000)
        direction = threads[lane].partition(",")[0]
        rank = processes.index(lane[0]) if len(processes) > 1 else None
        found.append(_recorded(event["args"], event["name"], direction, times, rank, lane))
    return _with_own_times(sorted(found, key=_end))


def _end(recorded: Recorded) -> int:
    return recorded.execution.start + recorded.execution.duration


def _recorded(
    row: Mapping[str, Any],
    type: str,
    direction: str,
    times: tuple[int, int],
    rank: int | None,
    lane: object = None,
) -> Recorded:
    if direction not in ("forward", "backward"):
        raise ValueError(f"{direction!r} is no direction")
    known: Direction = "forward" if direction == "forward" else "backward"
    place = Place(str(row["id"]), str(type), str(row["scope"]), str(row.get("purpose", "model")))
    operator = str(row.get("operator", place.id))
    forward = place if known == "forward" else place._replace(id=operator)
    start, duration = times
    kind = Kind(place, forward, known, row.get("source"), _NO_TENSORS, _NO_TENSORS)
    execution = Execution(kind, int(row["iteration"]), start, duration, duration, 0, None, None)
    track = None if rank is None else f"rank {rank}"
    return Recorded(execution, track, (known, rank) if lane is None else lane)


def _with_own_times(found: Sequence[Recorded]) -> list[Recorded]:
    """Leave out of executions what ran inside of them; take forward operators from their own rows.

    Files do not tell threads apart in all cases: one ran inside of another if it lies within it, in
    the same lane and module; a forward execution also if it lies within a backward one, which runs
    it again.
    """
    types = {r.execution.place.id: r.execution.place for r in found}
    own = [r.execution.duration for r in found]
    depths = [0] * len(found)
    around: list[int] = []
    order = sorted((r.execution.start, -_end(r), index) for index, r in enumerate(found))
    for _, _, index in order:
        while around and _end(found[around[-1]]) <= found[index].execution.start:
            around.pop()
        outer = next((o for o in reversed(around) if _is_inside(found[index], found[o])), None)
        if outer is not None:
            own[outer] -= found[index].execution.duration
            same = found[outer].execution.direction == found[index].execution.direction
            depths[index] = depths[outer] + 1 if same else depths[outer]
        around.append(index)
    return [
        r._replace(
            execution=r.execution._replace(
                kind=_belonging(r.execution.kind, types),
                self_time=max(own[index], 0),
                depth=depths[index],
            )
        )
        for index, r in enumerate(found)
    ]


def _belonging(kind: Kind, places: Mapping[str, Place]) -> Kind:
    """Return the kind with the forward operator that it belongs to as that one's own row has it."""
    forward = places.get(kind.forward.id)
    return kind if forward in (None, kind.forward) else replace(kind, forward=forward)


def _is_inside(inner: Recorded, outer: Recorded) -> bool:
    if _end(inner) > _end(outer):
        return False
    if inner.lane == outer.lane:
        return inner.execution.place.scope == outer.execution.place.scope
    directions = (inner.execution.direction, outer.execution.direction)
    return inner.track == outer.track and directions == ("forward", "backward")
