"""Portable tools on TensorFlow, held to what plain TensorFlow computes."""

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda import Tool
from amanda_contextmap import MappingTool
from portable_tools import Flops, Prune

X = np.random.default_rng(1).standard_normal((2, 6, 6, 3)).astype(np.float32)


class Network(tf.Module):
    """A convolution, a depthwise one and a linear layer; weights may be masked by hand."""

    def __init__(self, mask=lambda kernel: kernel):
        super().__init__()
        rng = np.random.default_rng(0)
        kernels = {"conv": (3, 3, 3, 8), "depthwise": (3, 3, 8, 1), "linear": (8 * 4 * 4, 5)}
        for name, shape in kernels.items():
            value = mask(rng.standard_normal(shape).astype(np.float32))
            setattr(self, name, tf.Variable(value, name=name))

    @tf.function
    def __call__(self, x):
        with tf.name_scope("network"):
            x = tf.nn.relu(tf.nn.conv2d(x, self.conv, 1, "SAME"))
            x = tf.nn.depthwise_conv2d(x, self.depthwise, (1, 1, 1, 1), "VALID")
            return tf.reshape(x, (-1, 8 * 4 * 4)) @ self.linear

    def gradients(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self(x) ** 2)
        variables = [self.conv, self.depthwise, self.linear]
        return [gradient.numpy() for gradient in tape.gradient(loss, variables)]


def halved(kernel):
    """The smaller half of each output channel is zero; a depthwise one has its channels third."""
    depthwise = kernel.shape[-1] == 1
    rows = np.abs(kernel[..., 0] if depthwise else kernel)
    rows = rows.reshape(-1, rows.shape[-1])
    mask = (rows >= np.median(rows, axis=0)).reshape(
        kernel.shape[:-1] if depthwise else kernel.shape
    )
    return kernel * (mask[..., None] if depthwise else mask)


def watching(analyze, ops=None, **options):
    tool = Tool(namespace="onnx")
    tool.add_inst_for_op(analyze, ops=ops, **options)
    return tool


class TestWeights:
    def test_pruned_by_role(self):
        with amanda.apply(Prune()):
            found = Network()(tf.constant(X))
        np.testing.assert_allclose(found, Network(halved)(tf.constant(X)), rtol=1e-4, atol=1e-4)

    def test_their_gradients_are_those_of_masked_weights_and_are_not_masked_themselves(self):
        with amanda.apply(Prune()):
            found = Network().gradients(tf.constant(X))
        for one, other in zip(found, Network(halved).gradients(tf.constant(X)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-2)

    def test_routines_are_given_the_layout_of_onnx(self):
        shapes = {}

        def look(ctx):
            def before(x, w):
                shapes[ctx.op.name.rpartition("/")[2]] = tuple(x.shape), tuple(w.shape)

            assert ctx.weight_index == 1
            ctx.insert_before_op(before)

        with amanda.apply(watching(look, ["Conv", "Gemm"])):
            Network()(tf.constant(X))
        assert sorted(shapes.values()) == [
            ((2, 3, 6, 6), (8, 3, 3, 3)),
            ((2, 8, 6, 6), (8, 1, 3, 3)),
            ((2, 128), (5, 128)),
        ]

    def test_a_pure_routine_in_that_layout_is_compiled(self):
        def look(ctx):
            scale = np.arange(1, 9, dtype=np.float32).reshape(8, 1, 1, 1)
            ctx.insert_before_op(lambda w: w * scale, inputs=["W"], pure=True)

        scaled = Network()
        scaled.conv.assign(scaled.conv * np.arange(1, 9, dtype=np.float32))
        scaled.depthwise.assign(scaled.depthwise * np.arange(1, 9, dtype=np.float32)[:, None])
        with amanda.apply(watching(look, ["Conv"])):
            found = Network()(tf.constant(X))
        np.testing.assert_allclose(found, scaled(tf.constant(X)), rtol=1e-4, atol=1e-2)

    def test_in_a_session(self):
        with tf.Graph().as_default():
            x = tf.compat.v1.placeholder(tf.float32, (None, 4))
            weight = tf.compat.v1.get_variable("weight", initializer=np.eye(4, 5, dtype=np.float32))
            y = tf.matmul(x, weight)
            shapes = []

            def look(ctx):
                assert ctx.weight_index == 1
                ctx.insert_before_op(
                    lambda w: shapes.append(tuple(w.shape)) or 2 * w, inputs=[ctx.weight_index]
                )

            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                with amanda.apply(watching(look, ["Gemm"])):
                    found = session.run(y, {x: np.ones((1, 4))})
        np.testing.assert_array_equal(found, [[2, 2, 2, 2, 0]])
        assert shapes == [(5, 4)]


class TestGradients:
    def test_by_role(self):
        seen = {}
        tool = Tool(namespace="onnx")

        def analyze(ctx):
            role = {"Conv": "W", "Gemm": "B"}[ctx.op.type]
            id = ctx.op.id
            ctx.insert_on_grad_inputs(lambda g: seen.update({id: g.numpy()}), inputs=[role])

        tool.add_inst_for_gradient(analyze, ops=["Conv", "Gemm"])
        with amanda.apply(tool):
            conv, depthwise, linear = Network().gradients(tf.constant(X))
        expected = [conv.transpose(3, 2, 0, 1), depthwise.transpose(2, 3, 0, 1), linear.T]
        for gradient in expected:
            assert any(
                g.shape == gradient.shape and np.allclose(g, gradient) for g in seen.values()
            )
        assert len(seen) == 3

    def test_a_changed_one_is_turned_back(self):
        def analyze(ctx):
            ctx.insert_on_grad_inputs(lambda g: 2 * g, inputs=["B"])

        tool = Tool(namespace="onnx")
        tool.add_inst_for_gradient(analyze, ops=["Gemm"])
        with amanda.apply(tool):
            conv, _, linear = Network().gradients(tf.constant(X))
        plain = Network().gradients(tf.constant(X))
        np.testing.assert_allclose(linear, 2 * plain[2], rtol=1e-5)
        np.testing.assert_allclose(conv, plain[0], rtol=1e-5)

    def test_backward_operators_are_named_after_the_forward_ones(self):
        found = []

        def analyze(ctx):
            found.append((ctx.op.type, ctx.backward_op.type, list(ctx.input_names)))

        with amanda.apply(watching(analyze, ["ConvGrad", "ReluGrad"], backward=True)):
            Network().gradients(tf.constant(X))
        assert sorted(found) == [
            ("Conv", "ConvGrad", ["X", "W"]),
            ("Conv", "ConvGrad", ["X", "W"]),
            ("Relu", "ReluGrad", ["X"]),
        ]

    def test_in_a_session(self):
        with tf.Graph().as_default():
            x = tf.compat.v1.placeholder(tf.float32, (None, 6, 6, 3))
            initial = np.random.default_rng(0).standard_normal((3, 3, 3, 8)).astype(np.float32)
            kernel = tf.compat.v1.get_variable("kernel", initializer=initial)
            y = tf.nn.conv2d(x, kernel, 2, "SAME")
            (gradient,) = tf.gradients(tf.reduce_sum(y**2), kernel)
            shapes = []

            def analyze(ctx):
                assert ctx.backward_op.type == "ConvGrad"
                ctx.insert_after_backward_op(
                    lambda x, w: shapes.append(tuple(w.shape)) or (None, 3 * w)
                )

            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                plain = session.run(gradient, {x: X})
                with amanda.apply(watching(analyze, ["Conv"], backward=True)):
                    found = session.run(gradient, {x: X})
        np.testing.assert_allclose(found, 3 * plain, rtol=1e-5)
        assert shapes == [(8, 3, 3, 3)]


class TestVocabulary:
    def test_flops_by_hand(self):
        tool = Flops()
        with amanda.apply(tool):
            Network()(tf.constant(X))
        conv = 2 * (2 * 8 * 6 * 6) * (3 * 3 * 3)
        depthwise = 2 * (2 * 8 * 4 * 4) * (3 * 3)
        assert tool.total == {"Conv": conv + depthwise, "Gemm": 2 * (2 * 5) * 128}

    def test_a_tool_after_a_portable_one_is_shown_the_types_of_tensorflow(self):
        @tf.function
        def products(x):
            return tf.matmul(x, x)

        for namespace, shown in ((None, "BatchMatMulV2"), ("onnx", "MatMul")) * 2:
            types = []
            tool = Tool(namespace)
            tool.add_inst_for_op(lambda ctx, types=types: types.append(ctx.op.type))
            with amanda.apply(tool):
                products(tf.ones((2, 3, 3)))
            assert shown in types
            assert len([type for type in types if "MatMul" in type]) == 1

    def test_an_operator_that_onnx_lacks_goes_by_its_own_name(self):
        found = []
        tool = watching(lambda ctx: found.append(list(ctx.input_names)), ["tensorflow::Erfinv"])
        with amanda.apply(tool):
            tf.function(lambda x: tf.raw_ops.Erfinv(x=x))(tf.zeros(3))
        assert found == [["x"]]


def test_a_mapping_tool_writes_before_the_tool_reads():
    """The published way."""

    def tensorflow_type(ctx):
        ctx["type"] = {"Conv2D": "Conv", "MatMul": "Gemm"}.get(ctx.op.type)

    found = []
    tool = Tool()
    tool.depends_on(MappingTool([["pytorch", None], ["tensorflow", tensorflow_type]]))
    tool.add_inst_for_op(lambda ctx: found.append(ctx["type"]), ops=["Conv2D", "Relu", "MatMul"])
    with amanda.apply(tool):
        Network()(tf.constant(X))
    assert found == ["Conv", None, "Gemm"]


def test_a_composite_whose_gradient_nobody_noted_is_said_to_be_unseen(tmp_path):
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([1, 2, 2, 1])])
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            shape = [tf.shape(x)[0], 4, 4, 1]  # known when it runs: the shape is a part of it
            y = tf.nn.conv2d_transpose(x, tf.ones([2, 2, 1, 1]), shape, 2, "SAME")
        return tape.gradient(y, x)

    module.step = step
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    tool, seen = amanda.Tool(namespace="onnx"), []
    tool.add_inst_for_op(lambda ctx: seen.append(ctx.op.type), ops=["ConvTranspose"])
    tool.add_inst_for_gradient(lambda ctx: None, ops=["ConvTranspose"])
    unseen = pytest.warns(amanda.AmandaWarning, match="do not see the gradients as a whole")
    with unseen, amanda.apply(tool):
        assert loaded.step(tf.ones([1, 2, 2, 1])).numpy().tolist() == [[[[4.0]] * 2] * 2]
    assert seen == ["ConvTranspose"]
