"""Python functions that a graph calls run in threads without tools: what runs there is said."""

import warnings

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Count

X = tf.ones([2])
INNER = tf.function(lambda x: tf.sin(x) * 2.0)


def seen_and_said(python, kind, seen_type):
    run = tf.function(lambda x: tf.tanh(kind(python, [x], tf.float32)))
    count = Count(seen_type)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with amanda.apply(count):
            run(X)
    return sum(count.counts.values()), [
        str(w.message) for w in caught if w.category is amanda.AmandaWarning
    ]


@pytest.mark.parametrize(
    ("python", "kind", "seen_type"),
    [
        (tf.exp, tf.py_function, "Exp"),
        (INNER, tf.py_function, "Sin"),
        (lambda x: INNER(tf.constant(x)).numpy(), tf.numpy_function, "Sin"),
    ],
    ids=["eager", "function", "numpy_function"],
)
def test_operators_in_a_python_function_are_seen_or_said_not_to_be(python, kind, seen_type):
    count, said = seen_and_said(python, kind, seen_type)
    assert count or any(f"nothing of {seen_type} " in each for each in said)


def test_nothing_is_said_of_one_that_runs_no_operator_of_interest():
    assert seen_and_said(np.cos, tf.numpy_function, "Sin") == (0, [])
    assert seen_and_said(INNER, tf.py_function, "Tanh") == (1, [])
