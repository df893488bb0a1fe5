"""Notebooks run from top to bottom, and tools behave in them as in scripts."""

import make_notebooks
import nbformat
import page_cells
import pytest


def output(cell):
    return "".join(o.text for o in cell.outputs if o.get("name") == "stdout")


def run(folder, *sources):
    """Execute cells in a new kernel, and give what each prints."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = make_notebooks.executed(nbformat.v4.new_notebook(cells=cells), str(folder))
    return [output(cell) for cell in notebook.cells]


@pytest.mark.parametrize("name", page_cells.NOTEBOOKS)
def test_it_prints_what_its_pages_show(name, tmp_path):
    notebook = make_notebooks.executed(make_notebooks.made(name), str(tmp_path))
    for found, cell in zip(notebook.cells, page_cells.cells(name), strict=True):
        if cell.shown is not None:
            assert cell.prints(output(found)), output(found)


SETUP = """
import amanda, torch
from amanda_tools import Flops
model = torch.nn.Linear(3, 2)
"""
IN_A_CELL = """
with amanda.apply(flops := Flops()):
    model(torch.ones(1, 3))
print(amanda.is_enabled(), flops.to_dict()["total"]["forward"])
"""
ACROSS_CELLS = (
    "scope = amanda.apply(flops := Flops()); _ = scope.__enter__()",
    *["model(torch.ones(1, 3));"] * 2,
)
AFTER = "scope.__exit__(None, None, None); model(torch.ones(1, 3)); print(flops.rows()[0].calls)"
FAILS = """
try:
    with amanda.apply(failing := Flops()):
        model(torch.ones(1, 4))
except RuntimeError:
    seen = failing.to_dict()
model(torch.ones(1, 3))
print(failing.to_dict() == seen)
"""


def test_scopes_are_those_of_a_script(tmp_path):
    found = run(tmp_path, SETUP, IN_A_CELL, *ACROSS_CELLS, AFTER, FAILS)
    assert found[1] == "True 12\n"
    assert found[-2] == "2\n"
    assert found[-1] == "True\n"
