"""Core's modules are in rooms, as its README lists them: each uses those above it alone."""

import ast
import pathlib

import amanda

PACKAGE = pathlib.Path(amanda.__file__).parent
ROOMS = ["_operators", "_drivers", "_threads", "_tools", "_contexts", "_plans", "_execution"]
ROOMS += ["_scopes"]
# Drivers and tools are handed what the rooms below make; they name it for type checkers alone.
HANDED = {
    "_drivers": {"Action", "ActiveEngine", "ContextMap", "Engine", "OpContext", "Tool"},
    "_threads": {"Engine", "OpContext", "Tool"},
    "_tools": {"Engine", "OpContext", "Use"},
}


def imports(node, for_types=False):
    """List what a module imports wherever in it, and whether type checkers alone read that."""
    for part in ast.iter_child_nodes(node):
        only = isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING"
        if isinstance(part, ast.ImportFrom):
            yield part, for_types
        yield from imports(part, for_types or only)


def from_below(room, for_types):
    """Find what a room imports of those below it."""
    lower = tuple(f"amanda.{other}." for other in ROOMS[ROOMS.index(room) + 1 :])
    found = set()
    for path in sorted((PACKAGE / room).glob("*.py")):
        for imported, types in imports(ast.parse(path.read_text("utf-8"))):
            if types is for_types and imported.module.startswith(lower):
                found |= {name.name for name in imported.names}
    return found


def below(for_types):
    """List, by room, what it imports of those below it."""
    return {room: found for room in ROOMS if (found := from_below(room, for_types))}


def test_a_room_uses_those_above_it_alone_at_run_time():
    assert below(for_types=False) == {}


def test_for_types_a_room_names_what_it_is_handed_too():
    assert below(for_types=True) == HANDED


def test_every_room_is_known():
    folders = {path.parent.name for path in PACKAGE.glob("*/*.py")}
    assert folders == {*ROOMS, "testing"}
    assert {path.name for path in PACKAGE.glob("_[a-z]*.py")} == {"_errors.py"}
