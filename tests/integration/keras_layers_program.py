"""Keras layers that TensorFlow computes in several operators, under a portable tool that masks.

Run in a process of its own, on the backend that ``KERAS_BACKEND`` names:
``python keras_layers_program.py FILE`` writes what it found there.
"""

import sys

import amanda
import keras
import numpy as np
import portable_tools as tools
from keras import layers

SPACE, SEQUENCE, FLAT = (8, 9, 4), (9, 4), (6,)


def heads():
    return layers.MultiHeadAttention(2, 3)


LAYERS = {
    "gelu": ("Gelu", FLAT, lambda: layers.Activation("gelu")),
    "hard_sigmoid": ("HardSigmoid", FLAT, lambda: layers.Activation("hard_sigmoid")),
    "silu": ("Swish", FLAT, lambda: layers.Activation("silu")),
    "hard_silu": ("HardSwish", FLAT, lambda: layers.Activation("hard_silu")),
    "celu": ("Celu", FLAT, lambda: layers.Activation("celu")),
    "elu": ("Elu", FLAT, lambda: layers.ELU(0.7)),
    "hard_shrink": ("Shrink", FLAT, lambda: layers.Activation("hard_shrink")),
    "soft_shrink": ("Shrink", FLAT, lambda: layers.Activation("soft_shrink")),
    "softmax": ("Softmax", SEQUENCE, lambda: layers.Softmax(axis=1)),
    "layer_norm": ("LayerNormalization", SEQUENCE, layers.LayerNormalization),
    "rms_norm": ("RMSNormalization", SEQUENCE, layers.RMSNormalization),
    "conv1d": ("Conv", SEQUENCE, lambda: layers.Conv1D(6, 3, strides=2)),
    "depthwise1d": ("Conv", SEQUENCE, lambda: layers.DepthwiseConv1D(3, depth_multiplier=2)),
    "dilated1d": ("Conv", SEQUENCE, lambda: layers.Conv1D(6, 3, dilation_rate=2)),
    "transpose1d": ("ConvTranspose", SEQUENCE, lambda: layers.Conv1DTranspose(6, 3, strides=2)),
    "separable1d": ("Conv", SEQUENCE, lambda: layers.SeparableConv1D(6, 3, strides=2)),
    "dilated_separable1d": (
        "Conv",
        SEQUENCE,
        lambda: layers.SeparableConv1D(6, 3, dilation_rate=2, padding="same"),
    ),
    "dilated2d": ("Conv", SPACE, lambda: layers.Conv2D(6, 3, dilation_rate=2)),
    "grouped": ("Conv", SPACE, lambda: layers.Conv2D(6, 3, groups=2)),
    "batch_norm": ("BatchNormalization", SPACE, layers.BatchNormalization),
    "batch_norm_axis1": (
        "BatchNormalization",
        SPACE,
        lambda: layers.BatchNormalization(axis=1, scale=False),
    ),
    "softsign": ("Softsign", FLAT, lambda: layers.Activation("softsign")),
    "attention": ("Attention", SEQUENCE, lambda: lambda x: heads()(x, x)),
    "causal": ("Attention", SEQUENCE, lambda: lambda x: heads()(x, x, use_causal_mask=True)),
    "scores": (
        "Softmax",
        SEQUENCE,
        lambda: lambda x: heads()(x, x, return_attention_scores=True)[0],
    ),
    "squareplus": ("Add", FLAT, lambda: layers.Activation("squareplus")),
    "sparse_plus": ("Pow", FLAT, lambda: layers.Activation("sparse_plus")),
    "relu": ("Neg", FLAT, lambda: layers.ReLU(2.0, 0.1, 0.2)),
    "max_pool1d": ("MaxPool", SEQUENCE, lambda: layers.MaxPooling1D(3, 2)),
    "avg_pool1d": ("AveragePool", SEQUENCE, lambda: layers.AveragePooling1D(3, 2)),
}


class Mask(amanda.Tool):
    """Zeroes the small elements of what operators of a type take, halves what they give, and notes
    their own gradients and the values of their parameters."""

    def __init__(self, type):
        super().__init__(namespace="onnx")
        self.values, self.gradients = [], {}
        self.add_inst_for_op(self.analyze, ops=[type])
        self.add_inst_for_gradient(self.analyze_gradient, ops=[type])

    def analyze(self, ctx):
        xp = ctx.xp

        def masked(*tensors):
            return [xp.where(xp.abs(t) > 0.3, t, t * 0) for t in tensors]

        ctx["values"] = {i: ctx.value(i) for i in ctx.parameters}
        self.values += ctx["values"].values()
        ctx.insert_before_op(masked)
        ctx.insert_after_op(lambda y: y * 0.5, outputs=[0])

    def analyze_gradient(self, ctx):
        names = list(ctx.input_names)
        for i, value in ctx["values"].items():  # which its gradient knows too
            np.testing.assert_array_equal(ctx.value(i), value)

        def note(*gradients) -> None:
            for name, gradient in zip(names, gradients, strict=True):
                if gradient is not None:
                    self.gradients[f"{name}{tuple(gradient.shape)}"] = tools.array(gradient)

        ctx.insert_on_grad_inputs(note)


if keras.backend.backend() == "torch":
    import torch

    def step(model, x):
        x = torch.tensor(x, requires_grad=True)
        y = model(x)
        (y * y).sum().backward()
        return tools.array(y), tools.array(x.grad)
else:
    import tensorflow as tf

    @tf.function
    def differentiated(model, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x)
            loss = tf.reduce_sum(y * y)
        variables = [v.value for v in model.trainable_variables]
        return y, tape.gradient(loss, [x, *variables])

    def step(model, x):
        y, gradients = differentiated(model, tf.constant(x))
        return tools.array(y), tools.array(gradients[0])


def main(file):
    arrays = {}
    for name, (type, shape, make) in LAYERS.items():
        data = keras.Input(shape)
        model = keras.Model(data, make()(data))
        rng = np.random.default_rng(0)
        for variable in model.variables:
            variable.assign(rng.standard_normal(variable.shape))
        tool = Mask(type)
        with amanda.apply(tool):
            y, gradient = step(model, rng.standard_normal((2, *shape)).astype(np.float32))
        arrays |= {f"{name}/result": y, f"{name}/gradient": gradient}
        arrays |= {f"{name}/gradient/{role}": g for role, g in tool.gradients.items()}
        arrays |= {f"{name}/value/{number}": value for number, value in enumerate(tool.values)}
    np.savez(file, **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
