"""What TensorFlow and Keras compute in several operators, as the one that ONNX has.

Each is held to ONNX's own implementation, and tools insert around it as around any operator.
"""

import functools

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda_contextmap.testing import reference


def numbers(*shape):
    return np.random.standard_normal(shape).astype(np.float32)


def heads(length=5, other=6):
    return [numbers(2, length, 3, 4), numbers(2, other, 3, 4), numbers(2, other, 3, 4)]


def attention(mask=lambda logits: None, far_below=-2.37e38):
    def call(q, k, v):
        logits = tf.einsum("BTNH,BSNH->BNTS", q, k) * 0.7
        chosen = mask(logits)
        if chosen is not None:
            chosen = tf.logical_and(tf.ones_like(logits, tf.bool), chosen)
            logits = tf.where(chosen, logits, far_below)
        return tf.einsum("BNTS,BSNH->BTNH", tf.nn.softmax(logits), v)

    return call


def band(upper):
    def mask(logits):
        shape = tf.shape(logits)
        lower = tf.linalg.band_part(tf.ones((shape[2], shape[3]), tf.bool), -1, upper)
        return lower[None, None, :, :]

    return mask


def normalized(scaled=True, shifted=True, shape=None):
    given = [numbers(4), numbers(4) ** 2 + 0.1, *[numbers(4) for _ in range(scaled + shifted)]]

    def call(x, mean, variance, *others):
        if shape is not None:
            mean, variance = tf.reshape(mean, shape), tf.reshape(variance, shape)
            others = [tf.reshape(other, shape) for other in others]
        scale = others[0] if scaled else None
        offset = others[-1] if shifted else None
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, 0.01)

    return call, given


def over_channels(*sizes, **options):
    call, given = normalized(**options)
    return "BatchNormalization", call, [numbers(*sizes), *given]


X = numbers(3, 4)
# name: type, call, arguments
WHOLES = {
    "gelu": ("Gelu", tf.nn.gelu, [X]),
    "gelu by tanh": ("Gelu", lambda x: tf.nn.gelu(x, approximate=True), [X]),
    "swish": ("Swish", lambda x: x * tf.sigmoid(x), [X]),
    "clip": ("Clip", lambda x: tf.maximum(tf.minimum(x, 0.7), -0.5), [X]),
    "softmax": ("Softmax", lambda x: tf.nn.softmax(x, axis=0), [X]),
    "batch normalization": over_channels(2, 5, 6, 4),
    "batch normalization of rows": over_channels(3, 4),
    "batch normalization without a scale": over_channels(2, 5, 4, scaled=False),
    "batch normalization without an offset": over_channels(2, 5, 4, shifted=False),
    "batch normalization without either": over_channels(2, 5, 4, scaled=False, shifted=False),
    "batch normalization of channels first": over_channels(2, 4, 5, shape=(1, 4, 1)),
    "attention": ("Attention", attention(), heads()),
    "causal attention": ("Attention", attention(band(0)), heads()),
    "causal attention to less": ("Attention", attention(band(0)), heads(6, 3)),
}


class Around(amanda.Tool):
    """Notes a type of operator, and inserts around it."""

    def __init__(self, type, gradient=None, **insertions):
        super().__init__(namespace="onnx")
        self.type = type
        self.types, self.insertions, self.gradient = [], insertions, gradient
        self.add_inst_for_op(self.analyze)
        self.add_inst_for_gradient(self.analyze_gradient, ops=[type])

    def analyze(self, ctx):
        self.types.append(ctx.op.type)
        if ctx.op.type == self.type:
            self.roles, self.attrs = list(ctx.input_names), dict(ctx.attrs)
            ctx.insert_before_op(self.before)
            for name, routine in self.insertions.items():
                getattr(ctx, name)(routine)
            ctx.insert_after_op(self.after)

    def analyze_gradient(self, ctx):
        if self.gradient is not None:
            ctx.insert_on_grad_inputs(self.gradient, inputs=[0])

    def before(self, *inputs) -> None:
        self.inputs = [tensor.numpy() for tensor in inputs]

    def after(self, *outputs) -> None:
        self.outputs = [tensor.numpy() for tensor in outputs]


def step_of(call, arguments, batch=True):
    """A call and its gradients as a graph, one that does not know the size of a batch."""
    specs = [
        tf.TensorSpec([None if batch and a.ndim > 1 else len(a), *a.shape[1:]]) for a in arguments
    ]

    @tf.function(input_signature=specs)
    def step(*arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            result = call(*arguments)
            loss = tf.reduce_sum(result * result)
        return result, tape.gradient(loss, arguments)

    return step


def run(step, arguments, *tools):
    """What a call gives, and its gradients."""
    with amanda.apply(*tools):
        result, gradients = step(*map(tf.constant, arguments))
    return result.numpy(), [gradient.numpy() for gradient in gradients]


class Whole:
    """One of them, as a graph that is traced without tools, and what that gives."""

    def __init__(self, name, batch):
        self.type, self.call, self.arguments = WHOLES[name]
        self.batch = batch
        self.step = self.traced_anew()
        self.plain = run(self.step, self.arguments)

    @functools.cached_property
    def looked_at(self):
        """A tool that looked at the graph and inserted nothing that changes it."""
        tool = Around(self.type)
        self.under(tool)
        return tool

    def traced_anew(self):
        """Another graph, traced where it runs first."""
        return step_of(self.call, self.arguments, self.batch)

    def under(self, tool):
        """What the graph gives under a tool."""
        return run(self.step, self.arguments, tool)


def completed(type, roles, inputs):
    """Inputs with those that ONNX wants and TensorFlow does without."""
    channels = inputs[0].shape[1]
    absent = {"scale": np.ones, "B": np.zeros} if type == "BatchNormalization" else {}
    more = {role: fill(channels, np.float32) for role, fill in absent.items() if role not in roles}
    return [*roles, *more], [*inputs, *more.values()]


@pytest.fixture
def as_written():
    """Graphs run as they are written; TensorFlow would rewrite them by what stands side by side."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


@pytest.fixture(scope="module", params=WHOLES)
def name(request):
    return request.param


@pytest.fixture(scope="module", params=[True, False])
def whole(request, name):
    return Whole(name, batch=request.param)


class TestWholes:
    def test_are_what_onnx_computes(self, whole):
        tool = whole.looked_at
        assert tool.types.count(whole.type) == 1
        roles, inputs = completed(whole.type, tool.roles, tool.inputs)
        (expected,) = reference(whole.type, roles, inputs, tool.attrs)
        np.testing.assert_allclose(tool.outputs[0], expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.usefixtures("as_written")
    def test_are_untouched_by_a_tool_that_looks(self, whole):
        plain = run(whole.step, whole.arguments)
        looked = run(whole.traced_anew(), whole.arguments, Around(whole.type))
        np.testing.assert_array_equal(looked[0], plain[0])
        for found, expected in zip(looked[1], plain[1], strict=True):
            np.testing.assert_array_equal(found, expected)

    def test_take_what_is_put_before_and_give_what_is_put_after(self, whole):
        tool = Around(
            whole.type,
            insert_before_op=lambda x, *others: [x * 0.5, *others],
            insert_after_op=lambda y: y * 3,
        )
        result, gradients = whole.under(tool)
        first, *others = whole.arguments
        plain, slopes = run(whole.step, [first * 0.5, *others])
        np.testing.assert_allclose(result, 3 * plain, rtol=1e-4, atol=1e-5)
        for found, expected in zip(gradients, slopes, strict=True):  # of the square: 3 times
            np.testing.assert_allclose(found, 3 * expected, rtol=1e-3, atol=1e-4)

    def test_are_replaced_and_keep_their_gradient(self, whole):
        plain, slopes = whole.plain
        tool = Around(whole.type, replace_op=lambda *_: tool.given * 2)
        tool.given = tf.constant(whole.looked_at.outputs[0])
        result, gradients = whole.under(tool)
        np.testing.assert_allclose(result, 2 * plain, rtol=1e-4, atol=1e-5)
        for found, expected in zip(gradients, slopes, strict=True):
            np.testing.assert_allclose(found, 2 * expected, rtol=1e-3, atol=1e-4)

    def test_have_the_gradient_of_the_whole(self, whole):
        _, (slope, *others) = whole.plain
        tool = Around(whole.type, gradient=lambda gradient: gradient * 2)
        _, (doubled, *rest) = whole.under(tool)
        np.testing.assert_allclose(doubled, 2 * slope, rtol=1e-4, atol=1e-5)
        for found, expected in zip(rest, others, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# Much like a composite, and something else.
OTHERS = {
    "attention to what comes next": ("Attention", attention(band(1)), heads()),
    "attention that counts what comes later": (
        "Attention",
        attention(band(0), far_below=-5.0),
        heads(),
    ),
    "normalization by examples": over_channels(4, 5, 6, shape=(4, 1, 1)),
    "normalization by all but one axis": over_channels(2, 2, 2, shape=(1, 2, 2)),
    "normalization of one channel by many": over_channels(2, 5, 1),
    "clip to nothing": ("Clip", lambda x: tf.maximum(tf.minimum(x, -0.5), 0.7), [X]),
}


@pytest.mark.parametrize(("type", "call", "arguments"), OTHERS.values(), ids=OTHERS)
def test_what_computes_something_else_is_seen_in_its_parts(type, call, arguments):
    tool = Around(type)
    run(step_of(call, arguments), arguments, tool)
    assert type not in tool.types
    assert len(tool.types) > 1
