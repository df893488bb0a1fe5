"""Layers as operators: Keras layers and modules, as models of Keras run them and in any graph."""

import gc
import warnings

import amanda
import keras
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Watch, under
from amanda_tensorflow.routines import host_threads
from keras import layers
from tensorflow.compat import v1

host_and_pure = pytest.mark.parametrize("pure", [False, True], ids=["host", "pure"])
POINTS = ("insert_before_op", "insert_after_op", "insert_on_grad_outputs", "insert_on_grad_inputs")


class AtLayers(amanda.Tool):
    """Inserts a routine at layers."""

    def __init__(self, routine, insertion="insert_after_op", modules=None, types=None, **options):
        super().__init__()
        self.seen = []
        self._inserting = routine, insertion, options
        self.add_inst_for_module(self.analyze, modules=modules, types=types)

    def analyze(self, ctx):
        self.seen.append(ctx.op)
        routine, insertion, options = self._inserting
        getattr(ctx, insertion)(routine, **options)

    @property
    def ids(self):
        return [operator.id for operator in self.seen]


class Looking(amanda.Tool):
    """Keeps what goes in and out of layers, and the gradients of that, by id and point."""

    def __init__(self):
        super().__init__()
        self.found = {}
        self.add_inst_for_module(self.analyze)

    def analyze(self, ctx):
        for point in POINTS:
            getattr(ctx, point)(self.look, key=(ctx.op.id, point))

    def look(self, *tensors, key):
        self.found[key] = [None if tensor is None else tensor.numpy() for tensor in tensors]


def doubled(*tensors):
    return tuple(tensor * 2 for tensor in tensors)


X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)


def predicted(model, *tools, x=X):
    with amanda.apply(*tools):
        return model.predict(x, verbose=0)


def trained(model, *tools, loss="mse"):
    """The weights after a step, which the model then has no more."""
    before = model.get_weights()
    model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False)
    with amanda.apply(*tools):
        model.fit(X, np.ones((8, *model.output_shape[1:]), np.float32), batch_size=8, verbose=0)
    after = model.get_weights()
    model.set_weights(before)
    return after


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def assert_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.fixture
def residual():
    given = keras.Input((4,))
    hidden = layers.Dense(3, "tanh", name="hidden")(given)
    same = layers.Identity(name="same")(hidden)
    total = layers.Add(name="sum")([hidden, same])
    gc.collect()  # lost models are cycles, and have their ids until then
    return keras.Model(given, layers.Dense(2, name="last")(total), name="residual")


@pytest.fixture
def _nothing_joined():
    """TensorFlow's graph optimizer, which rounds in another way what it joins, is off."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


# What is seen


@pytest.mark.usefixtures("_nothing_joined")
def test_what_a_layer_gives_is_what_a_model_that_ends_there_gives(residual):
    tool = Looking()
    assert_equal([predicted(residual, tool)], [residual.predict(X, verbose=0)])
    for name, id in (("hidden", "hidden/Dense"), ("sum", "sum/layer/Add")):
        ends_there = keras.Model(residual.inputs, residual.get_layer(name).output)
        found = tool.found[f"residual/{id}", "insert_after_op"]
        assert_equal(found, [ends_there.predict(X, verbose=0)])
    assert_equal(tool.found["residual/Functional", "insert_before_op"], [X])


@pytest.mark.usefixtures("_nothing_joined")
def test_gradients_are_those_of_a_tape_for_what_goes_in_and_out(residual):
    hidden, same, total, last = map(residual.get_layer, ("hidden", "same", "sum", "last"))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(residual(x) ** 2)
        return tape.gradient(loss, [x, *residual.trainable_variables])

    @tf.function
    def by_hand(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            one = hidden(x)
            two = same(one)
            three = total([one, two])
            four = last(three)
            loss = tf.reduce_sum(four**2)
        return tape.gradient(loss, [x, two, three, four])

    plain, tool = step(tf.constant(X)), Looking()
    with amanda.apply(tool):
        assert_equal(step(tf.constant(X)), plain)
    expected = by_hand(tf.constant(X))
    found = [
        *tool.found["residual/Functional", "insert_on_grad_inputs"],
        *tool.found["residual/same/layer/Identity", "insert_on_grad_outputs"],
        *tool.found["residual/last/Dense", "insert_on_grad_inputs"],
        *tool.found["residual/Functional", "insert_on_grad_outputs"],
    ]
    assert_equal(found, expected)


def test_ids_are_the_same_in_prediction_evaluation_and_training():
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, name="a"), layers.Dropout(0.5, name="b")], name="seen"
    )
    model.compile("sgd", "mse")
    y = np.ones((8, 3))
    ids = []
    for run in (
        lambda: model.predict(X, verbose=0),
        lambda: model.evaluate(X, y, verbose=0),
        lambda: model.fit(X, y, verbose=0),
        lambda: model.predict(X[:3], verbose=0),
    ):
        tool = AtLayers(lambda *_: None)
        with amanda.apply(tool):
            run()
        ids.append(tool.ids)
    assert ids == [["seen/Sequential", "seen/a/Dense", "seen/b/Dropout"]] * 4


def test_a_layer_that_is_called_twice_is_two_and_each_is_substituted():
    shared = layers.Dense(4, name="shared")
    given = keras.Input((4,))
    model = keras.Model(given, shared(shared(given)), name="twice")
    tool = AtLayers(doubled, modules=["twice/shared"])
    assert_close([predicted(model, tool)], [2 * shared(2 * shared(X))])
    assert tool.ids == ["twice/shared/Dense", "twice/shared/Dense#2"]


def test_operators_know_the_layers_around_them_and_models_of_one_name_are_told_apart():
    models = [keras.Sequential([keras.Input((4,)), layers.Dense(2)], name="net") for _ in range(2)]
    found = []

    def analyze(ctx):
        found.append((ctx.driver.model(ctx.op), [cls for _, cls in ctx.driver.modules(ctx.op)]))

    tool = amanda.Tool()
    tool.add_inst_for_op(analyze, ops=["MatMul"])
    for model in models:
        predicted(model, tool)
    assert found == [(model, ["Sequential", "Dense"]) for model in models]


def test_a_source_is_where_the_program_calls_the_layer():
    dense = layers.Dense(2, name="dense")
    tool = AtLayers(lambda *_: None)
    with amanda.apply(tool):
        tf.function(lambda x: dense(x))(X)
    assert tool.seen[0].source.file == __file__
    with pytest.raises(amanda.AmandaError, match="no node of its own"):
        _ = tool.seen[0].node_def


# What is changed


@host_and_pure
def test_what_a_layer_hands_on_is_substituted_for_its_readers_alone(residual, pure):
    hidden = residual.get_layer("hidden")(X)
    last = residual.get_layer("last")
    at_same = AtLayers(doubled, modules=["residual/same"], pure=pure)
    assert_close([predicted(residual, at_same)], [last(hidden * 3)])
    at_hidden = AtLayers(doubled, modules=["residual/hidden"], pure=pure)
    assert_close([predicted(residual, at_hidden, at_same)], [last(hidden * 6)])


@host_and_pure
def test_layers_within_each_other_are_changed_from_the_inside_out(residual, pure):
    inner = AtLayers(lambda y: y + 1, modules=["residual/last"], pure=pure)
    outer = AtLayers(doubled, modules=["residual"], pure=pure)
    plain = residual.predict(X, verbose=0)
    assert_close([predicted(residual, outer, inner)], [(plain + 1) * 2])


@pytest.mark.parametrize(
    ("insertion", "pure"), [("insert_before_op", True), ("insert_after_op", False)]
)
def test_a_substitute_trains_as_a_model_written_by_hand(insertion, pure):
    before = insertion == "insert_before_op"

    def model(by_hand):
        def twice(x):
            return x + tf.stop_gradient(x)

        around = [[], []]
        if by_hand:
            around[not before].append(layers.Lambda(twice))
        inner = layers.Dense(3, "silu", name="inner")  # which has a custom gradient
        stack = [layers.Dense(3, "tanh"), *around[0], inner, *around[1], layers.Dense(1)]
        return keras.Sequential([keras.Input((4,)), *stack], name="net")

    one, other = model(False), model(True)
    other.set_weights(one.get_weights())
    tool = AtLayers(doubled, insertion, modules=["net/inner"], pure=pure)
    assert_close(trained(one, tool), trained(other))


@host_and_pure
def test_a_replaced_layer_does_not_run_and_nobody_sees_what_is_in_it(pure):
    dense, norm, last = layers.Dense(3), layers.BatchNormalization(name="norm"), layers.Dense(1)
    model = keras.Sequential([keras.Input((4,)), dense, norm, last], name="net")
    forward = tf.function(lambda x: model(x, training=True))
    tool = AtLayers(doubled, "replace_op", modules=["net/norm"], pure=pure)
    beside = amanda.Tool()
    seen = []
    beside.add_inst_for_op(lambda ctx: seen.append(ctx.op.scope))
    before = norm.moving_mean.numpy()
    with amanda.apply(tool, beside):
        found = forward(tf.constant(X))
    assert_close([found], [last(dense(X) * 2)])
    assert_equal([norm.moving_mean.numpy()], [before])
    assert "net/norm" not in seen


@host_and_pure
def test_a_replacement_runs_the_layer_with_its_variables(residual, pure):
    hidden, last = residual.get_layer("hidden"), residual.get_layer("last")
    tool = AtLayers(
        lambda original, x: original(x * 2) + 1,
        "replace_op",
        modules=["residual/hidden"],
        original=True,
        pure=pure,
    )
    assert_close([predicted(residual, tool)], [last(2 * (hidden(X * 2) + 1))])


def test_a_layer_that_would_wait_forever_for_a_thread_in_its_replacement_is_refused(
    residual, monkeypatch
):
    monkeypatch.setattr(host_threads, "_threads", lambda: 1)
    run = lambda original, x: original(x)  # noqa: E731
    tool = AtLayers(run, "replace_op", modules=["residual/hidden"], original=True)
    with pytest.raises(amanda.RoutineError, match=r"'residual/hidden.* holds one of TensorFlow's"):
        predicted(residual, tool)


@host_and_pure
def test_a_cell_in_a_loop_is_substituted_at_each_step(pure):
    name = f"cells{pure}"
    model = keras.Sequential(
        [keras.Input((2, 2)), layers.LSTM(3, name="cells")], name=f"cells{pure}"
    )
    x = X.reshape(8, 2, 2)
    tool = AtLayers(lambda x: x * 2, "insert_before_op", types=["LSTMCell"], inputs=[0], pure=pure)
    assert_close([predicted(model, tool, x=x)], [model(x * 2)])
    assert tool.ids == [f"{name}/cells/while/lstm_cell/LSTMCell"]


def test_looking_into_a_recurrent_layer_sees_its_cells():
    model = keras.Sequential(
        [keras.Input((4,)), layers.Reshape((2, 2)), layers.LSTM(3, name="r"), layers.Dense(1)],
        name="recurrent",
    )
    tool = Looking()
    trained(model, tool)
    cell = "recurrent/r/while/lstm_cell/LSTMCell"
    assert [len(tool.found[cell, point]) for point in POINTS] == [3, 3, 3, 3]


@host_and_pure
def test_a_layer_in_a_branch_takes_what_is_outside_of_it(pure):
    dense = layers.Dense(3, name="dense")
    dense.build((None, 4))

    @tf.function
    def function(x, taken):
        return tf.cond(taken, lambda: dense(x), lambda: tf.zeros((8, 3)))

    tool = AtLayers(doubled, "insert_before_op", pure=pure)
    with amanda.apply(tool):
        found = function(tf.constant(X), tf.constant(True))
    assert_close([found], [dense(X * 2)])


@host_and_pure
def test_what_a_layer_returns_and_reads_itself_has_a_gradient_of_its_own(pure):
    class Both(layers.Layer):
        def __init__(self):
            super().__init__(name="both")
            self.one, self.two = layers.Dense(3, "tanh"), layers.Dense(3)

        def call(self, x):
            first = self.one(x)
            return first, self.two(first)

    both = Both()
    both(X)

    @tf.function
    def step(x, weight):
        with tf.GradientTape() as tape:
            tape.watch(x)
            first, second = both(x)
            loss = weight * tf.reduce_sum(first**3) + tf.reduce_sum(second**2)
        return tape.gradient(loss, x)

    x = tf.constant(X)
    step(x, tf.constant(1.0))
    gone = AtLayers(
        lambda grad: grad * 0, "insert_on_grad_outputs", modules=["both"], outputs=[0], pure=pure
    )
    with amanda.apply(gone):
        found = step(x, tf.constant(1.0))
    assert_close([found], [step(x, tf.constant(0.0))])


# What is refused


def attention():
    given = keras.Input((4,))
    steps = layers.Reshape((2, 2), name="steps")(given)
    attended = layers.MultiHeadAttention(2, 3, name="mha")(steps, value=steps)
    return keras.Model(given, attended, name="net")


def test_a_tensor_that_a_layer_takes_twice_is_replaced_as_one():
    model = attention()
    steps, mha = model.get_layer("steps"), model.get_layer("mha")
    x = steps(X)
    tool = AtLayers(doubled, "insert_before_op", modules=["net/mha"], inputs=["query"])
    assert_close([predicted(model, tool)], [mha(x * 2, x * 2)])
    both = AtLayers(doubled, "insert_before_op", modules=["net/mha"])
    with pytest.raises(amanda.RoutineError, match="takes this tensor twice"):
        predicted(model, both)
    pure = AtLayers(doubled, "insert_before_op", modules=["net/mha"], pure=True)
    with pytest.raises(amanda.UnsupportedError, match="takes this tensor twice"):
        predicted(model, pure)


def test_a_layer_is_not_replaced_where_a_loss_reads_its_logits():
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(1, activation="sigmoid", name="last")], name="net"
    )
    tool = AtLayers(lambda x: x[:, :1], "replace_op", modules=["net/last"])
    with pytest.raises(amanda.UnsupportedError, match="from_logits=True"):
        trained(model, tool, loss="binary_crossentropy")


def test_layers_in_a_custom_gradient_are_not_parted_from_it():
    one, two = layers.Dense(4, name="one"), layers.Dense(4, name="two")
    one.build((None, 4))
    two.build((None, 4))

    @tf.custom_gradient
    def custom(x):
        return two(one(x)), lambda grad, variables=None: (grad, [None] * len(variables or ()))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(custom(x))
        return tape.gradient(loss, x)

    tool = AtLayers(doubled, modules=["one"], pure=True)
    with pytest.raises(amanda.UnsupportedError, match="custom gradient"), amanda.apply(tool):
        step(tf.constant(X))


# Where there are none


def told(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with amanda.apply(AtLayers(lambda *_: None)):
            run()
    return [str(w.message) for w in caught if issubclass(w.category, amanda.AmandaWarning)]


def test_layers_that_are_called_eagerly_are_named():
    dense = layers.Dense(2, name="alone")
    (message,) = told(lambda: (dense(X), dense(X)))
    assert "nothing of MatMul and other operators that run eagerly" in message


def test_nothing_is_said_for_a_tool_that_can_do_without_layers():
    tool = amanda.Tool()
    tool.add_inst_for_module(lambda ctx: None, optional=True)
    dense = layers.Dense(2, name="alone")
    with warnings.catch_warnings(), amanda.apply(tool):
        warnings.simplefilter("error")
        dense(X)
        tf.function(lambda x: tf.matmul(x, x))(X[:4])


def test_a_graph_without_layers_is_named():
    def in_a_session():
        with tf.Graph().as_default(), v1.Session() as session:
            session.run(v1.matmul(v1.constant(X), v1.constant(X.T)))

    (message,) = told(in_a_session)
    assert "tools see no layers in 'the graph of a session'" in message
    (message,) = told(lambda: tf.function(lambda x: tf.matmul(x, x))(X[:4]))
    assert "tools see no layers in" in message


def test_a_loaded_model_is_named(tmp_path):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)], name="net")
    model.export(tmp_path, verbose=False)
    loaded = tf.saved_model.load(tmp_path)
    (message,) = told(lambda: loaded.serve(X))
    assert "which was loaded, or built before" in message


def test_nothing_is_said_of_a_model_whose_layers_are_seen():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)], name="net")
    assert told(lambda: model.predict(X, verbose=0)) == []


def test_what_computes_the_weight_of_a_layer_within_it_is_told_from_that_layer():
    inner = layers.Dense(3, name="inner")
    spectral = layers.SpectralNormalization(inner, name="spectral")
    step = tf.function(lambda x: spectral(x, training=True))
    x = tf.ones([2, 4])
    spectral(x)
    found = {}
    tool = Watch(
        lambda ctx: found.update({ctx.op.scope: ctx.driver.computes_parameter(ctx.op)}), ["MatMul"]
    )
    under(tool, lambda: step(x))
    assert found == {"spectral/cond": True, "spectral/inner": False}
