"""What the tools found, as data, of one model in PyTorch, in Keras and in a session."""

import csv
import json
import xml.etree.ElementTree as ET
from dataclasses import asdict

import amanda
import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from amanda_tools import (
    Faults,
    Flops,
    NanWatch,
    Operators,
    Profile,
    Record,
    Summary,
    Trace,
)
from amanda_tools.activations import Activations
from amanda_tools.gradients import Gradients
from amanda_tools.pruning import ActivationPruning, MagnitudePruning
from amanda_tools.quantization import Quantize

X = np.ones((2, 3), np.float32)


def on_torch():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 5))
    return lambda: model(torch.from_numpy(X)).sum().backward()


def on_keras():
    model = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(5)])
    model.compile("sgd", "mse")
    model.build((2, 3))
    return lambda: model.train_on_batch(X, np.zeros((2, 5), np.float32))


def in_a_session():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (None, 3))
        weights = [
            tf.compat.v1.get_variable(name, shape)
            for name, shape in (("w1", (3, 4)), ("b1", (4,)), ("w2", (4, 5)), ("b2", (5,)))
        ]
        w1, b1, w2, b2 = weights
        y = tf.nn.relu(x @ w1 + b1) @ w2 + b2
        grads = tf.gradients(y, weights)
        start = tf.compat.v1.global_variables_initializer()
    session = tf.compat.v1.Session(graph=graph)
    session.run(start)
    return lambda: session.run(grads, {x: X})


@pytest.fixture(params=[on_torch, on_keras, in_a_session])
def step(request):
    return request.param()


def test_is_plain_and_written_as_json_and_csv(step, tmp_path):
    tools = Flops(tmp_path / "flops.json"), Profile(tmp_path / "profile.csv", warmup=1)
    trace = Trace(tmp_path / "trace.csv")
    with amanda.apply(*tools, trace):
        for _ in range(3):
            step()
    flops, profile = tools

    written = json.loads((tmp_path / "flops.json").read_text())
    assert written == flops.to_dict()
    assert written["total"]["forward"] == 3 * 2 * (2 * 3 * 4 + 2 * 4 * 5)
    assert written["total"]["params"] == 3 * 4 + 4 + 4 * 5 + 5

    with (tmp_path / "profile.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["id"] for line in lines] == [row.id for row in profile.rows()]
    slowest = profile.slowest(1)[0]
    assert slowest.calls == 2 or slowest.backward_calls >= 2
    assert slowest.least is None or slowest.least <= slowest.median <= slowest.most

    rows = trace.rows()
    assert {row.direction for row in rows} == {"forward", "backward"}
    assert json.loads(json.dumps([asdict(row) for row in rows]))
    assert "<table>" in flops._repr_html_()
    assert len(repr(profile)) < 100


@pytest.mark.parametrize("make", [on_torch, in_a_session])
def test_is_a_picture_too(make, tmp_path):
    step = make()
    tools = {
        MagnitudePruning(0.5, out=tmp_path / "weights.svg"): ["zero: 0.5"] * 2,
        ActivationPruning(threshold=1e9, out=tmp_path / "values.svg"): ["zero: 1"],
        Quantize(4, out=tmp_path / "errors.svg"): ["error: "] * 2,
        Activations(out=tmp_path / "outputs.svg"): ["std: ", "share: "],
        Gradients(out=tmp_path / "norms.svg"): ["norm: "] * 4,
    }
    with amanda.apply(*tools):
        step()
    _check_labels(tools)


def test_numbers_and_faults_are_pictures_too(tmp_path):
    tools = {
        Record(out=tmp_path / "record.svg"): ["std: "] * 2,
        NanWatch(out=tmp_path / "nan.svg"): ["elements: 1"],
        Faults(bits=[30], out=tmp_path / "faults.svg"): ["faults: 1", "faults: 2"],
    }
    step = on_torch()
    with amanda.apply(*tools):
        step()
        torch.log(-torch.ones(1))
    _check_labels(tools)


def _check_labels(tools):
    for tool, labels in tools.items():
        picture = ET.parse(tool._saved.path)
        texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
        for label in labels:
            assert sum(text.startswith(label) for text in texts) >= labels.count(label), texts


def test_operators_are_listed_with_what_their_graph_knows_of_shapes(step):
    tool = Operators()
    with amanda.apply(tool):
        step()
    products = [row for row in tool.rows() if row.type in ("linear", "MatMul")]
    forward = [row for row in products if row.purpose == "model"][:2]
    outputs = [shape for row in forward for shape in row.output_shapes]
    assert [shape[1] for shape in outputs] == [4, 5]
    assert {shape[0] for shape in outputs} <= {2, None}
    assert all(len(row.inputs) == len(row.input_shapes) for row in tool.rows())


def test_an_optimizer_stands_apart_from_the_model():
    tool, step = Operators(), on_keras()
    with amanda.apply(tool):
        step()
    purposes = {
        row.purpose: {r.scope for r in tool.rows() if r.purpose == row.purpose}
        for row in tool.rows()
    }
    assert any("sequential" in scope for scope in purposes["model"])
    assert not any("sequential" in scope for scope in purposes["optimizer"])


def test_a_summary_has_the_same_numbers_everywhere(step):
    tool = Summary()
    with amanda.apply(tool):
        step()
    total = tool.totals()
    assert (total["params"], total["trainable"]) == (41, 41)
    assert total["flops"] == 2 * (2 * 3 * 4 + 2 * 4 * 5)
    assert total["param_bytes"] == 4 * 41
    assert tool.rows()[0].input_shape in ([2, 3], [None, 3])


def test_a_summary_of_keras_agrees_with_its_own():
    model = keras.Sequential(
        [keras.layers.Dense(4, name="one"), keras.layers.BatchNormalization(name="norm")]
    )
    tool = Summary()
    with amanda.apply(tool):
        model.predict(X, verbose=0)
    rows = {row.path.rpartition(".")[2]: row for row in tool.rows()}
    assert rows[""].params == model.count_params() == 12 + 4 + 16
    assert rows[""].trainable == sum(int(np.prod(w.shape)) for w in model.trainable_weights)
    assert (rows[""].type, rows["one"].type) == ("Sequential", "Dense")
    assert (rows["one"].input_shape, rows["one"].output_shape) == ([2, 3], [2, 4])
    assert rows["norm"].params == 16


def test_a_chrome_trace_has_a_slice_for_each_step_and_arrows_to_the_backward(step, tmp_path):
    with amanda.apply(Profile(tmp_path / "profile.json")):
        for _ in range(3):
            step()
    events = json.loads((tmp_path / "profile.json").read_text())
    steps = [event for event in events if event.get("cat") == "step"]
    assert len(steps) in (0, 3)  # a session's model has no name scopes here
    starts, ends = ([e for e in events if e["ph"] == ph] for ph in "sf")
    assert starts
    assert [start["id"] for start in starts] == [end["id"] for end in ends]
