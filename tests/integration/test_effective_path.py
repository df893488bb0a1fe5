"""Effective paths on PyTorch, Keras and a session, against plain loops."""

import json
import re

import amanda
import keras
import numpy as np
import plain_paths as plain
import pytest
import torch
from amanda_tools.effective_path import EffectivePath
from torch import nn

SHARE = 0.6
CHANNELS_LAST = plain.X.transpose(0, 2, 3, 1).copy()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 3, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(3, eps=plain.EPSILON)
        self.conv2 = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.linear = nn.Linear(6, 4)
        for parameter, value in (
            *((self.conv1.weight, plain.W1), (self.conv2.weight, plain.W2)),
            *((self.norm.weight, plain.GAMMA), (self.norm.bias, plain.BETA)),
            *((self.norm.running_mean, plain.MEAN), (self.norm.running_var, plain.VARIANCE)),
            *((self.linear.weight, plain.WL), (self.linear.bias, plain.BL)),
        ):
            parameter.data.copy_(torch.from_numpy(value))

    def forward(self, x):
        x = self.norm(self.conv1(x)).relu_()
        x = x + nn.functional.relu(self.conv2(x))
        x = nn.functional.max_pool2d(x, 2)
        return self.linear(torch.cat([x, x * 2], 1).mean((2, 3)))


def on_torch():
    model = Net().eval()
    return lambda: model(torch.from_numpy(plain.X))


def on_keras():
    x = keras.Input((6, 6, 2))
    same = {"padding": "same", "use_bias": False}
    r = keras.layers.Conv2D(3, 3, **same, name="conv1")(x)
    r = keras.layers.BatchNormalization(epsilon=plain.EPSILON, name="norm")(r)
    r = keras.layers.ReLU()(r)
    r = keras.layers.Add()([r, keras.layers.Conv2D(3, 3, activation="relu", **same, name="c2")(r)])
    p = keras.layers.MaxPooling2D()(r)
    p = keras.layers.Concatenate()([p, keras.ops.multiply(p, 2.0)])
    y = keras.layers.Dense(4, name="linear")(keras.layers.GlobalAveragePooling2D()(p))
    model = keras.Model(x, y)
    kernels = [w.transpose(2, 3, 1, 0) for w in (plain.W1, plain.W2)]
    model.get_layer("conv1").set_weights([kernels[0]])
    model.get_layer("c2").set_weights([kernels[1]])
    model.get_layer("norm").set_weights([plain.GAMMA, plain.BETA, plain.MEAN, plain.VARIANCE])
    model.get_layer("linear").set_weights([plain.WL.T, plain.BL])
    return lambda: model.predict(CHANNELS_LAST, verbose=0)


def in_a_session():
    """With the normalization spelled out."""
    import tensorflow as tf  # not where Keras runs on PyTorch

    with tf.Graph().as_default():
        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, (None, 6, 6, 2))
        w1, w2 = (
            v1.get_variable(name, initializer=w.transpose(2, 3, 1, 0).copy())
            for name, w in (("w1", plain.W1), ("w2", plain.W2))
        )
        scale = plain.GAMMA / np.sqrt(plain.VARIANCE + plain.EPSILON)
        r = tf.nn.conv2d(x, w1, 1, "SAME")
        r = tf.nn.relu((r - plain.MEAN) * scale + plain.BETA)
        r = r + tf.nn.relu(tf.nn.conv2d(r, w2, 1, "SAME"))
        p = tf.nn.max_pool2d(r, 2, 2, "VALID")
        features = tf.reduce_mean(tf.concat([p, p * 2.0], 3), (1, 2))
        wl = v1.get_variable("wl", initializer=plain.WL.T.copy())
        y = tf.matmul(features, wl) + v1.get_variable("bl", initializer=plain.BL)
        start = v1.global_variables_initializer()
        session = v1.Session()
        session.run(start)
    return lambda: session.run(y, {x: CHANNELS_LAST})


RUNS = {"torch": on_torch, "keras": on_keras, "session": in_a_session}
TYPES = {
    "conv1": "Conv",
    "conv2": "Conv",
    "add": "Add",
    "pool": "MaxPool",
    "mean": "(ReduceMean|GlobalAveragePool)",
    "linear": "Gemm",
}


@pytest.fixture(scope="module")
def expected():
    return [plain.path(x, SHARE) for x in plain.X]


@pytest.mark.parametrize("make", RUNS.values(), ids=RUNS)
def test_are_those_of_plain_loops(make, expected):
    run, tool = make(), EffectivePath(SHARE)
    with amanda.apply(tool):
        for _ in range(2):  # the second pass adds no synapse to a class
            run()
    rows = tool.rows()
    assert {row.example for row in rows} == set(range(12))
    assert [label for label, _ in expected] == [
        next(row.label for row in rows if row.example == n) for n in range(len(expected))
    ]
    layers = _layers(rows, tool)
    for example, (_, found) in enumerate(expected):
        counts = {row.id: row.synapses for row in rows if row.example == example}
        assert {name: counts.get(id, 0) for name, id in layers.items()} == {
            name: len(pairs) for name, pairs in found.items()
        }
    for label in {label for label, _ in expected}:
        synapses = tool.synapses(label)
        for name, id in layers.items():
            pairs = set().union(*(found[name] for own, found in expected if own == label))
            flags = synapses[id]
            if name == "add" and make is not on_torch:  # an element is where the framework has it
                flags = flags.reshape(6, 6, 3, 2).transpose(2, 0, 1, 3).ravel()
            assert np.array_equal(flags, plain.flags(name, pairs)), name


def test_classes_are_compared(expected, tmp_path):
    run = on_torch()
    for ending in ("json", "svg"):
        tool = EffectivePath(SHARE, out=tmp_path / f"path.{ending}")
        with amanda.apply(tool):
            run()
    labels = sorted({label for label, _ in expected})
    one, other = labels[:2]
    of = {
        label: {
            (name, pair)
            for own, found in expected
            if own == label
            for name, pairs in found.items()
            for pair in pairs
        }
        for label in labels
    }
    similarity = tool.similarity()
    assert similarity[one][other] == len(of[one] & of[other]) / len(of[one] | of[other])
    assert similarity[one][one] == 1
    written = json.loads((tmp_path / "path.json").read_text())
    assert written["similarity"][str(one)][str(other)] == similarity[one][other]
    assert written["densities"][str(one)]["conv1/conv2d"] == tool.densities()[one]["conv1/conv2d"]
    assert "Similarity of classes" in (tmp_path / "path.svg").read_text()


def test_what_it_cannot_follow_is_refused_by_name():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, x):
            x = nn.functional.scaled_dot_product_attention(x, x, x)
            return self.linear(x.mean(1))

    model = Attention()
    with (
        pytest.raises(amanda.UnsupportedError, match=r"scaled_dot_product_attention.*no rule"),
        amanda.apply(EffectivePath()),
    ):
        model(torch.ones(2, 3, 4).exp())


def _layers(rows, tool):
    """The id of each layer, in the order of the net."""
    ids = list(dict.fromkeys(row.id for row in rows))[::-1]
    types = {row.id: row.type for row in rows}
    found = {}
    for name, pattern in TYPES.items():
        found[name] = next(
            id for id in ids if re.fullmatch(pattern, types[id]) and id not in found.values()
        )
    return found


class OtherwiseInTraining(nn.Module):
    """Scales what is between its layers, in training alone."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        x = self.first(x)
        return self.last(x * 2.0 if self.training else x)


def rows_of(tool):
    return [(row.example, row.id, row.neurons, row.synapses) for row in tool.rows()]


def test_what_made_an_input_in_another_pass_is_on_no_path_of_this_one():
    model, x = OtherwiseInTraining(), torch.randn(2, 6, generator=torch.manual_seed(0))
    with amanda.apply(alone := EffectivePath()):
        model.eval()(x)
    with amanda.apply(tool := EffectivePath()):
        model.train()(x)
        model.eval()(x)
    inference = [row[1:] for row in rows_of(tool)[4:]]  # after two examples, of two layers each
    assert inference == [row[1:] for row in rows_of(alone)]


def test_what_makes_data_ready_ahead_of_a_model_is_no_pass():
    model, x = OtherwiseInTraining().eval(), torch.randn(2, 6, generator=torch.manual_seed(0))
    with amanda.apply(alone := EffectivePath()):
        model(x)
    with amanda.apply(tool := EffectivePath()):
        halves = [(half * 2.0).to(torch.float64) for half in (x / 2.0).split(1)]
        model(torch.cat(halves).to(torch.float32))
    assert rows_of(tool) == rows_of(alone)


class OffsetAfterCast(nn.Module):
    """Adds the offset of its last layer to another type of data, as Keras does on PyTorch."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(6, 3, bias=False)
        self.offset = nn.Parameter(torch.tensor([0.0, 0.0, 100.0], dtype=torch.float64))

    def forward(self, x):
        return self.last(x).to(torch.float64) + self.offset


def test_the_scores_have_their_offset_also_behind_a_cast():
    with amanda.apply(tool := EffectivePath()):
        OffsetAfterCast()(torch.randn(2, 6, generator=torch.manual_seed(0)))
    assert [row.label for row in tool.rows()] == [2, 2]
