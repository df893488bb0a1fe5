"""S1 where data leaves the order open: a routine sees what those before it have assigned."""

import time

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import after, before
from tensorflow.compat import v1

ONE = np.ones(2, np.float32)


class AssignAndScale(amanda.Tool):
    """A host routine assigns a scale, slowly, by which pure ones multiply."""

    def __init__(self, assign_at, scale_at):
        super().__init__()
        self.scale = None
        self.assigned = 0.0
        self.add_inst_for_op(self.analyze_assign, ops=[assign_at])
        self.add_inst_for_op(self.analyze_scale, ops=[scale_at])

    def share(self, ctx):
        """The scale is the one variable of both operators."""
        if self.scale is None:
            self.scale = ctx.variable("scale", 0.0)

    def analyze_assign(self, ctx):
        self.share(ctx)
        ctx.insert_before_op(self.assign, inputs=[])

    def analyze_scale(self, ctx):
        self.share(ctx)
        ctx.insert_before_op(self.multiply, inputs=[0], pure=True)

    def assign(self):
        time.sleep(0.1)
        self.assigned += 1.0
        self.scale.assign(self.assigned)

    def multiply(self, x):
        return x * self.scale


def side_by_side(x):
    """Two operators of which neither needs the other."""
    a = tf.sin(x)
    b = tf.cos(x)
    return a + b


def within_a_branch(x):
    return tf.sin(x) + tf.cond(x[0] > 0.0, lambda: tf.cos(x), lambda: x)


def within_a_function(x):
    return tf.sin(x) + tf.function(tf.cos)(x)


each_program = pytest.mark.parametrize(
    "program", [side_by_side, within_a_branch, within_a_function], ids=lambda f: f.__name__
)


@each_program
def test_a_function(program):
    function, tool = tf.function(program), AssignAndScale("Sin", "Cos")
    for run in (1, 2, 3):
        with amanda.apply(tool):
            result = function(tf.constant(ONE))
        np.testing.assert_allclose(result, np.sin(ONE) + np.cos(run * ONE), rtol=1e-5)


@each_program
def test_a_session(program):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [2])
        y = program(x)
        with amanda.apply(tool := AssignAndScale("Sin", "Cos")):
            for run in (1, 2, 3):
                result = session.run(y, {x: ONE})
                np.testing.assert_allclose(result, np.sin(ONE) + np.cos(run * ONE), rtol=1e-5)
    assert tool.assigned == 3


def test_a_later_assignment_is_not_seen():
    function = tf.function(lambda x: (tf.cos(x), tf.sin(x)))
    with amanda.apply(tool := AssignAndScale("Sin", "Cos")):
        cosines = [function(tf.constant(ONE))[0].numpy() for _ in range(3)]
    np.testing.assert_allclose(cosines, np.cos([0 * ONE, ONE, 2 * ONE]), rtol=1e-5)
    assert tool.assigned == 3


def test_routines_at_one_operator():
    tool = AssignAndScale("Cos", "Cos")
    with amanda.apply(tool):
        result = tf.function(tf.cos)(tf.constant(ONE))
    np.testing.assert_allclose(result, np.cos(ONE), rtol=1e-5)


WITH_EFFECTS = [tf.identity, lambda x: tf.constant(ONE)]


@pytest.mark.parametrize("routine", WITH_EFFECTS, ids=["reads", "constant"])
@pytest.mark.parametrize("insert", [after, before])
def test_what_a_pure_routine_substitutes_leaves_effects_and_who_waits_for_them(insert, routine):
    ran = []

    def effect(name, pause):
        def run(x):
            time.sleep(pause)
            ran.append(name)
            return x

        return run

    with tf.Graph().as_default(), v1.Session() as session:
        first = v1.py_func(effect("first", 0.05), [tf.constant(ONE)], tf.float32, name="first")
        first.set_shape([2])
        second = tf.sin(first)
        with tf.control_dependencies([second]):
            third = v1.py_func(effect("third", 0.0), [tf.constant(ONE)], tf.float32)
        with amanda.apply(insert("Sin", routine, pure=True)):
            session.run(third)
            assert ran == ["first", "third"]
            session.run(second)
    assert ran == ["first", "third", "first"]
