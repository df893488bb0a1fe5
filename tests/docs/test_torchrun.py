"""The page on torchrun runs and prints what it shows."""

import pages


def test_the_page_prints_what_it_shows(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    _, printed = pages.execute("docs/how-to/run-under-torchrun.md")
    assert printed
    for block in printed:
        assert block.as_shown(), block.found
