"""``ctx.numpy`` and ``ctx.activation`` of portable tools: the same on both backends."""

import amanda
import numpy as np
import pytest
import tensorflow as tf
import torch
from amanda.testing.probes import Watch
from amanda_torch import driver

RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.normal(size=(2, 3, 5, 4)).astype(np.float32)
WEIGHT = RANDOM.normal(size=(6, 3, 2, 2)).astype(np.float32)  # (out, in, height, width)


def on_torch():
    """A convolution and a batch normalization, with PyTorch's own layouts."""
    convolution = torch.nn.Conv2d(3, 6, 2, bias=False)
    normalization = torch.nn.BatchNorm2d(6)
    with torch.no_grad():
        convolution.weight.copy_(torch.tensor(WEIGHT))
    normalization(convolution(torch.tensor(IMAGE)))


def on_tensorflow():
    """The same with TensorFlow's."""
    kernel = tf.Variable(WEIGHT.transpose(2, 3, 1, 0))
    scale, offset = tf.Variable(tf.ones(6)), tf.Variable(tf.zeros(6))

    @tf.function
    def run(x):
        x = tf.nn.conv2d(x, kernel, 1, "VALID")
        return tf.compat.v1.nn.fused_batch_norm(x, scale, offset)[0]

    run(tf.constant(IMAGE.transpose(0, 2, 3, 1)))


on_both = pytest.mark.parametrize("run", [on_torch, on_tensorflow])


@on_both
def test_arrays_have_the_layout_that_the_tool_sees(run):
    seen = []

    def analyze(ctx):
        ctx.insert_before_op(lambda *given: seen.extend(map(ctx.numpy, given)), ["X", "W"])

    with amanda.apply(Watch(analyze, "Conv", namespace="onnx")):
        run()
    image, weight = seen
    np.testing.assert_array_equal(image, IMAGE)
    np.testing.assert_array_equal(weight, WEIGHT)


@on_both
def test_the_activation_has_its_place_among_the_roles(run):
    found = {}

    def analyze(ctx):
        found[ctx.op.type] = ctx.input_names[ctx.activation]

    types = ["Conv", "BatchNormalization"]
    with amanda.apply(Watch(analyze, types, namespace="onnx")):
        run()
    assert found == {"Conv": "X", "BatchNormalization": "X"}


def test_a_copy_does_not_keep_the_parameter_that_it_is_known_for():
    tool = amanda.Tool(namespace="onnx")  # which has copies watched
    tool.add_inst_for_op(lambda ctx: None)
    with torch.no_grad():
        weight = torch.nn.Parameter(torch.ones(3))
        with amanda.apply(tool):
            copy = weight.clone()
        assert driver.parameter(copy).source is weight
        del weight
    assert driver.parameter(copy) is None
    assert not driver.is_parameter(copy)
