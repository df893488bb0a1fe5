"""What makes an input: edges worked out by hand, across calls, branches and loops of graphs."""

import re

import amanda
import pytest
import tensorflow as tf
from amanda.testing.probes import Edges

v1 = tf.compat.v1
X = tf.constant([[1.0, 2.0], [3.0, 4.0]])


def edges(*calls, **options):
    tool = Edges(**options)
    with amanda.apply(tool):
        for call in calls:
            call()
    return without_numbers(tool.edges)


def without_numbers(found):
    """Edges by the types of operators, of which other tests have some too."""
    return {re.sub(r"#\d+", "", edge) for edge in found}


@tf.function
def residual(x):
    y = tf.exp(x)
    left, right = tf.split(tf.identity(y) + tf.sin(y), 2, 1)
    return tf.concat([right, left, y], 1)


RESIDUAL = {
    *("Exp > Sin.x", "Exp > AddV2.x", "Sin > AddV2.y", "AddV2 > Split.value"),
    *("Split:1 > ConcatV2.values[0]", "Split > ConcatV2.values[1]", "Exp > ConcatV2.values[2]"),
}


class TestOfFunctions:
    def test_along_a_residual_addition_and_a_concatenation(self):
        assert edges(lambda: residual(X)) == RESIDUAL

    def test_into_and_out_of_what_they_call(self):
        inner = tf.function(lambda x: tf.sin(x), autograph=False)
        outer = tf.function(lambda x: tf.cos(inner(tf.exp(x))), autograph=False)
        assert edges(lambda: outer(X)) == {"Exp > Sin.x", "Sin > Cos.x"}

    def test_of_another_graph_of_the_same_operators_are_added(self):
        @tf.function
        def step(x, training):
            y = tf.exp(x, name="layer/exp")
            if training:
                y = tf.sin(y, name="layer/noise")
            return tf.cos(y, name="layer/cos")

        found = edges(lambda: step(X, False), lambda: step(X, True))
        assert found == {
            "layer/Exp > layer/Cos.x",
            *("layer/Exp > layer/Sin.x", "layer/Sin > layer/Cos.x"),
        }

    def test_with_gradients_are_the_same(self):
        variable = tf.Variable(X)

        @tf.function
        def train():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(residual(variable))
            variable.assign_sub(tape.gradient(loss, variable))

        assert edges(train) == RESIDUAL | {"ConcatV2 > Sum.input"}

    def test_are_those_of_what_the_program_gets_when_others_change_it(self):
        tool = Edges()
        with amanda.apply(tool, _Doubles()):
            residual(X)
        assert without_numbers(tool.edges) == RESIDUAL


class TestOfControlFlow:
    def test_of_branches_come_from_both(self):
        @tf.function
        def branching(x):
            x = tf.exp(x)
            y = tf.sin(x) if tf.reduce_sum(x) > 1 else tf.cos(x)
            return tf.tan(y)

        assert edges(lambda: branching(X)) >= {
            *("Exp > cond/Sin.x", "Exp > cond/Cos.x", "cond/Sin > Tan.x", "cond/Cos > Tan.x"),
        }

    def test_of_loops_come_from_before_and_from_the_turn_before(self):
        @tf.function
        def loop(x):
            x = tf.exp(x)
            for _ in tf.range(3):
                x = tf.sin(x)
            return tf.cos(x)

        found = {edge for edge in edges(lambda: loop(X)) if edge.endswith(("Sin.x", "Cos.x"))}
        assert found == {
            *("Exp > while/Sin.x", "while/Sin > while/Sin.x"),
            *("Exp > Cos.x", "while/Sin > Cos.x"),
        }


@pytest.mark.parametrize("v2", [True, False], ids=["v2", "v1"])
def test_of_a_session(v2):
    (v1.enable_control_flow_v2 if v2 else v1.disable_control_flow_v2)()
    try:
        with tf.Graph().as_default():
            x = v1.placeholder(tf.float32, (2,))
            start = (tf.constant(0), tf.exp(x, name="exp"))
            y = v1.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y)), start)[1]
            z = v1.cond(tf.reduce_sum(x) > 0, lambda: tf.cos(y), lambda: tf.identity(y))
            fetch = tf.tan(z)
            with v1.Session() as session:
                found = edges(lambda: session.run(fetch, {x: [1.0, 2.0]}))
    finally:
        v1.enable_control_flow_v2()
    bare = {re.sub("while/|cond/", "", edge) for edge in found}  # not all graphs have these names
    assert {edge for edge in bare if edge.endswith(("Sin.x", "Cos.x", "Tan.x"))} == {
        *("Exp > Sin.x", "Sin > Sin.x", "Exp > Cos.x", "Sin > Cos.x"),
        *("Cos > Tan.x", "Exp > Tan.x", "Sin > Tan.x"),
    }


def test_what_is_fed_comes_from_nowhere():
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, (2,))
        y = tf.exp(x)
        z = tf.sin(y)
        with v1.Session() as session:
            assert edges(lambda: session.run(z, {y: [1.0, 2.0]})) == set()


class _Doubles(amanda.Tool):
    def __init__(self):
        super().__init__()
        double = lambda y: y * 2  # noqa: E731
        self.add_inst_for_op(lambda ctx: ctx.insert_after_op(double, pure=True), ops=["Exp"])
