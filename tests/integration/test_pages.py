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


@pytest.mark.parametrize(
    ("shown", "alike"),
    [
        ("total 1.25 ms\n conv 3 k\ndone", True),
        ("total 9 µs\n conv 1\ndone", True),  # other numbers
        ("done\ntotal 1.25 ms\n conv 3 k", True),  # another order
        ("total 1.25 ms\n...", True),
        ("total 1.25 ms\n conv 3 k", False),  # a line is not shown
        ("total 1.25 ms\n conv 3 k\nended\n...", False),  # one that is not there
        ("total 1.25 ms\n conv\ndone", False),  # a number is not there
    ],
)
def test_what_is_of_a_day_is_told_from_what_is_not(shown, alike):
    assert pages.resembles("total 2.5 ms\n conv 4 k\ndone\n", shown) == alike
