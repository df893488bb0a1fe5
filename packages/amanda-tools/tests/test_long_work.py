"""Work that takes long: how far it is, and what Ctrl-C leaves of it."""

import builtins
import contextlib
import functools
import json
import os
import pty
import signal
import subprocess
import sys
import types

import amanda
import pytest
import torch
from amanda_tools import Record, campaign, compare_records
from amanda_tools.activations import Activations
from amanda_tools.effective_path import EffectivePath
from amanda_tools.progress import progress
from amanda_tools.quantization import Quantize

# Takes a second, in twenty steps.
SLOW = """
import time
from amanda_tools.effective_path import EffectivePath
from amanda_tools.progress import progress
with progress("counting", 20) as step:
    for _ in range(20):
        time.sleep(0.05)
        step()
print("done")
"""


def interrupt():
    signal.raise_signal(signal.SIGINT)


def interrupted(tool, *steps):
    """Take steps under a tool, the last of which Ctrl-C ends."""
    with contextlib.suppress(KeyboardInterrupt), amanda.apply(tool):
        for step in steps:
            step()


def digits():
    """A model of two classes that is a chain of layers."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))


class TestProgress:
    def test_is_seen_on_a_terminal_and_gone_afterwards(self):
        ours, theirs = pty.openpty()
        with subprocess.Popen([sys.executable, "-c", SLOW], stderr=theirs, stdout=theirs) as run:
            os.close(theirs)
            shown = b""
            try:
                while part := os.read(ours, 4096):
                    shown += part
            except OSError:  # the other end is closed
                os.close(ours)
        assert run.returncode == 0
        assert b"counting" in shown
        last = shown.decode().rpartition("counting")[2]
        assert last.partition("\x1b[2K")[2].replace("\x1b[?25h", "") == "done\r\n"

    @pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}])
    def test_is_not_seen_in_a_pipe(self, environment):
        run = subprocess.run(
            [sys.executable, "-c", SLOW],
            env=os.environ | environment,
            capture_output=True,
            check=True,
        )
        assert (run.stdout, run.stderr) == (b"done\n", b"")

    def test_is_seen_in_a_notebook_without_ipywidgets(self, monkeypatch):
        class ZMQInteractiveShell:
            """What a notebook's cells run in."""

        shown = []
        handle = types.SimpleNamespace(update=shown.append)
        display = types.SimpleNamespace(HTML=str, display=lambda first, display_id: handle)
        monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
        monkeypatch.setitem(sys.modules, "IPython.display", display)
        monkeypatch.setattr("amanda_tools.progress._QUICK", 0)
        monkeypatch.setattr("amanda_tools.progress._REDRAWN", 0)
        with progress("a < b", 2) as step:
            step()
            step()
        assert [text.partition("</progress> ")[2] for text in shown] == [
            "a &lt; b 1 of 2",
            "a &lt; b 2 of 2",
            "",
        ]

    def test_what_is_quick_shows_nothing(self, capsys, monkeypatch):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        clock = types.SimpleNamespace(monotonic=lambda: 0.0)
        monkeypatch.setattr("amanda_tools.progress.time", clock)
        with progress("counting", 2) as step:
            step()
            step()
        assert capsys.readouterr() == ("", "")


class TestCampaign:
    def test_keeps_its_trials_in_the_exception_which_says_so(self, tmp_path):
        model, runs = digits(), iter(range(100))

        def run():
            if next(runs) == 2 + 3:  # behind two without faults
                interrupt()
            return model(torch.ones(4, 6)).argmax(1)

        with pytest.raises(KeyboardInterrupt, match=r"3 of 10 trials.* `found`") as caught:
            campaign(run, 10)
        assert type(caught.value) is KeyboardInterrupt  # or Python does not end by the signal
        found = caught.value.found
        assert [row.outcome for row in found.rows()] == [
            row.outcome for row in campaign(lambda: model(torch.ones(4, 6)).argmax(1), 3).rows()
        ]
        assert found.partial == "3 of 10 trials"
        assert "partial: 3 of 10 trials" in found.report()[-1]
        found.save(tmp_path / "found.json")
        assert json.loads((tmp_path / "found.json").read_text())["partial"] == "3 of 10 trials"
        assert "partial: 3 of 10 trials" in found.to_svg()

    def test_is_not_partial_when_it_has_come_to_its_end(self):
        model = digits()
        found = campaign(lambda: model(torch.ones(4, 6)).argmax(1), 3)
        assert found.partial is None
        assert "partial" not in found.to_dict()

    def test_of_a_script_that_is_sent_the_signal_is_kept(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text(
            "import time, torch\n"
            "from amanda_tools import campaign\n"
            "model = torch.nn.Linear(4, 2)\n"
            "runs = []\n"
            "def run():\n"
            "    runs.append(1)\n"
            "    if len(runs) > 4:\n"
            "        print('running', flush=True)\n"
            "        time.sleep(60)\n"
            "    return model(torch.ones(3, 4)).argmax(1)\n"
            "try:\n"
            "    campaign(run, 5)\n"
            "except KeyboardInterrupt as stop:\n"
            "    stop.found.save('found.json')\n"
            "    raise\n"
        )
        options = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        run = subprocess.Popen([sys.executable, script], text=True, **options)
        assert run.stdout.readline() == "running\n"
        run.send_signal(signal.SIGINT)
        _, shown = run.communicate(timeout=300)
        assert run.returncode == -signal.SIGINT
        assert "KeyboardInterrupt: 2 of 5 trials" in shown
        found = json.loads((tmp_path / "found.json").read_text())
        assert (found["partial"], len(found["trials"])) == ("2 of 5 trials", 2)


class TestEffectivePath:
    def test_leaves_out_the_pass_that_was_under_way(self):
        model, tool = digits(), EffectivePath()
        model[1].register_forward_pre_hook(lambda _, x: interrupt() if len(x[0]) == 4 else None)
        interrupted(tool, *(functools.partial(model, torch.ones(size, 6)) for size in (2, 3, 4)))
        assert {row.example for row in tool.rows()} == set(range(5))
        assert tool.partial == "ended by KeyboardInterrupt; the pass that was under way is left out"
        assert "partial" in repr(tool)

    def test_keeps_the_last_pass_if_it_came_as_far_as_those_before(self):
        model, tool = digits(), EffectivePath()
        passes = [functools.partial(model, torch.ones(size, 6)) for size in (2, 3)]
        interrupted(tool, *passes, interrupt)
        assert {row.example for row in tool.rows()} == set(range(5))
        assert tool.partial == "ended by KeyboardInterrupt"

    def test_goes_on_in_a_later_scope_as_if_nothing_had_been(self):
        model, tool = digits(), EffectivePath()
        interrupted(tool, lambda: model[:2](torch.ones(2, 6)), interrupt)
        with amanda.apply(tool):
            model(torch.ones(3, 6))
        assert {row.example for row in tool.rows()} == {0, 1, 2}

    def test_keeps_the_examples_that_were_extracted(self, monkeypatch):
        model, tool = digits(), EffectivePath()
        with amanda.apply(tool):
            model(torch.ones(4, 6))
            add, added = tool._add, []

            def add_two(*path):
                add(*path)
                added.append(path)
                if len(added) == 2:
                    interrupt()

            monkeypatch.setattr(tool, "_add", add_two)
            with pytest.raises(KeyboardInterrupt):
                tool.rows()
        assert {row.example for row in tool.rows()} == {0, 1}
        assert tool.partial == "2 of 4 examples of a pass left out"
        assert tool.to_dict()["partial"] == tool.partial


class TestCalibration:
    def test_ctrl_c_during_freeze_leaves_all_as_it_was(self, monkeypatch):
        model, tool = digits(), Quantize(activations="mse")
        with amanda.apply(tool):
            model(torch.randn(4, 6))
        step = Observed(tool)
        monkeypatch.setattr("amanda_tools.quantization.calibration.Observer.error", step.error)
        with pytest.raises(KeyboardInterrupt):
            tool.freeze()
        assert {row.scale for row in tool.rows() if row.kind == "activation"} == {None}
        assert "observed and not rounded before freeze()" in tool.found()
        monkeypatch.undo()
        tool.freeze()
        assert all(row.scale for row in tool.rows())


class Observed:
    """Ctrl-C when a second tensor's range is looked for."""

    def __init__(self, tool):
        self.observers = []

    def error(self, formula, settings):
        self.observers.append(None)
        if len(self.observers) == 150:  # a hundred candidates and the one chosen are of the first
            interrupt()
        return float(len(self.observers))


class TestCommandsOnFiles:
    @pytest.fixture
    def interrupted(self, command):
        """Runs a command on files of three ranks, and has Ctrl-C end it at the third of them.

        It gives what was written on the standard output and the standard error.
        """
        found = {"total": {"calls": 3}, "operators": []}
        found["merge"] = {"tool": "Calls", "rows": "operators", "keys": ["id"]}
        found["merge"]["fields"] = {"calls": "sum"}
        command.write("calls.rank0.json", json.dumps(found))
        command.write("calls.rank1.json", json.dumps(found | {"partial": "ended by SIGTERM"}))
        os.mkfifo(command.folder / "calls.rank2.json")

        def run(*arguments):
            files = [f"calls.rank{rank}.json" for rank in range(3)]
            process = command.start(*arguments, *files)
            with open(command.folder / files[2], "w"):  # waits until it is to be read
                process.send_signal(signal.SIGINT)
                written = process.communicate()
            assert process.returncode == -signal.SIGINT
            return written

        return run

    def test_merge_what_was_read_until_then(self, interrupted, command):
        shown, said = interrupted("merge", "--out", "calls.json")
        told = "amanda: ended by KeyboardInterrupt; this is what was merged until then"
        assert said.split("\n") == [told, "", ""]
        assert "Calls of 2 ranks, partial" in shown
        merged = json.loads((command.folder / "calls.json").read_text())
        assert merged["partial"] == "2 of 3 files; rank 1: ended by SIGTERM"
        assert merged["total"] == {"calls": 6}

    def test_report_what_was_read_until_then(self, interrupted, command):
        pytest.importorskip("jinja2")
        _, said = interrupted("report", "--out", "report.html")
        assert "what was read until then is in report.html" in said
        page = (command.folder / "report.html").read_text()
        assert "2 of 3 files" in page
        assert "calls.rank1.json" in page


def test_a_comparison_says_that_a_run_is_partial(tmp_path):
    model = digits()
    interrupted(Record(tmp_path / "one.npz"), lambda: model(torch.ones(2, 6)), interrupt)
    with amanda.apply(whole := Record()):
        model(torch.ones(2, 6))
    said = "the first run is partial: ended by KeyboardInterrupt"
    assert compare_records(tmp_path / "one.npz", whole.run()).notes == [said]


def test_a_tool_says_in_a_notebook_that_it_is_partial():
    with pytest.raises(ZeroDivisionError), amanda.apply(tool := Activations()):
        raise ZeroDivisionError
    assert "(partial: ended by ZeroDivisionError)" in tool._repr_html_()
