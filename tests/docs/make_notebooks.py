"""The notebooks of the documentation, made of its pages; run as a program, this writes them."""

from __future__ import annotations

import os
import re
import sys
import tempfile

import nbformat
import page_cells
import pages
from nbclient import NotebookClient

COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # which Jupyter asks of the programs that cells start


def made(name: str) -> nbformat.NotebookNode:
    """A notebook as its pages have it, without outputs."""
    cells = []
    for number, cell in enumerate(page_cells.cells(name)):
        new = nbformat.v4.new_code_cell if cell.kind == "code" else nbformat.v4.new_markdown_cell
        cells.append(new(cell.source, id=f"cell-{number}"))  # the same each time it is made
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def executed(notebook: nbformat.NotebookNode, folder: str) -> nbformat.NotebookNode:
    """Run a notebook in a folder, from top to bottom in a new kernel."""
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        coalesce_streams=True,
        resources={"metadata": {"path": folder}},
    )
    client.execute(env=os.environ | {"COLUMNS": "160"})
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it was run
        outputs = [o for o in cell.get("outputs", ()) if o.get("name") != "stderr"]
        if cell.cell_type == "code":
            cell.outputs = outputs  # without bars of progress, which are of one run
        for output in outputs:
            if output.output_type == "stream":
                output.text = COLOUR.sub("", output.text).replace(f"{folder}/", "")
    return notebook


def main() -> None:
    for name in sys.argv[1:] or page_cells.NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            text = nbformat.writes(executed(made(name), folder))
        (pages.ROOT / page_cells.FOLDER / f"{name}.ipynb").write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    main()
