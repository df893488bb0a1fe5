"""Document: a file that is whole whenever one looks."""

import json

import pytest
from amanda_tools.document import Document


@pytest.fixture
def document(tmp_path):
    document = Document(tmp_path / "document", "null\n")
    document.open()
    return document


def test_holds_nothing_before_the_first_text(document):
    assert document.path.read_text() == "null\n"


def test_holds_the_last_text_alone(document):
    document.write("[1, 2, 3]")
    document.write("[4]")
    assert document.path.read_text() == "[4]"


def test_touches_nothing_before_it_is_opened(tmp_path):
    (tmp_path / "old").write_text("old")
    unopened = Document(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "old"
    unopened.write("new")
    assert (tmp_path / "old").read_text() == "new"


@pytest.mark.parametrize("size", [5, 6, 50])
def test_without_room_holds_nothing_and_says_so_once(document, limit, capsys, size):
    with limit(size):
        for _ in range(2):
            document.write(json.dumps(list(range(100))))
    assert json.loads(document.path.read_text()) is None
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert f"{document.path}: File too large; it is not complete" in shown
    assert document.state == f"{document.path} (incomplete: File too large)"


def test_that_is_gone_is_not_made_again(document, capsys):
    document.path.unlink()
    document.write("text")
    assert not document.path.exists()
    assert "it was removed" in capsys.readouterr().err
