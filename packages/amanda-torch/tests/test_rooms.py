"""The driver's modules are in rooms, as its README lists them."""

import ast
import pathlib

import amanda_torch

PACKAGE = pathlib.Path(amanda_torch.__file__).parent
ROOMS = ["operators", "places", "tensors", "backward", "execution", "interception"]


def imported(path):
    """List the rooms that a module imports from, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("amanda_torch."):
            room = node.module.split(".")[1]
            if room in ROOMS:
                yield room


def test_a_room_uses_those_above_it_alone():
    for number, room in enumerate(ROOMS):
        modules = sorted((PACKAGE / room).glob("*.py"))
        assert modules
        for path in modules:
            assert set(imported(path)) <= set(ROOMS[: number + 1]), path


def test_every_room_is_known():
    assert {path.parent.name for path in PACKAGE.glob("*/*.py")} == set(ROOMS)
