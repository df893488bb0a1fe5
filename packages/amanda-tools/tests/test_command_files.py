"""The files that the command writes, and what becomes of them however the program ends."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

OLD = "of an earlier run"
# An operator of a framework of its own, so that no test has to wait for a large one.
PROGRAM = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import amanda
from toy import Toy
toy = Toy()
amanda.register_driver(toy)
with amanda.apply():  # has the scopes around it know the driver
    pass
def work(times=3):
    for _ in range(times):
        toy.forward("layer/relu", 10)
work()
"""
BOTH = ("--tool", "trace:out=t.jsonl", "--tool", "profile:out=p.json")


def program(ending=""):
    return PROGRAM.format(tests=str(Path(__file__).parent)) + ending


def rows(folder, name="t.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


class TestRefusal:
    """What is not known to be right touches no file."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--tool", "flops:x=1", "good.py"], "flops has no option 'x'"),
            (["--tool", "nosuch", "good.py"], "no tool 'nosuch'"),
            (["--tool", "mine:Failing", "good.py"], "Failing: KeyError: 'no' (mine.py, line 4)"),
            (["missing.py"], "no file 'missing.py'"),
            (["--ops", ",", "good.py"], "--ops names no operator type"),
            (
                ["--tool", "profile:out=./old.json", "good.py"],
                "trace and profile cannot both write",
            ),
            (["--tool", "profile:out=link.json", "good.py"], "trace and profile cannot both write"),
            (["--tool", "profile:out=hard.csv", "good.py"], "trace and profile cannot both write"),
            (["--tool", "profile:out=good.py", "good.py"], "would overwrite a program"),
            (["--tool", "profile:out=script_link", "good.py"], "would overwrite a program"),
            (["--tool", "profile:out=script_hard", "bare"], "would overwrite a program"),
            (["--tool", "profile:out=mine.py", "good.py"], "would overwrite a program"),
            (["--tool", "profile:out=package/__main__.py", "-m", "package"], "overwrite a program"),
            (["--tool", "profile:out=p.png", "good.py"], "has to be .json or .csv"),
            (["--tool", "flops:out=f", "good.py"], "has to be .json or .csv"),
            (["--tool", "profile:out=no/p.json", "good.py"], "No such file or directory"),
            (["--tool", "profile:out=folder.csv", "good.py"], "Is a directory"),
        ],
    )
    def test_leaves_every_file_as_it_was(self, tmp_path, in_process, arguments, message):
        files = {
            "old.json": OLD,
            "good.py": "print('ran')",
            "bare": "print('ran')",
            "mine.py": MINE,
        }
        files |= {"package/__init__.py": "", "package/__main__.py": "print('ran')"}
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text)
        (tmp_path / "link.json").symlink_to("old.json")
        (tmp_path / "hard.csv").hardlink_to(tmp_path / "old.json")
        (tmp_path / "folder.csv").mkdir()
        (tmp_path / "script_link").symlink_to("good.py")
        (tmp_path / "script_hard").hardlink_to(tmp_path / "bare")
        code, out, err = in_process(tmp_path, "run", "--tool", "trace:out=old.json", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("amanda: ")
        assert err.count("\n") == 1
        assert message in err
        assert {name: (tmp_path / name).read_text() for name in files} == files

    def test_of_a_tool_that_cannot_open_its_file_leaves_those_of_all(self, tmp_path, in_process):
        (tmp_path / "old.json").write_text(OLD)
        (tmp_path / "mine.py").write_text(CANNOT_OPEN)
        (tmp_path / "good.py").write_text("print('ran')")
        tools = [
            "trace:out=old.json",
            "profile:out=new.csv",
            "mine:CannotOpen",
            "flops:out=other.json",
        ]
        lines = [part for tool in tools for part in ("--tool", tool)]
        code, out, err = in_process(tmp_path, "run", *lines, "good.py")
        assert (code, out) == (2, "")
        assert err == "amanda: CannotOpen: no room\n"
        assert (tmp_path / "old.json").read_text() == OLD
        left = {path.name for path in tmp_path.iterdir()} - {"__pycache__"}
        assert left == {"old.json", "mine.py", "good.py"}

    def test_of_a_program_that_does_not_compile_too(self, tmp_path, in_process):
        (tmp_path / "wrong.py").write_text("x = = 1")
        (tmp_path / "old.json").write_text(OLD)
        code, _, err = in_process(tmp_path, "run", "--tool", "trace:out=old.json", "wrong.py")
        assert code == 1
        assert "SyntaxError: invalid syntax" in err
        assert (tmp_path / "old.json").read_text() == OLD

    def test_of_where_the_output_of_the_program_goes(self, command):
        command.write("good.py", "print('ran', flush=True)")
        out = "trace:out=shown.json"
        with (command.folder / "shown.json").open("w") as file:
            done = subprocess.run(
                [sys.executable, "-m", "amanda_tools", "run", "--tool", out, "good.py"],
                cwd=command.folder, stdout=file, stderr=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
        assert done.returncode == 2
        assert "it is the program's standard input or output: " in done.stderr


MINE = """
import amanda
class Failing(amanda.Tool):
    def __init__(self): raise KeyError("no")
"""
CANNOT_OPEN = """
import amanda
class CannotOpen(amanda.Tool):
    def open(self): raise OSError("no room")
"""
LEAVES = """
import amanda
class Leaves(amanda.Tool):
    def on_exit(self): print("left")
"""


class TestEnding:
    """The files are whole, and nobody but the process itself reports."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    def test_by_a_signal(self, command, number):
        command.write("long.py", program("print('ready', flush=True)\nwhile True: work()\n"))
        run = command.start("run", *BOTH, "long.py")
        assert run.stdout.readline() == "ready\n"
        run.send_signal(number)
        _, shown = run.communicate()
        assert run.returncode == -number
        assert f"trace: {len(rows(command.folder)):,} executions" in shown
        assert len(rows(command.folder)) >= 3
        assert json.loads((command.folder / "p.json").read_text())

    def test_by_a_signal_that_the_program_caught(self, command):
        ending = "try:\n    os.kill(os.getpid(), signal.SIGTERM)\nexcept SystemExit:\n    work(2)\n"
        command.write("catches.py", program(ending))
        assert command("run", *BOTH, "catches.py").returncode == -signal.SIGTERM
        assert len(rows(command.folder)) == 5

    def test_by_ctrl_c_again_and_again_shows_no_frame_of_ours(self, command):
        command.write("long.py", program("print('ready', flush=True)\nwhile True: work()\n"))
        run = command.start("run", *BOTH, "long.py")
        run.stdout.readline()
        for _ in range(3):
            run.send_signal(signal.SIGINT)
        _, shown = run.communicate()
        assert "amanda_tools/" not in shown
        assert run.returncode == -signal.SIGINT, shown
        assert "amanda/" not in shown
        assert shown.count("Traceback") <= 1
        assert json.loads((command.folder / "p.json").read_text())
        assert rows(command.folder)

    @pytest.mark.parametrize(
        ("child", "code"), [("sys.exit(3)", 3), ("raise ValueError('of the child')", 1), ("0", 0)]
    )
    def test_of_a_forked_process_is_its_own(self, command, child, code):
        command.write("mine.py", LEAVES)
        ending = f"if os.fork() == 0:\n    work()\n    {child}\nelse:\n    print(os.wait()[1] >> 8)"
        command.write("forks.py", program(ending))
        done = command("run", "--tool", "mine:Leaves", *BOTH, "forks.py")
        assert (done.returncode, done.stdout.split()) == (0, [str(code), "left"])
        assert done.stderr.count("trace: 3 executions") == 1
        assert done.stderr.count("trace:") == 1
        assert ("of the child" in done.stderr) == (code == 1)

    def test_without_any_leaves_what_was_written_in_time(self, command):
        command.write("leaves.py", program("work(2000)\nos._exit(4)"))
        assert command("run", *BOTH, "leaves.py").returncode == 4
        assert len(rows(command.folder)) in range(1000, 2004)
        assert json.loads((command.folder / "p.json").read_text())

    def test_of_a_program_that_replaces_itself(self, command):
        command.write("execs.py", program("os.execv('/bin/echo', ['echo', 'other'])"))
        assert command("run", *BOTH, "execs.py").stdout == "other\n"
        rows(command.folder)
        assert json.loads((command.folder / "p.json").read_text()) is not None
