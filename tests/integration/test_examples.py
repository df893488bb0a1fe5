"""The examples are plain user code; ``amanda run`` instruments them from outside."""

import os
import re
import subprocess
import sys
from pathlib import Path

import keras_process
import pytest
from amanda_tools import read_trace

EXAMPLES = Path(__file__).parents[2] / "examples"
OFFLINE = {"HF_HUB_OFFLINE": "1", "COLUMNS": "200"}


def from_the_start(*arguments):
    """The command in a process that has imported nothing before, with Keras on TensorFlow."""
    command = [sys.executable, "-m", "amanda_tools", *arguments]
    environment = os.environ | OFFLINE | {"KERAS_BACKEND": "tensorflow"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def with_torch(*arguments):
    """The command in a process that has imported PyTorch."""
    return keras_process.command("torch", *arguments, environment=OFFLINE)


@pytest.mark.parametrize(
    ("command", "line", "forward", "backward"),
    [
        (with_torch, ["embed_sentences.py"], {"linear", "embedding"}, {"AddmmBackward0"}),
        (
            from_the_start,
            ["train_digits_keras.py", "--epochs", "1"],
            {"Conv2D", "MatMul"},
            {"Conv2DBackpropFilter"},
        ),
    ],
    ids=["embed_sentences.py", "train_digits_keras.py"],
)
def test_an_example_under_all_tools(command, line, forward, backward, tmp_path):
    path = tmp_path / "trace.jsonl"
    tools = ("flops", f"profile:out={tmp_path / 'profile.json'}", f"trace:out={path}")
    chosen = [word for tool in tools for word in ("--tool", tool)]
    ran = command("run", *chosen, "--", str(EXAMPLES / line[0]), *line[1:])
    assert ran.returncode == 0, ran.stderr
    assert "flops: " in ran.stderr
    rows = list(read_trace(path))
    assert forward <= {row["type"] for row in rows if row["direction"] == "forward"}
    assert backward <= {row["type"] for row in rows if row["direction"] == "backward"}


def test_a_training_that_diverges_is_stopped_where_it_does(tmp_path):
    """The logarithm of a probability that is zero, in the line of the loss."""
    script = EXAMPLES / "train_digits_diverging.py"
    ran = keras_process.command("torch", "run", "--tool", "nan:stop=yes", script, cwd=tmp_path)
    assert ran.returncode == 1
    lines = script.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "probabilities.log()" in text)
    assert f"nan: forward log ({script}:{line}) makes " in ran.stderr
    assert "Inf of finite inputs" in ran.stderr


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_does_not_mention_amanda(script):
    assert "amanda" not in script.read_text().lower()


@pytest.mark.parametrize("script", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.name)
def test_an_example_prints_tables_as_the_command_does(script):
    """Through a pipe rich's own console splits names at 80 columns."""
    assert "rich" not in re.findall(r"^(?:from|import) (\w+)", script.read_text(), re.MULTILINE)
