"""Keras 3 on TensorFlow, unmodified, with tools active."""

import amanda
import amanda_tensorflow  # noqa: F401
import keras
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Mask, Record, before, fail, host_and_pure, nothing
from small_keras import recurrent

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(32, 6)).astype(np.float32)
Y = RANDOM.normal(size=(32, 2)).astype(np.float32)


def network(jit_compile=False, name="net", built=True, optimizer="sgd"):
    """A small model; unless it is ``built``, its first step makes the optimizer's variables."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((6,))
    h = keras.layers.Dense(8, activation="relu", name="hidden")(inputs)
    h = keras.layers.BatchNormalization(name="norm")(h)
    h = keras.layers.Dropout(0.3, name="drop")(h)
    model = keras.Model(inputs, keras.layers.Dense(2, name="head")(h), name=name)
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    if built:
        model.optimizer.build(model.trainable_variables)
    return model


def train(model):
    losses = model.fit(X, Y, batch_size=8, epochs=2, verbose=0).history["loss"]
    losses.append(model.evaluate(X, Y, verbose=0))
    losses.append(model.train_on_batch(X[:8], Y[:8]))
    return np.array(losses), model.predict(X, verbose=0), model.get_weights()


def same_bits(one, other):
    return all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes()
        for a, b in zip([one[0], one[1], *one[2]], [other[0], other[1], *other[2]], strict=True)
    )


# XLA compiles Adam for as long as all the rest.
@pytest.mark.parametrize(
    ("jit_compile", "optimizer"),
    [("auto", lambda: "adam"), (True, lambda: keras.optimizers.SGD(momentum=0.9))],
    ids=["auto", "compiled by XLA"],
)
def test_observing_changes_no_bit(jit_compile, optimizer):
    model = network(jit_compile, built=False, optimizer=optimizer())
    assert model.jit_compile is (jit_compile is True)  # it is not by itself without a GPU
    plain = train(model)
    with amanda.apply(before(["MatMul", "Relu", "BiasAdd"], nothing, pure=model.jit_compile)):
        observed = train(network(jit_compile, built=False, optimizer=optimizer()))
    assert same_bits(plain, observed)


def test_a_model_that_xla_compiles_takes_host_routines():
    watch = Record("MatMul")
    with amanda.apply(watch):
        losses, _, _ = train(network(jit_compile=True))
    assert np.isfinite(losses).all()
    assert len(watch.ran) == 2 * (2 * 4 + 1 + 1 + 1)


def test_train_eval_and_predict_share_ids_that_name_the_layers():
    watch = Record(["MatMul", "Relu"])
    model = network(name="mlp")
    with amanda.apply(watch):
        train(model)
        model.predict(X[:3], verbose=0)
    assert sorted(watch.analyzed) == ["mlp/head/MatMul", "mlp/hidden/MatMul", "mlp/hidden/Relu"]


def test_two_models_of_one_name_do_not_collide():
    one, other = network(name="twin"), network(name="twin")
    watch = Record("MatMul")
    with amanda.apply(watch):
        for model in (one, other):
            model.fit(X, Y, verbose=0)
            model.predict(X, verbose=0)
    assert len(set(watch.analyzed)) == len(watch.analyzed) == 4
    assert sum(id.endswith("#2") for id in watch.analyzed) == 2


class HalvedDense(keras.layers.Layer):
    """What a Dense layer is to be under a mask, written by hand."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units))

    def call(self, x):
        @tf.custom_gradient
        def product(x, kernel):
            halved = kernel * 0.5
            return x @ halved, lambda dy: (dy @ tf.transpose(halved), tf.transpose(x) @ dy)

        return product(x, tf.convert_to_tensor(self.kernel))


@host_and_pure
def test_training_with_a_masked_weight(pure):
    def model(dense, **options):
        keras.utils.set_random_seed(2)
        first, second = dense(5, **options), dense(2, **options)
        model = keras.Sequential([keras.Input((6,)), first, keras.layers.ReLU(), second])
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        return model

    expected = model(HalvedDense)
    actual = model(keras.layers.Dense, use_bias=False)
    actual.set_weights(expected.get_weights())
    expected.fit(X, Y, epochs=3, shuffle=False, verbose=0)
    with amanda.apply(Mask("MatMul", 0.5, pure=pure)):
        actual.fit(X, Y, epochs=3, shuffle=False, verbose=0)
    for a, e in zip(actual.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cell", [keras.layers.LSTM, keras.layers.GRU, keras.layers.SimpleRNN])
def test_recurrent_layers(cell):
    def fit(*tools):
        model, x = recurrent(lambda: cell(4), steps=7), RANDOM_SEQUENCES
        model.compile("sgd", "mse", jit_compile=False)
        with amanda.apply(*tools):
            model.fit(x, x[:, 0, :1], epochs=2, verbose=0)
        return model.get_weights()

    watch = Record(["MatMul", "Tanh", "Sigmoid"])
    for plain, observed in zip(fit(), fit(watch), strict=True):
        np.testing.assert_array_equal(plain, observed)
    assert len(watch.ran) > 7


RANDOM_SEQUENCES = RANDOM.normal(size=(8, 7, 3)).astype(np.float32)


def test_a_model_saved_and_loaded(tmp_path):
    model = network()
    model.fit(X, Y, verbose=0)
    model.export(tmp_path / "exported", verbose=False)
    model.save(tmp_path / "model.keras")
    plain = model.predict(X, verbose=0)
    exported = tf.saved_model.load(tmp_path / "exported")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    watch = Record("MatMul")
    with amanda.apply(watch):
        np.testing.assert_allclose(exported.serve(X), plain, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(loaded.predict(X, verbose=0), plain, rtol=1e-5, atol=1e-6)
    assert len(watch.ran) == 4


def test_a_model_that_runs_eagerly_is_told_about():
    model = network()
    model.run_eagerly = True
    with pytest.warns(UserWarning, match=r"net.*run_eagerly=False"), amanda.apply(Record()):
        model.predict(X, verbose=0)


def test_an_exception_in_a_routine_stops_the_step_cleanly():
    model, tool = network(), fail("Relu", KeyError("lost"))
    initial = [w.copy() for w in model.get_weights()]
    with amanda.apply(tool), pytest.raises(amanda.RoutineError, match="net/hidden/Relu") as caught:
        model.fit(X, Y, verbose=0)
    assert isinstance(caught.value.__cause__, KeyError)
    for was, now in zip(initial, model.get_weights(), strict=True):
        np.testing.assert_array_equal(was, now)
    model.fit(X, Y, verbose=0)


@pytest.mark.parametrize(
    ("build", "size", "last", "convolutions"),
    [
        (keras.applications.ResNet50, 64, "conv3_block4_out", 1 + (3 * 3 + 1) + (4 * 3 + 1)),
        (keras.applications.MobileNetV2, 64, "block_5_add", 1 + 1 + 5 * 2),
        (keras.applications.InceptionV3, 75, "mixed4", 5 + 3 * 7 + 4 + 10),
    ],
    ids=["resnet50", "mobilenet_v2", "inception_v3"],
)
def test_applications(build, size, last, convolutions):
    """Up to a layer behind which there are more blocks of the same kinds."""
    keras.utils.set_random_seed(4)
    whole = build(weights=None, input_shape=(size, size, 3), include_top=False)
    model = keras.Model(whole.input, whole.get_layer(last).output)
    x = np.random.default_rng(0).normal(size=(2, size, size, 3)).astype(np.float32)
    plain = model.predict(x, verbose=0)
    watch = Record("Conv2D")
    with amanda.apply(watch):
        observed = model.predict(x, verbose=0)
    assert observed.tobytes() == plain.tobytes()
    assert len(watch.analyzed) == len(watch.ran) == convolutions


class TestOptimizer:
    """Its updates are no part of the model."""

    def types_seen(self, ops):
        watch = Record(ops)
        with amanda.apply(watch):
            network(optimizer="adam").fit(X, Y, epochs=1, verbose=0)
        return {id.rpartition("/")[2].partition("#")[0] for id in watch.analyzed}

    def test_a_tool_for_all_operators_does_not_see_its_updates(self):
        seen = self.types_seen(None)
        assert "MatMul" in seen
        assert "AssignSubVariableOp" not in seen

    def test_a_tool_that_names_their_type_does(self):
        assert self.types_seen(["AssignSubVariableOp"]) == {"AssignSubVariableOp"}
