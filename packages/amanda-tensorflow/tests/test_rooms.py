"""The driver's modules are in rooms, as its README lists them."""

import ast
import pathlib

import amanda_tensorflow

PACKAGE = pathlib.Path(amanda_tensorflow.__file__).parent
ROOMS = ["notes", "graph", "noting", "routines", "decisions", "rewriting", "unseen", "running"]


def imported(node):
    """List the rooms that a module imports from, but for types of arguments and results."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING":
            continue
        if isinstance(part, ast.ImportFrom) and part.module.startswith("amanda_tensorflow."):
            yield part.module.split(".")[1]
        yield from imported(part)


def test_a_room_uses_those_before_it_alone():
    for number, room in enumerate(ROOMS):
        modules = sorted((PACKAGE / room).glob("*.py"))
        assert modules
        for path in modules:
            later = {*imported(ast.parse(path.read_text("utf-8")))} & {*ROOMS[number + 1 :]}
            assert not later, path


def test_every_room_is_known():
    assert {path.parent.name for path in PACKAGE.glob("*/*.py")} == {*ROOMS}
