"""Routines that use a tensor of the graph which they were not given."""

import functools

import amanda
import pytest
import tensorflow as tf
from amanda.testing.probes import Watch, host_and_pure
from tensorflow.compat import v1

X = tf.constant([1.0, 2.0])
THREE = tf.constant(3.0)


class Scaling:
    """A routine that keeps a tensor."""

    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x * self.by


# How a routine may refer to a tensor, and be inserted with it.
WAYS = {
    "closure": lambda by: (lambda x: x * by, {}),
    "option": lambda by: (lambda x, by: x * by, {"by": by}),
    "attribute": lambda by: (Scaling(by), {}),
    "partial": lambda by: (functools.partial(tf.multiply, by), {}),
}


def in_a_function(analyze):
    @tf.function
    def run(x):
        return tf.nn.relu(x + 1.0)

    with amanda.apply(Watch(analyze, "Relu")):
        return run(X).numpy()


def in_a_session(analyze):
    with tf.Graph().as_default(), v1.Session() as session:
        y = tf.nn.relu(tf.constant(X.numpy()) + 1.0)
        with amanda.apply(Watch(analyze, "Relu")):
            return session.run(y)


@pytest.mark.parametrize("run", [in_a_function, in_a_session])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("point", ["insert_before_op", "insert_after_op", "replace_op"])
@host_and_pure
def test_it_is_refused_with_what_to_do_instead(run, way, point, pure):
    def analyze(ctx):
        routine, options = WAYS[way](ctx.inputs[0])
        getattr(ctx, point)(routine, pure=pure, **options)

    with pytest.raises(amanda.RoutineError) as caught:
        run(analyze)
    for said in ("of the graph", "pass an array", "ctx.variable(", "Watch", "Relu"):
        assert said in str(caught.value)


@pytest.mark.parametrize("run", [in_a_function, in_a_session])
@host_and_pure
def test_arrays_variables_and_eager_tensors_are_fine(run, pure):
    def analyze(ctx):
        two = ctx.variable("two", 2.0)
        array = X.numpy()
        ctx.insert_before_op(lambda x: x * two * array * THREE, pure=pure)

    assert run(analyze).tolist() == [12.0, 36.0]


@host_and_pure
def test_the_shape_of_such_a_tensor_may_be_looked_at(pure):
    def analyze(ctx):
        given = ctx.inputs[0]
        ctx.insert_before_op(lambda x: x * given.shape[0], pure=pure)

    assert in_a_function(analyze).tolist() == [4.0, 6.0]
