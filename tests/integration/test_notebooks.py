"""The notebooks are the pages that they are made of, with outputs that are as the pages show."""

import json

import page_cells
import pages
import pytest


def stored(name):
    text = pages.text(f"{page_cells.FOLDER}/{name}.ipynb")
    return json.loads(text)["cells"]


def printed(cell):
    return "".join("".join(output.get("text", ())) for output in cell["outputs"])


def test_each_notebook_has_pages():
    files = (pages.ROOT / page_cells.FOLDER).glob("*.ipynb")
    assert {file.stem for file in files} == set(page_cells.NOTEBOOKS)


@pytest.mark.parametrize("name", page_cells.NOTEBOOKS)
def test_its_cells_are_those_of_its_pages(name):
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in stored(name)]
    expected = [(cell.kind, cell.source) for cell in page_cells.cells(name)]
    assert found == expected, "python -m nox -s docs -- notebooks"


@pytest.mark.parametrize("name", page_cells.NOTEBOOKS)
def test_its_outputs_are_what_the_pages_show(name):
    pairs = list(zip(stored(name), page_cells.cells(name), strict=True))
    assert any(cell.shown for _, cell in pairs)
    for found, cell in pairs:
        if cell.shown is not None:
            assert cell.prints(printed(found)), printed(found)


@pytest.mark.parametrize("name", ["ten-minutes", "prune-and-quantize"])
def test_a_result_at_the_end_of_a_cell_is_a_table(name):
    outputs = [output for cell in stored(name) for output in cell.get("outputs", ())]
    results = [output["data"] for output in outputs if output["output_type"] == "execute_result"]
    assert results
    assert all("<table>" in "".join(data["text/html"]) for data in results)


def test_links_in_a_notebook_lead_from_where_it_is():
    sources = [cell.source for name in page_cells.NOTEBOOKS for cell in page_cells.cells(name)]
    links = {link[1] for source in sources for link in page_cells.RELATIVE.finditer(source)}
    folder = pages.ROOT / page_cells.FOLDER
    assert "../semantics.md" in links
    assert [link for link in links if not (folder / link).exists()] == []
