"""Scopes that host routines open."""

import time
import traceback

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.driving import Action, Operator, Point
from amanda.testing.probes import before
from amanda_tensorflow.routines import host_threads
from tensorflow.python.eager.executor import Executor


def opening(run):
    def opens(*_):
        with amanda.apply(amanda.Tool()):
            run()

    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: ctx.insert_before_op(opens), ops=["Tanh"])
    return tool


def test_a_scope_that_would_wait_forever_for_a_thread_is_refused(monkeypatch):
    monkeypatch.setattr(host_threads, "_threads", lambda: 1)
    function = tf.function(lambda x: tf.tanh(x))
    ran = []
    with (
        amanda.apply(opening(lambda: ran.append(True))),
        pytest.raises(amanda.RoutineError, match="set_inter_op_parallelism_threads") as raised,
    ):
        function(tf.constant([1.0]))
    assert isinstance(raised.value.__cause__, amanda.UnsupportedError)
    assert ran == []
    monkeypatch.undo()
    with amanda.apply(opening(lambda: ran.append(True))):
        function(tf.constant([1.0]))
    assert ran == [True]


def test_after_a_scope_in_a_routine_of_another_framework_operators_are_seen_as_before():
    ran = []
    tool = amanda.Tool()
    tool.add_inst_for_op(
        lambda ctx: ctx.insert_before_op(lambda *_: ran.append(ctx.op.type)), ops=["Tanh"]
    )
    function = tf.function(lambda x: tf.tanh(x))

    def opens():
        with amanda.apply(amanda.Tool()):
            function(tf.constant([1.0]))

    elsewhere = Operator(id="add", type="add", name="add", scope="", backend="another")
    with amanda.apply(tool):
        Action(Point.BEFORE_OP, opens, tool).call([], elsewhere)
        assert ran == []
        function(tf.constant([1.0]))
    assert ran == ["Tanh"]


@pytest.fixture
def asynchronous():
    tf.config.experimental.set_synchronous_execution(False)
    yield
    tf.config.experimental.set_synchronous_execution(True)


def test_what_runs_asynchronously_has_run_when_its_scope_is_left(asynchronous):
    run, ran = tf.function(lambda x: tf.sin(x) * 2.0), []

    def late(x) -> None:
        time.sleep(0.05)
        ran.append(x)

    with amanda.apply(before("Sin", late)):
        run(tf.ones([2]))
    assert len(ran) == 1


def test_the_error_of_a_routine_that_runs_asynchronously_leaves_the_call_alone(asynchronous):
    run = tf.function(lambda x: tf.sin(x) * 2.0)

    def fail(x) -> None:
        raise ValueError("odd")

    scope = amanda.apply(before("Sin", fail))
    with pytest.raises(amanda.RoutineError, match="odd") as raised, scope:
        run(tf.ones([2]))
    np.testing.assert_allclose(run(tf.ones([2])), 2 * np.sin([1, 1]), rtol=1e-6)
    # What is freed with the error would wait for an executor that may be gone.
    assert not any(isinstance(value, Executor) for value in locals_along(raised.value))


def locals_along(error):
    """List the values of all variables that the tracebacks of an error and its causes keep."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        yield from frame.f_locals.values()
    for cause in (error.__cause__, error.__context__):
        if cause is not None:
            yield from locals_along(cause)
