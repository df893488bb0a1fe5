"""What a routine returns has the shape that the graph was built for, or is refused by name."""

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Insert, before
from tensorflow.compat import v1

SHORTER = r"returned a tensor of shape \(1,\), it has to be of shape \(2,\)"

each_kind = pytest.mark.parametrize("pure", [True, False], ids=["pure", "host"])
each_way = pytest.mark.parametrize("in_a_session", [True, False], ids=["session", "function"])


def gradient_of_sine(in_a_session, static=True):
    """Runs d(sin x)/dx at (1, 1)."""
    spec = tf.TensorSpec([2] if static else [None])
    if in_a_session:
        with tf.Graph().as_default(), v1.Session() as session:
            x = v1.placeholder(tf.float32, spec.shape)
            (gradient,) = tf.gradients(tf.sin(x), x)
            return session.run(gradient, {x: [1.0, 1.0]})

    @tf.function(input_signature=[spec])
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.sin(x)
        return tape.gradient(y, x)

    return function(tf.ones([2])).numpy()


@each_way
@each_kind
@pytest.mark.parametrize("point", ["insert_on_grad_inputs", "insert_on_grad_outputs"])
def test_a_gradient_as_a_whole(in_a_session, pure, point):
    tool = Insert(point, "Sin", lambda g: g[:1], pure=pure)
    with pytest.raises(amanda.RoutineError, match=SHORTER) as caught, amanda.apply(tool):
        gradient_of_sine(in_a_session)
    assert caught.value.operator_id.partition("#")[0] == "Sin"
    assert caught.value.tool == "Insert"


@each_way
@each_kind
@pytest.mark.parametrize("point", ["insert_before_backward_op", "insert_after_backward_op"])
def test_a_gradient_at_a_backward_operator(in_a_session, pure, point):
    tool = Insert(point, "Mul", lambda g: g[:1], pure=pure)
    with pytest.raises(amanda.RoutineError, match=SHORTER), amanda.apply(tool):
        gradient_of_sine(in_a_session)


@each_way
def test_a_gradient_whose_shape_shows_only_when_it_runs(in_a_session):
    tool = Insert("insert_on_grad_inputs", "Sin", lambda g: g[:1])
    with pytest.raises(amanda.RoutineError, match=SHORTER), amanda.apply(tool):
        gradient_of_sine(in_a_session, static=False)


@each_way
@each_kind
@pytest.mark.parametrize("point", ["insert_before_op", "insert_after_op", "replace_op"])
def test_a_tensor_whose_shape_the_graph_knows(in_a_session, pure, point):
    tool = Insert(point, "Sin", lambda t: t[:1], pure=pure)
    with pytest.raises(amanda.RoutineError, match=SHORTER), amanda.apply(tool):
        gradient_of_sine(in_a_session)


@each_kind
def test_it_is_the_routine_at_fault_that_is_named(pure):
    def fine(t):
        return t + 1.0

    def at_fault(t):
        return t[:1]

    tools = [before("Sin", r, pure=pure) for r in (fine, at_fault, fine)]
    with pytest.raises(amanda.RoutineError, match=SHORTER) as caught, amanda.apply(*tools):
        gradient_of_sine(in_a_session=False)
    assert caught.value.routine.endswith("at_fault")


@each_kind
def test_inputs_of_different_shapes_cannot_be_exchanged(pure):
    tool = before("Mul", lambda a, b: (b, a), pure=pure)
    function = tf.function(lambda a, b: a * b)
    with pytest.raises(amanda.RoutineError, match="returned a tensor of shape"), amanda.apply(tool):
        function(tf.ones([2, 1]), tf.ones([3]))
    with amanda.apply(tool):
        np.testing.assert_array_equal(function(tf.ones([2]), 2 * tf.ones([2])), [2, 2])


@each_kind
def test_a_shape_that_the_graph_does_not_know_may_change(pure):
    tool = before("Sin", lambda t: t[:1], pure=pure)
    function = tf.function(tf.sin, input_signature=[tf.TensorSpec([None])])
    with amanda.apply(tool):
        np.testing.assert_allclose(function(tf.zeros([2])), [0.0])


@each_way
def test_an_array_that_a_routine_returned_is_replaced_like_a_tensor(in_a_session):
    scaled = Insert("insert_on_grad_inputs", "Sin", lambda g: 2 * np.asarray(g))
    cut = Insert("insert_on_grad_inputs", "Sin", lambda g: 3 * g[:1])
    again = Insert("insert_on_grad_inputs", "Sin", lambda g: 3 * g)
    with amanda.apply(scaled, again):
        np.testing.assert_allclose(gradient_of_sine(in_a_session), 6 * np.cos(np.ones(2)), 1e-6)
    with pytest.raises(amanda.RoutineError, match=SHORTER), amanda.apply(scaled, cut):
        gradient_of_sine(in_a_session)
