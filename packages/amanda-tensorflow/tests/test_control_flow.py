"""S3 through loops, branches and calls: the gradient may be far from its operator."""

import functools

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Insert, host_and_pure, replace, under
from straight_through import assert_close, doubled_tanh, mask_and_double, masked_matmul

X = np.array([[0.3, -0.2]], np.float32)
W = np.array([[0.5, -0.4], [0.2, 0.1]], np.float32)


def straight(x, w, matmul, tanh):
    return tanh(matmul(x, w))


def loop(x, w, matmul, tanh):
    for _ in tf.range(3):
        x = tanh(matmul(x, w))
    return x


def while_loop(x, w, matmul, tanh):
    return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tanh(matmul(x, w))), [0, x])[1]


def nested_loop(x, w, matmul, tanh):
    def outer(i, x):
        x = tf.while_loop(lambda j, x: j < 2, lambda j, x: (j + 1, tanh(matmul(x, w))), [0, x])[1]
        return i + 1, tanh(x)

    return tf.while_loop(lambda i, x: i < 2, outer, [0, x])[1]


def branch_taken(x, w, matmul, tanh):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tanh(matmul(x, w)), lambda: x)


def branch_not_taken(x, w, matmul, tanh):
    x = matmul(x, w)
    return tf.cond(tf.reduce_sum(x) > 100, lambda: tanh(matmul(x, w)), lambda: tanh(x))


def switch(x, w, matmul, tanh):
    branches = [lambda: matmul(x, w), lambda: tanh(matmul(x, w)), lambda: x]
    return tf.switch_case(tf.cast(x[0, 0] > 0, tf.int32), branches)


def branch_in_loop(x, w, matmul, tanh):
    def body(i, x):
        taken = tf.cond(i % 2 < 1, lambda: tanh(matmul(x, w)), lambda: matmul(x, w))
        return i + 1, taken

    return tf.while_loop(lambda i, x: i < 3, body, [0, x])[1]


def shared(x, w, matmul, tanh):
    t = tanh(x)
    return matmul(t, w) + matmul(t * t, w)


def called(x, w, matmul, tanh):
    inner = tf.function(lambda x: tanh(matmul(x, w)))
    return inner(inner(x))


def called_in_loop(x, w, matmul, tanh):
    inner = tf.function(lambda x: tanh(matmul(x, w)))
    return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, inner(x)), [0, x])[1]


PROGRAMS = [
    straight,
    loop,
    while_loop,
    nested_loop,
    branch_taken,
    branch_not_taken,
    switch,
    branch_in_loop,
    shared,
    called,
    called_in_loop,
]
programs = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


@functools.cache
def eager_reference(program):
    """The program's output and gradients, run by hand without any graph."""
    tf.config.run_functions_eagerly(True)
    try:
        x, w = tf.constant(X), tf.Variable(W)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.autograph.experimental.do_not_convert(program)(x, w, masked_matmul, doubled_tanh)
        return [y, *tape.gradient(y, [x, w])]
    finally:
        tf.config.run_functions_eagerly(False)


@programs
@host_and_pure
def test_a_tape_around_the_function(program, pure):
    x, w = tf.constant(X), tf.Variable(W)
    function = tf.function(lambda x: program(x, w, tf.matmul, tf.tanh))
    expected = eager_reference(program)
    with amanda.apply(*mask_and_double(pure)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        gradients = tape.gradient(y, [x, w])
    assert_close([y, *gradients], expected)


@programs
@host_and_pure
def test_a_tape_inside_the_function(program, pure):
    w = tf.Variable(W)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = program(x, w, tf.matmul, tf.tanh)
        return [y, *tape.gradient(y, [x, w])]

    with amanda.apply(*mask_and_double(pure)):
        actual = step(tf.constant(X))
    assert_close(actual, eager_reference(program))


@pytest.mark.parametrize(
    "program",
    [straight, loop, branch_taken, branch_not_taken, switch, shared, called],
    ids=lambda program: program.__name__,
)
def test_compiled_by_xla(program):
    w = tf.Variable(W)

    @tf.function(jit_compile=True)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = program(x, w, tf.matmul, tf.tanh)
        return [y, *tape.gradient(y, [x, w])]

    with amanda.apply(*mask_and_double(pure=True)):
        actual = step(tf.constant(X))
    assert_close(actual, eager_reference(program))


@pytest.fixture
def control_flow_v1():
    tf.compat.v1.disable_control_flow_v2()
    yield
    tf.compat.v1.enable_control_flow_v2()


def run_in_session(program, pure):
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, X.shape)
        w = tf.compat.v1.get_variable("w", initializer=W)
        y = tf.autograph.to_graph(program)(x, w, tf.matmul, tf.tanh)
        gradients = tf.gradients(y, [x, w])
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            with amanda.apply(*mask_and_double(pure)):
                return session.run([y, *gradients], {x: X})


@programs
@host_and_pure
def test_in_a_session(program, pure):
    assert_close(run_in_session(program, pure), eager_reference(program))


@programs
@host_and_pure
def test_in_a_session_with_control_flow_of_version_1(program, pure, control_flow_v1):
    assert_close(run_in_session(program, pure), eager_reference(program))


def test_a_pure_routine_with_a_variable_in_a_loop_of_version_1(control_flow_v1):
    factor = tf.Variable(2.0)
    tool = amanda.Tool()
    tool.add_inst_for_op(
        lambda ctx: ctx.insert_after_op(lambda t: t * factor, pure=True), ops=["Tanh"]
    )
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        y = while_loop(tf.constant(X), tf.constant(W), tf.matmul, tf.tanh)
        with amanda.apply(tool):
            actual = session.run(y)
    expected = X
    for _ in range(3):
        expected = 2 * np.tanh(expected @ W)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "program",
    # of ``loop`` and ``branch_taken`` the graphs are like those of ``while_loop`` and ``switch``
    [program for program in PROGRAMS if program not in (loop, branch_taken)],
    ids=lambda program: program.__name__,
)
def test_the_gradient_of_the_gradient(program):
    w = tf.Variable(W)
    function = tf.function(lambda x: program(x, w, tf.matmul, tf.tanh))
    # In a loop in a loop TensorFlow builds five times as much, for gradients that nobody takes.
    watching = program not in (nested_loop, branch_in_loop)

    def second(function, x):
        with tf.GradientTape(watch_accessed_variables=watching) as outer:
            outer.watch(x)
            with tf.GradientTape(watch_accessed_variables=watching) as inner:
                inner.watch(x)
                y = function(x)
            dx = inner.gradient(y, x)
        return outer.gradient(dx, x)

    x = tf.constant(X)
    plain = second(function, x)
    with amanda.apply(amanda.Tool(), _looking()):
        assert_close([second(function, x)], [plain])
    assert np.isfinite(plain).all()


def _looking():
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: ctx.insert_before_op(lambda *tensors: None))
    return tool


WITHOUT_TENSORS = [
    ("Tanh", "insert_before_op", {"inputs": []}, [3, 3]),
    ("Less", "insert_before_op", {"inputs": []}, [4, 4]),
    ("Tanh", "insert_on_grad_outputs", {"outputs": []}, [3, 3]),
    ("Sigmoid", "insert_before_op", {"inputs": []}, [1, 0]),
    ("Sigmoid", "insert_after_op", {"outputs": []}, [1, 0]),
    ("Sigmoid", "insert_on_grad_inputs", {"inputs": []}, [1, 0]),
]


@pytest.fixture(scope="module")
def loop_and_branch():
    """Runs a loop and a branch of version 1 with their gradients, for a number."""
    tf.compat.v1.disable_control_flow_v2()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [1])
        looped = tf.while_loop(lambda i, x: i < 3, lambda i, y: (i + 1, tf.tanh(y) + x), [0, x])[1]
        taken = tf.cond(x[0] > 0.0, lambda: tf.sigmoid(x), lambda: x)
        fetches = [looped, taken, *tf.gradients([looped, taken], x)]
        tf.compat.v1.enable_control_flow_v2()
        yield lambda number: session.run(fetches, {x: [number]})


@pytest.mark.parametrize(("op", "insertion", "options", "expected"), WITHOUT_TENSORS)
def test_in_version_1_a_routine_without_tensors_runs_as_often_as_its_operator(
    loop_and_branch, op, insertion, options, expected
):
    ran = []
    for number in (1.0, -1.0):
        plain, before = loop_and_branch(number), len(ran)
        tool = Insert(insertion, op, lambda: ran.append(op), **options)
        assert_close(under(tool, lambda number=number: loop_and_branch(number)), plain)
        expected_now, *expected = expected
        assert len(ran) - before == expected_now


def test_in_a_loop_of_version_1_an_operator_is_replaced_of_which_no_gradient_reads(
    loop_and_branch,
):
    tool = replace("AddV2", lambda original, *xs: original(*xs), original=True, pure=True)
    assert_close(under(tool, lambda: loop_and_branch(1.0)), loop_and_branch(1.0))
