"""The ``amanda`` command, as a person runs it."""

import gc
import json
import re
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import pytest
from amanda_tools import read_trace

SHOW = """
import json, sys
print(json.dumps({
    "argv": sys.argv, "path": sys.path[0], "file": __file__, "name": __name__,
    "package": __package__, "loader": type(__loader__).__name__,
    "spec": __spec__ and __spec__.name,
    "main": vars(sys.modules["__main__"]) is globals(),
}))
"""
MODEL = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
model(torch.ones(2, 4)).sum().backward()
"""
QUIET = ("--tool", "trace:out=trace.jsonl")  # a tool that needs nothing to be there


class Shown(NamedTuple):
    """The exit code of the command, and what it and the script wrote."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def of_model(tmp_path_factory, in_process):
    """What a run of a model under the tools of a plain command line shows."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "model.py").write_text(MODEL + "print('done')")
    return Shown(*in_process(folder, "run", "model.py"))


def test_is_installed():
    (script,) = entry_points(group="console_scripts", name="amanda")
    assert script.value == "amanda_tools.command:main"


class TestScript:
    """What it sees is what it would see under Python itself."""

    def plain(self, command, *args):
        result = subprocess.run(
            [sys.executable, *args], cwd=command.folder, capture_output=True, text=True, check=True
        )
        return json.loads(result.stdout)

    def under(self, command, *args):
        result = command("run", *QUIET, *args)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def test_in_this_folder(self, command):
        command.write("show.py", SHOW)
        args = ("show.py", "--epochs", "1", "-m", "--tool", "x", "--", "y")
        assert self.under(command, *args) == self.plain(command, *args)

    def test_behind_two_dashes(self, command):
        command.write("show.py", SHOW)
        assert self.under(command, "--", "show.py", "-m") == self.plain(command, "show.py", "-m")

    def test_in_another_folder(self, command):
        command.write("scripts/beside.py", "")
        command.write("scripts/show.py", "import beside\n" + SHOW)
        assert self.under(command, "scripts/show.py") == self.plain(command, "scripts/show.py")

    def test_that_is_a_folder(self, command):
        command.write("program/beside.py", "")
        command.write("program/__main__.py", "import beside\n" + SHOW.replace("sys.path[0]", "1"))
        seen, plain = self.under(command, "program", "-x"), self.plain(command, "program", "-x")
        assert seen == plain

    def test_as_a_module(self, command):
        command.write("package/__init__.py", "")
        command.write("package/show.py", "from . import __name__ as package\n" + SHOW)
        args = ("-m", "package.show", "--epochs", "1")
        assert self.under(command, *args) == self.plain(command, *args)

    def test_as_a_package(self, command):
        command.write("package/__init__.py", "")
        command.write("package/__main__.py", SHOW)
        assert self.under(command, "-m", "package") == self.plain(command, "-m", "package")

    def test_reads_the_standard_input(self, command):
        command.write("shout.py", "print(input().upper())")
        assert command("run", *QUIET, "shout.py", input="hello\n").stdout == "HELLO\n"

    def test_has_the_standard_output_to_itself(self, of_model):
        assert of_model.out == "done\n"
        assert "linear" in of_model.err

    def test_can_pickle_its_own_classes(self, command):
        command.write(
            "pickles.py",
            "import pickle\nclass Mine: pass\nprint(type(pickle.loads(pickle.dumps(Mine()))))",
        )
        assert command("run", *QUIET, "pickles.py").stdout == "<class '__main__.Mine'>\n"

    @pytest.mark.parametrize("how", [("spawns.py",), ("-m", "spawns")])
    def test_can_spawn_processes_which_run_without_tools(self, command, how):
        command.write(
            "spawns.py",
            f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
            "import amanda, multiprocessing\n"
            "from toy import Toy\n"
            "toy = Toy()\n"
            "amanda.register_driver(toy)\n"
            "with amanda.apply(): pass\n"  # has scopes around it know the driver
            "def work(x): return x * x, toy.engine is not None\n"
            "if __name__ == '__main__':\n"
            "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
            "        print(work(2), *pool.map(work, [3]))\n",
        )
        assert command("run", *QUIET, *how).stdout == "(4, True) (9, False)\n"


class TestEnd:
    @pytest.mark.parametrize(
        ("statement", "code"),
        [
            ("pass", 0),
            ("sys.exit()", 0),
            ("sys.exit(None)", 0),
            ("sys.exit(0)", 0),
            ("sys.exit(7)", 7),
            ("sys.exit(True)", 1),
            ("sys.exit('no luck')", 1),
            ("raise ValueError('no luck')", 1),
        ],
    )
    def test_the_exit_code_is_the_script_s(self, command, statement, code):
        command.write("ends.py", f"import sys\n{statement}")
        result = command("run", *QUIET, "ends.py")
        assert result.returncode == code
        assert ("no luck" in result.stderr) == ("no luck" in statement)
        assert "trace: 0 executions" in result.stderr

    @pytest.mark.parametrize(
        ("script", "error"),
        [("def fail():\n    1 / 0\nfail()\n", "ZeroDivisionError"), ("x = = 1", "SyntaxError")],
    )
    def test_a_traceback_is_the_script_s(self, command, script, error):
        command.write("fails.py", script)
        plain = subprocess.run(
            [sys.executable, "fails.py"], cwd=command.folder, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        shown = command("run", *QUIET, "fails.py").stderr
        assert shown.startswith(plain.stderr)
        assert f"ended by {error}" in shown

    def test_a_traceback_through_the_framework_has_no_frames_of_ours(self, command, in_process):
        command.write("model.py", MODEL.replace("2, 4", "2, 5"))
        _, _, shown = in_process(command.folder, "run", "--tool", "profile", "model.py")
        assert "mat1 and mat2 shapes cannot be multiplied" in shown
        assert shown.count('model.py"') == 1
        assert "amanda_t" not in shown

    def test_an_error_of_a_tool_names_it_and_shows_where(self, command, in_process):
        command.write("model.py", MODEL)
        command.write(
            "mine.py",
            "import amanda\n"
            "class Bad(amanda.Tool):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.add_inst_for_op(self.analyze, ops=['relu'])\n"
            "    def analyze(self, ctx):\n"
            "        ctx.insert_before_op(self.fail)\n"
            "    def fail(self, x):\n"
            "        raise KeyError('nothing')\n",
        )
        code, _, shown = in_process(command.folder, "run", "--tool", "mine:Bad", "model.py")
        assert code == 1
        assert "amanda.RoutineError: Bad: Bad.fail at before_op of operator" in shown
        assert "mine.py" in shown

    def test_a_failed_script_leaves_what_was_recorded(self, command, in_process):
        command.write("model.py", MODEL + "1 / 0")
        tools = (*QUIET, "--tool", "profile:out=profile.json")
        _, _, shown = in_process(command.folder, "run", *tools, "model.py")
        assert "what was recorded until then" in shown
        rows = list(read_trace(command.folder / "trace.jsonl"))
        assert f"trace: {len(rows)} executions" in shown
        assert {row["type"] for row in rows} >= {"linear", "relu", "sum", "ReluBackward0"}
        assert json.loads((command.folder / "profile.json").read_text())

    def test_ctrl_c_leaves_what_was_recorded_and_ends_by_the_signal(self, command):
        endless = (
            MODEL + "for _ in range(9): model(torch.ones(2, 4))\n"
            "print('running', flush=True)\nwhile True: model(torch.ones(2, 4))"
        )
        command.write("endless.py", endless)
        files = ["--tool", "summary:out=summary.json", "--tool", "profile:out=profile.json"]
        process = command.start("run", *QUIET, *files, "endless.py")
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        _, shown = process.communicate()
        assert process.returncode == -signal.SIGINT
        assert shown.count("KeyboardInterrupt") == 2  # once Python's, once ours
        assert "what was recorded until then" in shown
        rows = list(read_trace(command.folder / "trace.jsonl"))
        assert len(rows) > 10
        assert f"trace: {len(rows):,} executions" in shown
        said = "ended by KeyboardInterrupt"
        assert json.loads((command.folder / "summary.json").read_text())["partial"] == said
        assert f'"labels": "partial: {said}"' in (command.folder / "profile.json").read_text()


class TestTools:
    MINE = (
        "import amanda\n"
        "class Count(amanda.Tool):\n"
        "    '''Counts.'''\n"
        "    def __init__(self, label: str = 'count'):\n"
        "        super().__init__()\n"
        "        self.label, self.types = label, []\n"
        "        self.add_inst_for_op(lambda ctx: self.types.append(ctx.op.type))\n"
        "    def report(self):\n"
        "        return f'{self.label}: {sorted(set(self.types))}'\n"
    )

    def test_of_the_user_s_own_are_found_in_this_folder(self, command, in_process):
        command.write("mine.py", self.MINE)
        command.write("scripts/model.py", MODEL)
        arguments = ("run", "--tool", "mine:Count:label=seen", "scripts/model.py")
        _, _, shown = in_process(command.folder, *arguments)
        assert "seen: ['linear', 'ones', 'relu', 'sum', 'uniform_']" in shown

    def test_that_the_readme_shows_contribute_to_what_is_printed(self, command, in_process):
        readme = (Path(__file__).parents[1] / "README.md").read_text()
        (tool,) = re.findall(r"```python\n(import amanda\n[^`]*class Sparsity.*?)```", readme, re.S)
        command.write("my_tools.py", tool)
        command.write("model.py", MODEL.replace("torch.ones(2, 4)", "-torch.ones(2, 4) / 0"))
        arguments = ("run", "--tool", "my_tools:Sparsity:types=relu,gelu", "model.py")
        _, _, shown = in_process(command.folder, *arguments)
        assert re.search(r"Type +Zeros", shown)
        assert re.search(r"sparsity: \d zeros", shown)

    def test_see_only_the_types_that_are_asked_for(self, command, in_process):
        command.write("mine.py", self.MINE)
        command.write("model.py", MODEL)
        tools = ("--tool", "mine:Count", *QUIET, "--ops", "linear,relu")
        gc.collect()  # a model of a run before that failed may hold the ids
        _, _, shown = in_process(command.folder, "run", *tools, "model.py")
        assert "count: ['linear', 'relu']" in shown
        rows = list(read_trace(command.folder / "trace.jsonl"))
        assert {row["operator"] for row in rows} == {"0/linear", "1/relu"}
        assert {row["direction"] for row in rows} == {"forward", "backward"}

    def test_are_flops_and_profile_unless_told(self, of_model):
        # linear: 2 * 2 * 4 * 3, and as much for the gradient of the weight
        assert "48 forward, 48 backward" in of_model.err
        assert "Forward" in of_model.err
        assert "Share" in of_model.err

    def test_that_saw_nothing_say_so(self, command, in_process):
        command.write("nothing.py", "")
        _, _, shown = in_process(command.folder, "run", "nothing.py")
        assert "no operator ran under the tools" in shown
        _, _, shown = in_process(command.folder, "run", "--ops", "lineer", "nothing.py")
        assert "none of type lineer" in shown

    @pytest.mark.parametrize("tool", ["nan", "record", "magnitude"])
    def test_without_tables_say_so_too(self, command, in_process, tool):
        command.write("nothing.py", "")
        command.write("model.py", MODEL)
        for script, said in (("nothing.py", 1), ("model.py", 0)):
            _, _, shown = in_process(command.folder, "run", "--tool", tool, script)
            assert shown.count("no operator ran under the tools") == said

    def test_that_saw_nothing_do_not_mind_a_driver_that_cannot_tell_why(
        self, tmp_path, in_process, toy, monkeypatch
    ):
        def unseen():
            raise KeyError("lost")

        monkeypatch.setattr(toy, "unseen", unseen)
        (tmp_path / "nothing.py").write_text("")
        code, _, shown = in_process(tmp_path, "run", "nothing.py")
        assert code == 0
        assert "amanda: toy's driver cannot tell what tools did not see: KeyError: 'lost'" in shown
        assert "no operator ran under the tools" in shown

    def test_say_once_and_plainly_which_types_that_are_asked_for_never_ran(
        self, command, in_process
    ):
        command.write("model.py", MODEL)
        _, _, shown = in_process(command.folder, "run", "--ops", "linear,Relu,nosuch", "model.py")
        (line,) = (line for line in shown.splitlines() if "never ran" in line)
        assert line.startswith("amanda: types of operators that never ran")
        assert "did you mean 'relu'?" in line
        assert "'nosuch'" in line
        assert "Warning" not in shown

    def test_are_listed_with_their_options(self, tmp_path, in_process):
        _, shown, _ = in_process(tmp_path, "tools")
        for word in ("flops", "profile", "trace", "out=", "required"):
            assert word in shown


class TestMistake:
    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (("rnu",), "Did you mean 'run'?"),
            (("run",), "Missing argument 'TARGET'"),
            (("run", "--tol", "flops", "train.py"), "No such option '--tol'"),
            (("run", "--tool", "folps", "train.py"), "no tool 'folps'; did you mean 'flops'?"),
            (("run", "--tool", "trace:uot=x", "train.py"), "did you mean 'out'?"),
            (("run", "--depth", "-1", "train.py"), "-1 is not in the range x>=0"),
            (("run", "trian.py"), "no file 'trian.py'; did you mean 'train.py'?"),
            (("run", "folder/trian.py"), "did you mean 'folder/train.py'?"),
            (("run", "nowhere/train.py"), "there is no folder 'nowhere'"),
            (("run", "-m", "package.trian"), "did you mean 'package.train'?"),
            (("run", "-m", "pakcage.train"), "no module 'pakcage'; did you mean 'package'?"),
            (("run", "-m", "package"), "package 'package' cannot be run"),
            (
                ("run", "--tool", "trace:out=no/folder/x.json", "train.py"),
                "No such file or directory",
            ),
        ],
    )
    def test_is_one_line_and_exit_code_2(self, command, in_process, args, message):
        command.write("package/__init__.py", "")
        for name in ("train.py", "folder/train.py", "package/train.py"):
            command.write(name, "print('ran')")
        code, out, shown = in_process(command.folder, *args)
        assert code == 2
        assert out == ""
        assert shown.startswith("amanda: ")
        assert shown.count("\n") == 1
        assert message in shown

    def test_leaves_files_of_an_earlier_run_alone(self, command):
        written = command.write("trace.jsonl", "{}\n")
        assert command("run", *QUIET, "missing.py").returncode == 2
        assert written.read_text() == "{}\n"
