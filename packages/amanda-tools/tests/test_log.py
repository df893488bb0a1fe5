"""Log: a file that is complete whenever one looks."""

import json
import multiprocessing

import pytest
from amanda_tools.log import Log


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log"


def test_touches_nothing_before_it_is_opened(path):
    path.write_text("of an earlier run")
    Log(path, str)
    assert path.read_text() == "of an earlier run"


def test_is_complete_before_anything_is_written(path):
    Log(path, str, header="[", footer="]").open()
    assert path.read_text() == "[]"


def test_is_opened_by_the_first_entry(path):
    path.write_text("of an earlier run")
    Log(path, str).write("first")
    assert path.read_text() == "first"


def test_is_complete_after_every_flush(path):
    log = Log(path, str, header="[", separator=",", footer="]")
    for number in range(3):
        log.write(str(number))
        log.flush()
        assert json.loads(path.read_text()) == list(range(number + 1))


def test_writes_by_itself_once_there_is_much(path):
    log = Log(path, str)
    for number in range(100_000):
        log.write(f"{number}\n")
    assert len(path.read_text().splitlines()) > 95_000
    log.flush()
    assert path.read_text() == "".join(f"{number}\n" for number in range(100_000))


def test_stays_where_it_was_when_the_current_folder_changes(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    log = Log("log", str)
    log.write("here")
    monkeypatch.chdir("elsewhere")
    log.flush()
    assert (tmp_path / "log").read_text() == "here"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_is_left_alone_by_a_forked_process(path):
    log = Log(path, str)
    log.open()
    log.write("parent ")

    def work():
        log.write("child ")
        log.flush()

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert path.read_text() == ""
    log.flush()
    assert path.read_text() == "parent "


def test_that_cannot_be_written_says_so_at_once(tmp_path):
    with pytest.raises(OSError, match="missing"):
        Log(tmp_path / "missing" / "log", str)
