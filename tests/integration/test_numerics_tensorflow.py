"""Tools about numerics on TensorFlow: functions, loops of both versions, and sessions."""

import linecache

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda_tools import Kernels, NanWatch, compare


def watched(run, **options):
    tool = NanWatch(**options)
    with amanda.apply(tool):
        run()
    return tool


def line_of(row):
    file, _, number = row.source.rpartition(":")
    return linecache.getline(file, int(number)).strip()


@tf.function
def logs(x):
    for _ in tf.range(6):
        x = tf.math.log(x)
    return x


@tf.function
def slope(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.math.pow(x, 0.5) + x)
    return tape.gradient(y, x)


@tf.function
def masked(x):
    some = tf.linalg.band_part(tf.ones((4, 4)), -1, 0) > 0
    return tf.nn.softmax(tf.where(some, x, -np.inf))


class TestNanWatch:
    def test_names_the_line_in_a_loop(self):
        (row,) = watched(lambda: logs(tf.fill((3,), 20.0))).rows()
        assert (row.type, row.made, row.of, row.iteration) == ("Log", "nan", "finite", 4)
        assert line_of(row) == "x = tf.math.log(x)"

    def test_stops_in_a_loop(self):
        with pytest.raises(amanda.RoutineError, match="makes 3 NaN of finite inputs") as raised:
            watched(lambda: logs(tf.fill((3,), 20.0)), stop=True)
        assert isinstance(raised.value.__cause__, FloatingPointError)

    def test_names_a_backward_operator(self):
        (row, *_) = watched(lambda: slope(tf.zeros(3))).rows()
        assert (row.direction, row.operator, row.made) == ("backward", "Pow", "inf")
        assert line_of(row) == "y = tf.reduce_sum(tf.math.pow(x, 0.5) + x)"

    def test_takes_a_mask_of_infinities_for_no_fault(self):
        assert watched(lambda: masked(tf.ones((2, 4, 4)))).rows() == []

    def test_names_the_operator_in_a_session(self):
        graph = tf.Graph()
        with graph.as_default():
            x = tf.compat.v1.placeholder(tf.float32, (3,))
            w = tf.compat.v1.get_variable("w", initializer=np.zeros(3, np.float32))
            quotient = x / w
            last = tf.nn.relu(quotient)
            start = tf.compat.v1.global_variables_initializer()
        with tf.compat.v1.Session(graph=graph) as session:
            session.run(start)
            (row,) = watched(lambda: session.run(last, {x: [1, 2, 3]})).rows()
        assert (row.type, row.made, row.elements) == ("RealDiv", "inf", 3)
        assert line_of(row) == "quotient = x / w"
        assert row.inputs == ["x float32[3] 1 to 3", "y float32[3] 0 to 0"]


class TestCompare:
    def test_names_the_line_of_a_function_that_differs(self):
        factor = tf.Variable(1.0)

        @tf.function
        def function(x):
            x = tf.tanh(x)
            for _ in tf.range(2):
                x = x * factor  # what differs
            return tf.reduce_sum(x)

        def run(value):
            factor.assign(value)
            return function(tf.ones((2, 3)))

        first = compare(lambda: run(1.0), lambda: run(1.5)).first()
        assert (first.type, first.iteration) == ("Mul", 0)
        assert line_of(first) == "x = x * factor  # what differs"
        assert first.relative == pytest.approx(0.5)

    def test_of_two_types_in_a_session_takes_rounding_for_no_difference(self):
        def session(dtype, weight):
            graph = tf.Graph()
            with graph.as_default():
                x = tf.constant([[1, 2, 3]], dtype)
                hidden = tf.nn.relu(x @ tf.constant(np.full((3, 4), 0.1), dtype))
                y = hidden @ tf.constant(weight, dtype)  # the second
            run = tf.compat.v1.Session(graph=graph)
            return lambda: run.run(y)

        weight = np.full((4, 2), 0.3)
        same = compare(session(tf.float32, weight), session(tf.float16, weight))
        assert (same.first(), same.totals()["compared"]) == (None, 4)
        other = compare(session(tf.float32, weight), session(tf.float16, weight + 0.1))
        assert other.first().type == "MatMul"
        assert line_of(other.first()).endswith("# the second")


class TestKernels:
    def test_are_joined_to_operators_in_loops_and_functions(self):
        @tf.function
        def inner(x):
            return tf.nn.relu(x @ x)

        @tf.function
        def outer(x):
            for _ in tf.range(3):
                x = tf.tanh(x)
            return tf.reduce_sum(inner(x))

        tool = Kernels()
        with amanda.apply(tool):
            for _ in range(2):
                outer(tf.ones((8, 8)))
        launches = {row.type: row.launches for row in tool.rows()}
        assert launches["Tanh"] == 6  # in each turn of each call
        assert launches["MatMul"] == launches["Sum"] == 2
        assert all(row.time > 0 and row.device == "cpu" for row in tool.rows() if row.time)

    def test_of_a_session_and_its_gradients(self):
        graph = tf.Graph()
        with graph.as_default():
            x = tf.compat.v1.placeholder(tf.float32, (4, 4))
            y = tf.reduce_sum(tf.linalg.matmul(x, x, transpose_b=True))
            grad = tf.gradients(y, x)[0]
        tool = Kernels()
        with tf.compat.v1.Session(graph=graph) as session, amanda.apply(tool):
            session.run([y, grad], {x: np.ones((4, 4))})
        products = [row for row in tool.rows() if row.type == "MatMul"]
        assert {row.direction for row in products} == {"forward", "backward"}
        (operator,) = {row.operator for row in products}
        assert operator.startswith("MatMul")
