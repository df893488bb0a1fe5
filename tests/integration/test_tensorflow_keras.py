"""Keras 3 on TensorFlow, unmodified, with tools active."""

import amanda
import amanda_tensorflow  # noqa: F401
import keras
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Mask, Record, before, fail, host_and_pure, nothing
from small_keras import recurrent, up_to

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


@pytest.fixture(scope="module")
def trained():
    """What a model gives without tools and under one that notes its operators, and that tool."""
    watch = Record(["MatMul", "Relu", "BiasAdd"])
    plain = train(network(built=False, optimizer="adam"))
    model = network(name="mlp", built=False, optimizer="adam")
    with amanda.apply(watch):
        observed = train(model)
        model.predict(X[:3], verbose=0)
    return plain, observed, watch


def test_observing_changes_no_bit(trained):
    plain, observed, _ = trained
    assert same_bits(plain, observed)


def test_train_eval_and_predict_share_ids_that_name_the_layers(trained):
    *_, watch = trained
    types = {"head": ["BiasAdd", "MatMul"], "hidden": ["BiasAdd", "MatMul", "Relu"]}
    expected = [f"mlp/{layer}/{type}" for layer, found in types.items() for type in found]
    assert sorted(watch.analyzed) == expected


def test_without_a_gpu_keras_compiles_by_xla_what_is_to_be_alone():
    assert [network(jit_compile).jit_compile for jit_compile in ("auto", True)] == [False, True]


def compiled_by_xla():
    """What a model gives whose functions for training, evaluating and predicting XLA compiles."""
    model = network(jit_compile=True, optimizer=keras.optimizers.SGD(momentum=0.9))
    losses = model.fit(X, Y, batch_size=16, verbose=0).history["loss"]
    losses.append(model.evaluate(X, Y, verbose=0))
    return np.array(losses), model.predict(X, verbose=0), model.get_weights()


def test_observing_changes_no_bit_that_xla_computes():
    plain = compiled_by_xla()
    with amanda.apply(before(["MatMul", "Relu", "BiasAdd"], nothing, pure=True)):
        observed = compiled_by_xla()
    assert same_bits(plain, observed)


def test_a_model_that_xla_compiles_takes_host_routines():
    watch = Record("MatMul")
    with amanda.apply(watch):
        losses, *_ = compiled_by_xla()
    assert np.isfinite(losses).all()
    assert len(watch.ran) == 2 * (2 + 1 + 1)


def test_two_models_of_one_name_do_not_collide():
    one, other = network(name="twin"), network(name="twin")
    watch = Record("MatMul")
    with amanda.apply(watch):
        for model in (one, other):
            model.train_on_batch(X, Y)
            model.predict_on_batch(X)
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
    for _ in range(3):
        expected.train_on_batch(X, Y)
    with amanda.apply(Mask("MatMul", 0.5, pure=pure)):
        for _ in range(3):
            actual.train_on_batch(X, Y)
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
    model.set_weights([np.abs(weight) + 0.1 for weight in model.get_weights()])
    model.export(tmp_path / "exported", verbose=False)
    model.save(tmp_path / "model.keras")
    plain = model.predict_on_batch(X)
    exported = tf.saved_model.load(tmp_path / "exported")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    watch = Record("MatMul")
    with amanda.apply(watch):
        np.testing.assert_allclose(exported.serve(X), plain, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(loaded.predict_on_batch(X), plain, rtol=1e-5, atol=1e-6)
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
        (keras.applications.ResNet50, 64, "conv3_block2_out", 1 + (3 * 3 + 1) + (2 * 3 + 1)),
        (keras.applications.MobileNetV2, 64, "block_2_add", 1 + 1 + 2 * 2),
        (keras.applications.InceptionV3, 75, "mixed4", 5 + 3 * 7 + 4 + 10),
    ],
    ids=["resnet50", "mobilenet_v2", "inception_v3"],
)
def test_applications(build, size, last, convolutions):
    """Up to a layer behind which there are more blocks of the same kinds."""
    keras.utils.set_random_seed(4)
    model = keras.Model(*up_to(last, build, size))
    x = np.random.default_rng(0).normal(size=(2, size, size, 3)).astype(np.float32)
    plain = model.predict_on_batch(x)
    watch = Record("Conv2D")
    with amanda.apply(watch):
        observed = model.predict_on_batch(x)
    assert observed.tobytes() == plain.tobytes()
    assert len(watch.analyzed) == len(watch.ran) == convolutions


class TestOptimizer:
    """Its updates are no part of the model."""

    def types_seen(self, ops):
        watch = Record(ops)
        with amanda.apply(watch):
            network(optimizer="adam").train_on_batch(X, Y)
        return {id.rpartition("/")[2].partition("#")[0] for id in watch.analyzed}

    def test_a_tool_for_all_operators_does_not_see_its_updates(self):
        seen = self.types_seen(None)
        assert "MatMul" in seen
        assert "AssignSubVariableOp" not in seen

    def test_a_tool_that_names_their_type_does(self):
        assert self.types_seen(["AssignSubVariableOp"]) == {"AssignSubVariableOp"}
