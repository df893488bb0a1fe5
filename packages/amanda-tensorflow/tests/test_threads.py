"""Threads that share graphs and functions, each under tools of its own."""

import sys
import threading

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Count, replace, scale, under

THREADS = 4


@pytest.fixture(autouse=True)
def switching_often():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def at_once(work):
    """What several threads return that start at once."""
    barrier, found, failed = threading.Barrier(THREADS), {}, []

    def run(number):
        try:
            barrier.wait()
            found[number] = work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    return [found[number] for number in range(THREADS)]


def chain(x):
    for _ in range(20):
        x = tf.sin(x) + 1.0
    return x


@pytest.mark.parametrize("trial", range(5))
def test_a_graph_that_all_meet_first(trial):
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2])
        y = chain(x)
    session = tf.compat.v1.Session(graph=graph)

    def work(number):
        count = Count("Sin")
        with amanda.apply(count):
            session.run(y, {x: [1.0, 2.0]})
        return count.counts

    for counts in at_once(work):
        assert list(counts.values()) == [1] * 20
        assert len(counts) == 20


@pytest.mark.parametrize("trial", range(5))
def test_a_function_that_all_meet_first_has_one_id_for_each_operator(trial):
    function = tf.function(chain).get_concrete_function(tf.TensorSpec([2]))

    def work(number):
        count = Count("Sin")
        with amanda.apply(count):
            function(tf.ones([2]))
        return count.counts

    first, *others = at_once(work)
    assert list(first.values()) == [1] * 20
    assert others == [first] * (THREADS - 1)


@pytest.mark.parametrize("pure", [True, False])
def test_tools_that_change_something_change_it_for_their_own_thread(pure):
    function = tf.function(lambda x: tf.sin(x)).get_concrete_function(tf.TensorSpec([]))

    def work(number):
        with amanda.apply(scale("Sin", number + 1.0, pure=pure)):
            return float(function(tf.constant(1.0)))

    np.testing.assert_allclose(at_once(work), np.sin(1.0) * np.arange(1, THREADS + 1), rtol=1e-6)


def test_gradients_of_one_function_in_several_threads():
    w = tf.Variable(3.0)
    function = tf.function(lambda x: tf.multiply(x, w))

    def work(number):
        tool = amanda.Tool()
        tool.add_inst_for_op(
            lambda ctx: ctx.insert_before_op(lambda w: w * number, inputs=[1]), ops=["Mul"]
        )
        x = tf.constant(2.0)
        with amanda.apply(tool), tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return [float(y), float(tape.gradient(y, x))]

    assert at_once(work) == [[6.0 * n, 3.0 * n] for n in range(THREADS)]


def test_an_operator_runs_in_its_replacement_though_all_of_tensorflows_threads_are_held():
    held = threading.Barrier(THREADS)  # of as many as there are, see conftest.py

    def replacement(original, x):
        held.wait(timeout=30)
        return original(x)

    function = tf.function(tf.sin, input_signature=[tf.TensorSpec([])])
    tools = [replace("Sin", replacement, original=True) for _ in range(THREADS)]

    def work(number):
        return under(tools[number], lambda: function(tf.constant(float(number))).numpy())

    np.testing.assert_allclose(at_once(work), np.sin(range(THREADS)), 1e-6)
