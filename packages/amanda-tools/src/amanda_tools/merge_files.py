"""Files that the processes of one program wrote are merged."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from amanda_tools.document import Document
from amanda_tools.formats import ending_of, read_json, save
from amanda_tools.interrupts import leave_with
from amanda_tools.merging import Merged
from amanda_tools.output import same_file
from amanda_tools.progress import progress
from amanda_tools.trace_file import read_trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def merge_files(paths: Sequence[str], out: str | os.PathLike[str] | None = None) -> Merged | str:
    """Merge what tools wrote, one file for each process.

    Findings in JSON become one as their tool says. Of traces, each row has the rank that it is of;
    Chrome traces become one in which each rank is a process.

    Args:
        paths: the files. The rank is in the name (``flops.rank1.json``), or else is the position.
        out: the file to write; for traces it has to be named.

    Returns:
        what was found, merged, or a sentence that says what was written.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: they cannot be merged, and why.
        KeyboardInterrupt: Ctrl-C while they were read; what was read until then is merged, and says
            that it is partial. The attribute ``found`` of the exception has it.
    """
    if out is not None and any(same_file(out, path) for path in paths):
        raise ValueError(f"{os.fspath(out)!r} is one of the files to merge")
    found: dict[int, Any] = {}
    try:
        with progress("reading", len(paths)) as step:
            for rank, path in _ranked(paths).items():
                found[rank] = _read(path, rank)
                step()
    except KeyboardInterrupt as stop:
        if found:
            said = f"{len(found):,} of {len(paths):,} files"
            leave_with(stop, _merged(found, out, said), said)
        raise
    return _merged(found, out)


def _merged(
    found: Mapping[int, Any], out: str | os.PathLike[str] | None, missing: str | None = None
) -> Merged | str:
    """Merge what was read, and write it to a file; the report tells what is ``missing`` in it."""
    if all(isinstance(each, dict) for each in found.values()):
        merged = Merged(found, missing)
        if out is not None:
            save(merged, out)
        return merged
    if not all(isinstance(each, list) for each in found.values()):
        raise ValueError("some of them are traces and some are not")
    if out is None:
        raise ValueError("of traces one file is made; name it by --out")
    lines = [line for each in found.values() for line in each]
    _write(lines, out)
    partial = "" if missing is None else f" (partial: {missing})"
    return f"{len(lines):,} rows of {len(found)} ranks in {os.fspath(out)}{partial}"


def _ranked(paths: Sequence[str]) -> dict[int, str]:
    ranked: dict[int, str] = {}
    for position, path in enumerate(paths):
        named = re.search(r"\.rank(\d+)\.", os.path.basename(path))
        rank = int(named[1]) if named else position
        if rank in ranked:
            raise ValueError(f"{ranked[rank]} and {path} are both of rank {rank}")
        ranked[rank] = path
    return dict(sorted(ranked.items()))


def _read(path: str, rank: int) -> Any:
    """Read findings as a dict, the rows of a trace as lines of JSON."""
    ending = ending_of(path, (".json", ".jsonl", ".csv"))
    if ending == ".jsonl":
        return _lines(rank, list(read_trace(path)))
    if ending == ".csv":
        raise ValueError(f"{path}: CSV does not say how it merges; have the tool write .json")
    found = read_json(path)
    if isinstance(found, list) and all(isinstance(row, dict) for row in found):
        return _lines(rank, found)
    if isinstance(found, dict) and isinstance(found.get("merge"), dict):
        return found
    raise ValueError(f"{path}: it does not say how it merges; files of Amanda's tools in JSON do")


def _lines(rank: int, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [json.dumps(row) for row in _of_rank(rank, rows)]


def _of_rank(rank: int, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if not any("ph" in row for row in rows):
        return [{"rank": rank, **row} for row in rows]
    name = {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
    return [name, *({**row, "pid": rank} for row in rows if row.get("name") != "process_name")]


def _write(lines: Sequence[str], out: str | os.PathLike[str]) -> None:
    if ending_of(out, (".json", ".jsonl")) == ".json":
        text = "[\n" + ",\n".join(lines) + "\n]\n"
    else:
        text = "".join(f"{line}\n" for line in lines)
    file = Document(out)
    file.open()
    file.write(text)
