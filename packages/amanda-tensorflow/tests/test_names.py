"""Graphs that were built before the driver was imported: names tell, as far as they can."""

import json
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
import json
import sys
import warnings
sys.path.insert(0, {tests!r})
import numpy as np
import tensorflow as tf
W = np.array([[0.5, -0.4], [0.2, 0.1]], np.float32)
X = np.array([[0.3, -0.2]], np.float32)
runs, loops = {{}}, {{}}
{builds}
assert "amanda_tensorflow" not in sys.modules
import amanda
from straight_through import mask_and_double, assert_close, doubled_tanh, masked_matmul

x, w = tf.constant(X), tf.Variable(W)
with tf.GradientTape() as tape:
    tape.watch(x)
    y = doubled_tanh(masked_matmul(x, w))
expected = [y, *tape.gradient(y, [x, w])]
found = {{}}
for name, run in runs.items():
    seen = []
    looking = amanda.Tool()
    looking.add_inst_for_op(
        lambda ctx: seen.append((ctx.op.type, ctx.backward_op.type)), backward=True
    )
    try:
        with amanda.apply(*mask_and_double(pure=True), looking):
            assert_close(run(), expected)
        assert ("Tanh", "TanhGrad") in seen and ("MatMul", "MatMul") in seen, seen
        found[name] = "as expected"
    except Exception as error:
        found[name] = repr(error)
for name, run in loops.items():
    seen = []
    looking = amanda.Tool()
    looking.add_inst_for_op(
        lambda ctx: seen.append((ctx.op.type, ctx.backward_op.type)), backward=True
    )
    whole = amanda.Tool()
    whole.add_inst_for_gradient(lambda ctx: None, ops=["Mul"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with amanda.apply(looking, whole):
            run()
    found[name] = sorted(set(seen)), [str(w.message) for w in caught]
print("found:" + json.dumps(found))
"""
BUILD = """
def build():
    {body}
    return run
{kind}[{name!r}] = build()
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

_LOOP = """
        variable = tf.Variable(0.5)

        @tf.function
        def function(x):
            turn = lambda i, y: (i + 1, tf.sqrt(y * variable))
            return tf.while_loop(lambda i, y: i < 2, turn, [0, x])[1]

        def run():
            with tf.GradientTape() as tape:
                y = function(tf.constant(X))
            return tape.gradient(y, variable)
"""
LOOPS = {
    "loop_around": f"{_LOOP}\n        run()",
    "loop_inside": f"{_LOOP}\n        run = tf.function(run)\n        run()",
}


@pytest.fixture(scope="module")
def found(interpreter):
    """What came of each in a process in which they were built before the driver was imported."""
    builds = [
        BUILD.format(
            name=name, kind=kind, body=textwrap.indent(textwrap.dedent(body), "    ").strip()
        )
        for kind, bodies in (("runs", BUILDS), ("loops", LOOPS))
        for name, body in bodies.items()
    ]
    program = PROGRAM.format(builds="".join(builds), tests=str(Path(__file__).parent))
    printed = interpreter.run("-c", program, check=True).stdout
    return json.loads(printed.partition("found:")[2])


@pytest.mark.parametrize("build", BUILDS)
def test_the_driver_is_loaded_by_the_first_scope(found, build):
    assert found[build] == "as expected"


@pytest.mark.parametrize("build", LOOPS)
def test_backward_operators_in_loops_are_seen(found, build):
    seen, _ = found[build]
    assert {("Sqrt", "SqrtGrad"), ("Mul", "Mul")} <= set(map(tuple, seen))


@pytest.mark.parametrize("build", LOOPS)
def test_what_is_not_seen_is_said_once(found, build):
    (message,) = found[build][1]
    assert "tools do not see the gradients as a whole of while/mul (Mul) in" in message
    assert "import that before the graph is built" in message
