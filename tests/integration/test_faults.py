"""Faults that are injected, held to a NumPy reference; and campaigns of them."""

import csv
import json
import struct
import zlib

import amanda
import numpy as np
import pytest
import tensorflow as tf
import torch
from amanda_tools import Faults, campaign
from torch import nn

RANDOM = np.random.default_rng(0)
W = RANDOM.standard_normal((4, 3)).astype(np.float32)  # of a linear layer, out and in
X = RANDOM.standard_normal((5, 3)).astype(np.float32)


def reference(array, key, iteration, *, seed, rate, bits):
    """The flips that a seed stands for, element by element."""
    random = np.random.default_rng([seed, zlib.crc32(key.encode()), iteration])
    number = random.binomial(array.size, rate)
    elements = random.choice(array.size, number, replace=False)
    result = array.copy()
    for element, bit in zip(elements, random.choice(bits, number), strict=True):
        (word,) = struct.unpack("<I", struct.pack("<f", array.flat[element]))
        result.flat[element] = struct.unpack("<f", struct.pack("<I", word ^ (1 << bit)))[0]
    return result


def on_torch():
    layer = nn.Linear(3, 4, bias=False)
    layer.weight.data = torch.from_numpy(W)
    model = nn.Sequential()
    model.add_module("layer", layer)

    def step():
        layer.weight.grad = None
        y = model(torch.from_numpy(X))
        y.sum().backward()
        return y.detach().numpy(), layer.weight.grad.numpy()

    return step


def in_a_function():
    weight = tf.Variable(W.T)

    @tf.function
    def forward():
        with tf.GradientTape() as tape, tf.name_scope("layer"):
            y = tf.linalg.matmul(X, weight)
        return y, tape.gradient(y, weight)

    def step():
        y, grad = forward()
        return y.numpy(), grad.numpy().T

    return step


def in_a_session():
    graph = tf.Graph()
    with graph.as_default():
        weight = tf.compat.v1.get_variable("w", initializer=W.T)
        with tf.name_scope("layer"):
            y = tf.linalg.matmul(tf.constant(X), weight)
        grad = tf.gradients(y, weight)[0]
        start = tf.compat.v1.global_variables_initializer()
    session = tf.compat.v1.Session(graph=graph)
    session.run(start)

    def step():
        y_value, grad_value = session.run([y, grad])
        return y_value, grad_value.T

    return step


@pytest.fixture(params=[on_torch, in_a_function, in_a_session])
def step(request):
    return request.param()


SEEDED = {"rate": 0.3, "seed": 7, "bits": list(range(23, 32))}


class TestFlipsAreThoseOfTheReference:
    def expected(self, array, iteration):
        return reference(array, "layer/Gemm", iteration, **SEEDED)

    def test_in_activations_anew_at_each_execution(self, step):
        tool = Faults("activations", **SEEDED)
        with amanda.apply(tool):
            results = [step()[0] for _ in range(2)]
        plain = step()[0]
        for iteration, result in enumerate(results):
            np.testing.assert_array_equal(result, self.expected(plain, iteration))
        assert tool.injected == len(tool.rows()) > 5
        assert {row.iteration for row in tool.rows()} == {0, 1}

    def test_in_weights_where_they_stay(self, step):
        tool = Faults("weights", **SEEDED)
        with amanda.apply(tool):
            results = [step()[0] for _ in range(2)]
        weight = self.expected(W, 0)
        changed = np.abs(weight - W).max(1) > 0
        plain = step()[0]
        for result in results:
            np.testing.assert_allclose(result, X @ weight.T, rtol=1e-5)
            np.testing.assert_array_equal(result[:, ~changed], plain[:, ~changed])
        assert tool.injected == (weight != W).sum()  # once, however often it ran
        for row in tool.rows():
            assert row.before == W.flat[row.element]
            assert row.after == weight.flat[row.element]

    def test_in_gradients(self, step):
        tool = Faults("gradients", **SEEDED)
        with amanda.apply(tool):
            output, grad = step()
        plain_output, plain = step()
        np.testing.assert_array_equal(grad, self.expected(plain, 0))
        np.testing.assert_array_equal(output, plain_output)


def test_a_value_takes_the_place_of_elements():
    step = on_torch()
    tool = Faults(value=float("inf"), count=3)
    with amanda.apply(tool):
        output, _ = step()
    assert np.isinf(output).sum() == 3
    assert [row.bit for row in tool.rows()] == [None] * 3


def test_numbers_that_json_lacks_are_strings_in_files(tmp_path):
    for value, name in ((float("inf"), "Infinity"), (float("nan"), "NaN")):
        with amanda.apply(Faults(value=value, out=tmp_path / "faults.json")):
            torch.ones(1, 2) @ torch.ones(2, 2)
        text = (tmp_path / "faults.json").read_text()
        (row,) = json.loads(text, parse_constant=pytest.fail)["faults"]
        assert (row["before"], row["after"]) == (2.0, name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_bits_are_those_of_the_type_of_the_tensor(dtype):
    layer = nn.Linear(3, 4).to(dtype)
    x = torch.ones(2, 3, dtype=dtype)
    tool = Faults(bits="sign")
    with torch.no_grad(), amanda.apply(tool):
        faulty = layer(x)
    (row,) = tool.rows()
    assert row.after == -row.before
    assert faulty.flatten()[row.element].item() == row.after


def test_of_a_type_of_another_framework_too():
    weight = tf.Variable(tf.cast(W.T, tf.bfloat16))
    function = tf.function(lambda: tf.linalg.matmul(tf.cast(X, tf.bfloat16), weight))
    plain = function()
    tool = Faults(bits=[15])
    with amanda.apply(tool):
        faulty = function()
    differs = np.flatnonzero(faulty.numpy() != plain.numpy())
    assert differs.tolist() == [tool.rows()[0].element]
    assert faulty.numpy().flat[differs[0]] == -plain.numpy().flat[differs[0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 1.5}, "rate is 1.5, and has to be from 0 to 1"),
        ({"count": -1}, "have to be 0 or more"),
        ({"bits": "parity"}, "bits are numbers, sign, exponent or mantissa"),
        ({"target": "inputs"}, "target is weights, activations or gradients"),
        ({"rate": 0.5, "count": 2}, "count=2: with rate it has no effect"),
        ({"value": 0, "bits": "sign"}, "bits=sign: with value it has no effect"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Faults(**options)


def test_bits_that_a_tensor_does_not_have_are_refused_by_name():
    with (
        pytest.raises(amanda.RoutineError, match=r"layer/linear.*float32 has bits 0 to 31"),
        amanda.apply(Faults(bits=[40])),
    ):
        on_torch()()


def test_numbers_whose_bits_are_not_known_are_refused():
    with (
        pytest.raises(amanda.RoutineError, match="nothing is known of the bits of complex64"),
        amanda.apply(Faults(dtype="float32", ops=["torch::matmul"])),
    ):
        torch.ones(3, 3, dtype=torch.complex64) @ torch.ones(3, 3, dtype=torch.complex64)


def test_layers_that_are_computed_as_one_are_refused_by_name():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    tools = amanda.apply(Faults())
    with torch.no_grad(), tools, pytest.raises(amanda.UnsupportedError, match="set_fastpath"):
        layer(torch.ones(1, 3, 8))
    network = nn.LSTM(5, 4, num_layers=2)
    with amanda.apply(Faults()), pytest.raises(amanda.UnsupportedError, match="of one layer"):
        network(torch.ones(3, 1, 5))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"trials": 0}, "trials is 0"), ({"by": "Layer"}, "by is 'element' or 'layer', not 'Layer'")],
)
def test_options_of_a_campaign_out_of_range_are_refused_before_anything_runs(options, message):
    with pytest.raises(ValueError, match=message):
        campaign(pytest.fail, **options)


class TestCampaign:
    @pytest.fixture
    def classify(self):
        step = on_torch()
        return lambda: step()[0].argmax(1)

    def test_counts_changes_by_layer_and_bit(self, classify):
        found = campaign(classify, 60, bits=[0, 30], seed=3)
        assert len(found.rows()) == 60
        assert set(found.by_bit()) == {0, 30}
        assert found.by_bit()[0].changed == 0
        assert found.by_bit()[30].changed > 5
        assert found.by_layer()["layer/linear"].trials == 60
        total = found.totals()
        assert total["changed"] == sum(row.outcome == "changed" for row in found.rows())
        assert f"{total['rate']:.1%} changed a prediction" in found.report()[-1]

    def test_a_trial_is_what_the_fault_makes_of_the_model(self, classify):
        plain = on_torch()()[0]
        for row in campaign(classify, 20, bits="exponent").rows():
            faulty = plain.copy()
            assert faulty.flat[row.element] == row.before
            faulty.flat[row.element] = row.after
            changed = (faulty.argmax(1) != plain.argmax(1)).mean()
            assert (row.changed, row.outcome == "changed") == (changed, changed > 0)

    def test_is_the_same_for_the_same_seed_on_every_backend(self):
        def trials(step, target, seed=0):
            found = campaign(lambda: step()[0].argmax(1), 20, target, bits="exponent", seed=seed)
            return [(row.element, row.bit, row.outcome) for row in found.rows()]

        for target in ("weights", "activations"):
            on_each = [trials(make(), target) for make in (on_torch, in_a_function, in_a_session)]
            assert on_each[0] == on_each[1] == on_each[2]
            assert on_each[0] != trials(on_torch(), target, seed=1)

    def test_goes_on_where_a_model_fails_of_a_fault(self):
        step = on_torch()

        def run():
            output = step()[0]
            if np.abs(output).max() > 1e6:
                raise OverflowError("too large")
            return output.argmax(1)

        found = campaign(run, 20, bits=[30])
        assert 0 < found.totals()["failed"] < 20

    def test_of_a_run_that_is_random_or_has_no_layer_is_refused(self):
        step = on_torch()
        with pytest.raises(ValueError, match="seed what is random"):
            campaign(lambda: step()[0] + np.random.default_rng().random(), 2)
        with pytest.raises(ValueError, match="runs no operator with activations"):
            campaign(lambda: torch.ones(3).relu(), 2)

    def test_is_written_as_json_and_csv(self, classify, tmp_path):
        found = campaign(classify, 3)
        found.save(tmp_path / "trials.json")
        found.save(tmp_path / "trials.csv")
        written = json.loads((tmp_path / "trials.json").read_text())
        assert written["total"]["trials"] == 3
        with (tmp_path / "trials.csv").open(newline="") as file:
            lines = list(csv.DictReader(file))
        assert [line["outcome"] for line in lines] == [row.outcome for row in found.rows()]


def test_faults_of_a_weight_that_a_table_shares_are_not_made_permanent_unnoticed():
    table, tool = nn.Embedding(4, 3), Faults("weights", count=2, bits="sign")
    with torch.no_grad(), amanda.apply(tool):
        table(torch.tensor([0, 1])) @ table.weight.T
    with pytest.raises(amanda.UnsupportedError, match="another operator is given it otherwise"):
        tool.make_permanent(table)
