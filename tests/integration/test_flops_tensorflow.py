"""FLOPs on TensorFlow graphs, by hand and against the same model in PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import amanda
import numpy as np
import pytest
import tensorflow as tf
import torch
from amanda_tools.flops import Flops
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda_tools.flops import TotalFlops


def total(run: Callable[..., object], *args: object) -> TotalFlops:
    flops = Flops()
    with amanda.apply(flops):
        run(*args)
    return flops.total()


def with_gradients(run: Callable[..., tf.Tensor], *shapes: tuple[int, ...]) -> TotalFlops:
    """What is counted for an operator on variables and for its gradients of all of them."""
    variables = [tf.Variable(tf.ones(shape)) for shape in shapes]

    @tf.function(jit_compile=True)  # gradients in groups have no other kernel everywhere
    def step() -> object:
        with tf.GradientTape() as tape:
            output = run(*variables)
        return tape.gradient(output, variables)

    return total(step)


BY_HAND = {
    "MatMul": (tf.matmul, [(2, 3), (3, 5)], 60, 120),
    "MatMul of a transpose": (
        lambda a, b: tf.matmul(a, b, transpose_a=True), [(3, 2), (3, 5)], 60, 120
    ),
    "BatchMatMul": (tf.matmul, [(4, 2, 3), (4, 3, 5)], 240, 480),
    "BatchMatMul that broadcasts": (tf.matmul, [(4, 1, 2, 3), (6, 3, 5)], 1440, 2880),
    "BatchMatMul of an adjoint": (
        lambda a, b: tf.matmul(a, b, adjoint_a=True), [(4, 3, 2), (4, 3, 5)], 240, 480
    ),
    "Einsum": (lambda a, b: tf.einsum("bij,jk->bik", a, b), [(4, 2, 3), (3, 5)], 240, 480),
    "Einsum with an ellipsis": (
        lambda a, b: tf.einsum("...ij,...jk->...ik", a, b), [(4, 2, 3), (4, 3, 5)], 240, 480
    ),
    "Einsum that adds up one operand first": (
        lambda a, b: tf.einsum("ij,jk->k", a, b), [(2, 3), (3, 5)], 30, 60
    ),
    "Einsum without a common sum": (
        lambda a, b: tf.einsum("i,j->ij", a, b), [(2,), (3,)], 0, 0
    ),
    "Conv2D": (
        lambda x, w: tf.nn.conv2d(x, w, 1, "VALID"), [(2, 9, 8, 3), (3, 2, 3, 4)], 14112, 28224
    ),
    "Conv2D in groups": (
        lambda x, w: tf.nn.conv2d(x, w, 1, "VALID"), [(1, 3, 3, 4), (3, 3, 2, 6)], 216, 432
    ),
    "Conv1D": (
        lambda x, w: tf.nn.conv1d(x, w, 1, "VALID"), [(2, 9, 3), (5, 3, 4)], 1200, 2400
    ),
    "Conv3D": (
        lambda x, w: tf.nn.conv3d(x, w, [1] * 5, "VALID"),
        [(1, 4, 4, 4, 2), (3, 3, 3, 2, 3)],
        2592,
        5184,
    ),
    "DepthwiseConv2D": (
        lambda x, w: tf.nn.depthwise_conv2d(x, w, [1] * 4, "VALID"),
        [(1, 3, 3, 4), (3, 3, 4, 1)],
        72,
        2 * 72,
    ),
    "transposed Conv2D": (
        lambda x, w: tf.nn.conv2d_transpose(x, w, (1, 10, 10, 4), 2, "VALID"),
        [(1, 5, 5, 3), (2, 2, 4, 3)],
        2400,
        4800,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_flops_are_those_by_hand(name: str) -> None:
    run, shapes, forward, backward = BY_HAND[name]
    found = with_gradients(run, *shapes)
    assert (found.forward, found.backward, found.macs * 2) == (forward, backward, forward)


def test_gradients_are_counted_only_where_they_flow() -> None:
    weight = tf.Variable(tf.ones((3, 5)))

    @tf.function
    def step(x: tf.Tensor) -> object:
        with tf.GradientTape() as tape:
            output = tf.matmul(x, weight)
        return tape.gradient(output, weight)

    assert total(step, tf.ones((2, 3))).backward == 60


def test_every_execution_of_a_loop_counts_with_its_shapes() -> None:
    @tf.function
    def run() -> tf.Tensor:
        x = tf.ones((1, 3))
        for _ in tf.range(4):
            tf.autograph.experimental.set_loop_options(
                shape_invariants=[(x, tf.TensorShape([None, 3]))]
            )
            x = tf.concat([x, tf.matmul(x, tf.ones((3, 3)))], 0)
        return x

    assert total(run).forward == sum(2 * rows * 9 for rows in (1, 2, 4, 8))


def test_what_runs_in_called_functions_is_counted() -> None:
    weight = tf.Variable(tf.ones((3, 3)))

    @tf.function
    def product(x: tf.Tensor) -> tf.Tensor:
        return x @ weight

    found = total(tf.function(lambda x: product(product(x))), tf.ones((2, 3)))
    assert (found.forward, found.params) == (72, 9)


def test_variables_are_counted_once_however_they_are_read() -> None:
    table = tf.Variable(tf.ones((7, 3)))

    @tf.function
    def run() -> tf.Tensor:
        return tf.matmul(tf.nn.embedding_lookup(table, [1, 2]), table, transpose_b=True)

    found = total(run)
    assert (found.forward, found.params) == (2 * 2 * 3 * 7, 21)


def test_bytes_are_those_of_inputs_and_outputs() -> None:
    run = tf.function(lambda a, b: tf.matmul(a, b))
    assert total(run, tf.ones((2, 3), tf.float64), tf.ones((3, 5), tf.float64)).bytes == 8 * 31


def test_operators_without_a_formula_are_listed() -> None:
    run = tf.function(lambda x: tf.nn.softmax(tf.nn.gelu(tf.reshape(x, (3, 2)))))
    uncounted = total(run, tf.ones((2, 3))).uncounted
    assert uncounted["Softmax"] == 1
    assert "Reshape" not in uncounted


def test_a_session_is_counted_with_its_variables_of_both_kinds() -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, (None, 3))
        first = v1.get_variable("first", (3, 4), use_resource=True)
        second = v1.get_variable("second", (4, 2), use_resource=False)
        output = tf.matmul(tf.matmul(x, first), second)
        gradients = tf.gradients(output, [first, second])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            found = total(lambda: session.run([output, gradients], {x: np.ones((2, 3))}))
    assert found.forward == 2 * 2 * (12 + 8)
    assert found.backward == 2 * 2 * (12 + 8 + 8)  # the placeholder's is not asked for
    assert found.params == 20


def test_a_keras_model_costs_what_the_same_model_does_in_pytorch() -> None:
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((10, 10, 3)),
            layers.Conv2D(4, 3),
            layers.ReLU(),
            layers.Conv2D(8, 3, strides=2, groups=2, padding="same"),
            layers.DepthwiseConv2D(3),
            layers.Flatten(),
            layers.Dense(5),
        ]
    )
    model.compile("sgd", "mse")
    images = np.ones((2, 10, 10, 3))
    training = total(model.train_on_batch, images, np.ones((2, 5)))
    inference = total(model.predict_on_batch, images)

    twin = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, stride=2, groups=2, padding=1),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.Flatten(),
        nn.Linear(32, 5),
    )
    same = total(lambda: twin(torch.ones(2, 3, 10, 10)).sum().backward())

    assert (training.forward, training.backward) == (same.forward, same.backward)
    assert (inference.forward, inference.backward) == (same.forward, 0)
    assert inference.params == same.params == model.count_params()


def test_a_gradient_in_a_scope_of_its_own_is_counted_or_said_not_to_be() -> None:
    weight, flops = tf.Variable(tf.ones([4, 2])), Flops()
    run = tf.function(lambda x: tf.matmul(x, weight))
    with amanda.apply(flops), tf.GradientTape() as tape:
        y = run(tf.ones([3, 4]))
    with amanda.apply(flops):
        tape.gradient(y, weight)
    (row,) = flops.rows()
    assert row.forward == 2 * 3 * 4 * 2
    assert row.backward == 2 * 3 * 4 * 2 or row.uncounted_backward == 1
