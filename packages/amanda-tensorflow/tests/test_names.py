"""Graphs that were built before the driver was imported: names tell, as far as they can."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    import sys
    sys.path.insert(0, {tests!r})
    import numpy as np
    import tensorflow as tf
    W = np.array([[0.5, -0.4], [0.2, 0.1]], np.float32)
    X = np.array([[0.3, -0.2]], np.float32)
    {build}
    assert "amanda_tensorflow" not in sys.modules
    import amanda
    from straight_through import mask_and_double, assert_close, doubled_tanh, masked_matmul

    x, w = tf.constant(X), tf.Variable(W)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = doubled_tanh(masked_matmul(x, w))
    expected = [y, *tape.gradient(y, [x, w])]
    seen = []
    looking = amanda.Tool()
    looking.add_inst_for_op(
        lambda ctx: seen.append((ctx.op.type, ctx.backward_op.type)), backward=True
    )
    with amanda.apply(*mask_and_double(pure=True), looking):
        assert_close(run(), expected)
    assert ("Tanh", "TanhGrad") in seen and ("MatMul", "MatMul") in seen, seen
"""
BUILDS = {
    "session": """
        graph = tf.Graph()
        with graph.as_default():
            placeholder = tf.compat.v1.placeholder(tf.float32, (1, 2))
            variable = tf.compat.v1.get_variable("w", initializer=W)
            y = tf.tanh(tf.matmul(placeholder, variable))
            fetches = [y, *tf.gradients(y, [placeholder, variable])]
            session = tf.compat.v1.Session()
            session.run(tf.compat.v1.global_variables_initializer())
        run = lambda: session.run(fetches, {placeholder: X})
    """,
    "tape_inside": """
        variable = tf.Variable(W)

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.tanh(tf.matmul(x, variable))
            return [y, *tape.gradient(y, [x, variable])]

        step(tf.constant(X))
        run = lambda: step(tf.constant(X))
    """,
    "tape_around": """
        variable = tf.Variable(W)
        function = tf.function(lambda x: tf.tanh(tf.matmul(x, variable)))

        def run():
            x = tf.constant(X)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return [y, *tape.gradient(y, [x, variable])]

        run()
    """,
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_the_driver_is_loaded_by_the_first_scope(build):
    indented = textwrap.indent(textwrap.dedent(build), "    ").strip()
    program = PROGRAM.format(build=indented, tests=str(Path(__file__).parent))
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
