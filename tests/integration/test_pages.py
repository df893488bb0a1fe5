"""Every snippet of the tutorial, the how-tos and the comparison runs and prints what is shown."""

import sys

import pages
import pytest

HERE = [
    "docs/index.md",
    "docs/tutorial.md",
    "docs/comparison.md",
    *(p.relative_to(pages.ROOT).as_posix() for p in sorted(pages.ROOT.glob("docs/how-to/*.md"))),
]
HERE.remove("docs/how-to/run-under-torchrun.md")  # tests/docs, since it starts processes


@pytest.mark.parametrize("page", HERE)
def test_a_page_prints_what_it_shows(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    _, printed = pages.execute(page)
    assert printed
    for block in printed:
        assert block.as_shown(), block.found
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)
