"""Log: a file that is complete whenever one looks."""

import json
import multiprocessing
import os
import subprocess
import sys
import threading

import pytest
from amanda_tools.log import Log

TWO_WORKERS = {
    "cluster": {"worker": ["one:1", "two:1"]},
    "task": {"type": "worker", "index": 1},
}


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


def test_has_all_that_threads_write_at_the_same_time(path):
    log = Log(path, str)

    def work(thread):
        for number in range(5_000):
            log.write(f"{thread} {number}\n")

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.flush()
    expected = {f"{thread} {number}" for thread in range(4) for number in range(5_000)}
    assert sorted(path.read_text().splitlines()) == sorted(expected)


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


class TestTrouble:
    """What keeps a file from being written ends the recording, and nothing else."""

    @pytest.mark.parametrize("room", range(0, 40, 3))
    def test_a_full_disk_leaves_whole_entries(self, path, limit, room):
        log = Log(path, str, header="[", separator=",\n", footer="]")
        log.write("1")
        with limit(path.stat().st_size + room):
            for number in range(2, 12):
                log.write(str(number))
            log.flush()
        # 3 bytes for each of 2 to 9, 4 for each of 10 and 11
        whole = min(room // 3, 8) + max(0, min((room - 24) // 4, 2))
        assert json.loads(path.read_text()) == list(range(1, 2 + whole))
        assert log.written == 1 + whole
        assert (log.trouble is None) == (whole == 10)

    def test_is_said_once(self, path, limit, capsys):
        log = Log(path, str)
        log.open()
        with limit(3):
            for _ in range(2):
                log.write("four")
                log.flush()
        shown = capsys.readouterr().err
        assert shown == f"amanda: {path}: File too large; recording stopped, the program goes on\n"
        assert log.state == f"{path} (incomplete: File too large)"

    @pytest.mark.parametrize("happen", ["removed", "replaced", "changed"])
    def test_a_file_that_is_gone_or_another_s_is_left_alone(self, path, capsys, happen):
        log = Log(path, str)
        log.write("first")
        if happen != "changed":
            path.unlink()
        if happen != "removed":
            path.write_text("of somebody else")
        log.write("second")
        log.flush()
        assert log.written == 1
        assert "recording stopped" in capsys.readouterr().err
        assert not path.exists() if happen == "removed" else path.read_text() == "of somebody else"

    def test_another_process_that_writes_it_is_a_refusal(self, path):
        log = Log(path, str)
        log.open()
        log.write("first")
        code = "import sys; from amanda_tools.log import Log; Log(sys.argv[1], str).open()"
        other = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
        )
        assert "another process is writing it" in other.stderr
        log.flush()
        assert path.read_text() == "first"

    def test_a_newer_tool_of_the_process_takes_the_file_over(self, path, capsys):
        older = Log(path, str)
        older.write("older")
        newer = Log(path, str)
        newer.write("newer")
        older.write("older")
        older.flush()
        assert path.read_text() == "newer"
        assert "another tool writes it by now" in capsys.readouterr().err


class TestPath:
    @pytest.mark.parametrize(
        ("environment", "name"),
        [
            ({}, "log.json"),
            ({"RANK": "1", "WORLD_SIZE": "2"}, "log.rank1.json"),
            ({"RANK": "0", "WORLD_SIZE": "2"}, "log.rank0.json"),
            ({"RANK": "0", "WORLD_SIZE": "1"}, "log.json"),
            ({"RANK": "3"}, "log.rank3.json"),
            ({"RANK": "../x"}, "log.json"),
            ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, "log.rank1.json"),
            ({"SLURM_PROCID": "7", "SLURM_NTASKS": "8"}, "log.rank7.json"),
            ({"TF_CONFIG": json.dumps(TWO_WORKERS)}, "log.worker1.json"),
            ({"TF_CONFIG": "{"}, "log.json"),
            ({"TF_CONFIG": "[]"}, "log.json"),
        ],
    )
    def test_tells_apart_the_processes_that_a_launcher_started(
        self, tmp_path, monkeypatch, environment, name
    ):
        for variable in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "TF_CONFIG"):
            monkeypatch.delenv(variable, raising=False)
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)
        assert Log(tmp_path / "log.json", str).path == tmp_path / name

    @pytest.mark.parametrize(
        ("name", "error"),
        [
            ("", IsADirectoryError),
            ("folder", IsADirectoryError),
            ("missing/log", FileNotFoundError),
            ("loop", OSError),
            ("x" * 300, OSError),
            ("pipe", OSError),
        ],
    )
    def test_that_cannot_be_a_file_is_refused_at_once(self, tmp_path, name, error):
        (tmp_path / "folder").mkdir()
        (tmp_path / "loop").symlink_to("loop")
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(error):
            Log(tmp_path / name, str)

    def test_of_no_user_is_a_name_like_any_other(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(FileNotFoundError, match="~nobody_of_that_name"):
            Log("~nobody_of_that_name/log", str)
