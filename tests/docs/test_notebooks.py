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


CAMPAIGN = """
import time
from amanda_tools import campaign

def predicted():
    time.sleep(0.05)  # long enough for a bar to be shown
    return model(torch.ones(1, 3)).argmax(1)

found = campaign(predicted, trials=30)
print(len(found.rows()))
found
"""


def test_progress_is_gone_when_the_work_is_done_and_the_result_is_a_table(tmp_path):
    cells = [nbformat.v4.new_code_cell(source) for source in (SETUP, CAMPAIGN)]
    notebook = make_notebooks.executed(nbformat.v4.new_notebook(cells=cells), str(tmp_path))
    outputs = notebook.cells[1].outputs
    assert output(notebook.cells[1]) == "30\n"
    assert "<table>" in outputs[-1].data["text/html"]
    assert not any("<progress" in str(shown) for shown in outputs)


NAN = """
from amanda_tools import NanWatch
with amanda.apply(watch := NanWatch()):
    torch.zeros(2).log() * 0
print(*(row.source for row in watch.rows()))
"""


def test_a_line_is_told_by_the_number_of_its_cell(tmp_path):
    assert run(tmp_path, SETUP, NAN)[1] == "In[2]:3 In[2]:3\n"
