"""The command, with a program that TensorFlow runs eagerly."""

import keras_process
import pytest

EAGER = """
import warnings

import tensorflow as tf

warnings.simplefilter("ignore")
tf.matmul(tf.ones([2, 2]), tf.ones([2, 2]))
"""


@pytest.mark.parametrize("options", [[], ["--ops", "MatMul"]])
def test_it_says_why_the_tools_saw_nothing(tmp_path, options):
    script = tmp_path / "eager.py"
    script.write_text(EAGER)
    done = keras_process.command("tensorflow", "run", *options, script, check=True)
    shown = " ".join(done.stderr.split())
    assert "no operator ran under the tools; tools see TensorFlow's graphs" in shown
    assert "call them in a tf.function" in shown
