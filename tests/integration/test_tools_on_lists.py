"""The shipped tools on programs whose operators pass on lists, datasets and optionals.

These have no value in Python: a routine is given None for them.
"""

import contextlib

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda_tools import Flops, Profile, Trace, read_trace

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)
WEIGHT = np.array([[1, -1], [2, 1]], np.float32)


@tf.function
def mapped(rows):
    return tf.map_fn(lambda row: tf.linalg.matvec(WEIGHT, row), rows)


@tf.function
def scanned(rows):
    return tf.scan(lambda total, row: tf.linalg.matvec(WEIGHT, total) + row, rows)


@tf.function
def over_a_dataset(rows):
    total = tf.zeros([2])
    for row in tf.data.Dataset.from_tensor_slices(rows):
        total += tf.linalg.matvec(WEIGHT, row)
    return total


@tf.function
def written_to_an_array(rows):
    array = tf.TensorArray(tf.float32, 3)
    for index in range(3):
        array = array.write(index, tf.linalg.matvec(WEIGHT, rows[index]))
    return array.stack()


@tf.function
def hessian(rows):
    with tf.GradientTape() as outer:
        outer.watch(rows)
        with tf.GradientTape() as inner:
            inner.watch(rows)
            loss = tf.reduce_sum(tf.matmul(rows, WEIGHT) ** 3)
        gradient = inner.gradient(loss, rows)
    return outer.jacobian(gradient, rows)


@tf.function
def gradient_of_a_loop(rows):
    with tf.GradientTape() as tape:
        tape.watch(rows)
        loss = tf.reduce_sum(tf.map_fn(lambda row: tf.linalg.matvec(WEIGHT, row) ** 2, rows))
    return tape.gradient(loss, rows)


@tf.function
def ragged(rows):
    pieces = tf.RaggedTensor.from_row_lengths(rows, [1, 2])
    return tf.map_fn(lambda piece: tf.reduce_sum(tf.matmul(piece, WEIGHT)), pieces, tf.float32)


PROGRAMS = [
    mapped,
    scanned,
    over_a_dataset,
    written_to_an_array,
    hessian,
    gradient_of_a_loop,
    ragged,
]
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)


def run(program, tool=None):
    with contextlib.nullcontext() if tool is None else amanda.apply(tool):
        return program(tf.constant(ROWS)).numpy()


@each_program
@pytest.mark.parametrize("tool", [Flops, Profile, Trace])
def test_a_tool_that_looks_changes_nothing(program, tool, tmp_path):
    tool = tool(out=tmp_path / "trace.jsonl") if tool is Trace else tool()
    np.testing.assert_array_equal(run(program, tool), run(program))
    assert tool.report()


@pytest.mark.parametrize(
    ("program", "products"),
    [(mapped, 3), (scanned, 2), (written_to_an_array, 3)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_flops_are_those_of_the_iterations_that_ran(program, products):
    flops = Flops()
    run(program, flops)
    assert flops.total().forward == products * 2 * 2 * 2


def test_bytes_are_those_of_what_can_be_seen():
    flops = Flops()
    run(mapped, flops)
    # it takes a list, an index and the shape of an element, and gives a row of two numbers
    (read,) = [row for row in flops.rows() if row.place.type == "TensorListGetItem"]
    assert read.bytes == 3 * (4 + 4 + 2 * 4)


def test_a_list_has_no_shape_in_a_trace(tmp_path):
    run(mapped, Trace(out=tmp_path / "trace.jsonl"))
    rows = [r for r in read_trace(tmp_path / "trace.jsonl") if r["type"] == "TensorListGetItem"]
    assert [row["input_shapes"] for row in rows] == [[None, [], [1]]] * 3
    assert [row["output_shapes"] for row in rows] == [[[2]]] * 3
