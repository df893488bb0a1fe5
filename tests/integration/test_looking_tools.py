"""Activations, gradients, steering and patching, on each framework against plain NumPy."""

import json
import os
import resource

import amanda
import keras_process
import looking_models as models
import numpy as np
import pytest
import torch
from amanda_tools import Operators
from amanda_tools.activations import Activations, read_tensors
from amanda_tools.changes import Patch, Steer
from amanda_tools.gradients import Gradients
from looking_models import X
from safetensors.numpy import load_file
from torch import nn

HIDDEN, OUTPUT = models.plain()
OTHER = X[::-1] * 2


@pytest.fixture(params=models.MODELS.values(), ids=models.MODELS)
def model(request):
    return request.param()


def relu(model):
    """The id of the second ReLU."""
    tool = Operators()
    with amanda.apply(tool):
        model.run()
    return [row.id for row in tool.rows() if row.type.lower() == "relu"][1]


class TestActivations:
    def test_statistics_over_a_data_set_are_those_of_all_elements(self, model, tmp_path):
        tool = Activations(ops=["Relu"], namespace="onnx", out=tmp_path / "found.json")
        with amanda.apply(tool):
            for x in (X, OTHER):
                model.run(x)
        whole = np.concatenate([HIDDEN, models.plain(OTHER)[0]]).astype(np.float64)
        row = tool.rows()[1]
        assert (row.type, row.executions, row.elements) == ("Relu", 2, whole.size)
        expected = (whole.mean(), whole.std(), whole.min(), whole.max(), (whole == 0).mean())
        found = (row.mean, row.std, row.least, row.most, row.zeros)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert row.not_finite == 0
        written = json.loads((tmp_path / "found.json").read_text())
        assert written["activations"][1]["mean"] == row.mean

    def test_captures_go_to_a_file_put_together(self, model, tmp_path):
        id = relu(model)
        paths = [tmp_path / "kept.npz", tmp_path / "kept.safetensors"]
        tools = [Activations(["Relu"], namespace="onnx", capture=6, out=path) for path in paths]
        with amanda.apply(*tools):
            for x in (X, OTHER):
                model.run(x)
        whole = np.concatenate([HIDDEN, models.plain(OTHER)[0]])[:6]
        found = [*map(read_tensors, paths), np.load(paths[0]), load_file(paths[1])]
        for tensors in (tools[0].captures(), *found):
            np.testing.assert_allclose(tensors[id], whole, rtol=1e-5, atol=1e-6)

    def test_what_does_not_fit_together_is_apart(self):
        tool = Activations(ops=["relu"], capture=100)
        with amanda.apply(tool):
            for size in (2, 3):
                torch.ones(1, size).relu()
        assert {name: a.shape for name, a in tool.captures().items()} == {
            "relu/0": (1, 2),
            "relu/1": (1, 3),
        }

    @pytest.mark.parametrize(
        ("make", "module"),
        [(models.OnTorch, "second"), (models.OnKeras, "net/second")],
        ids=["torch", "keras"],
    )
    def test_of_modules(self, make, module):
        net = make()
        tool = Activations(modules=[module], capture=10)
        with amanda.apply(tool):
            expected = net.run()
        assert np.array_equal(tool.captures()[module], expected)

    def test_what_is_not_finite_is_counted(self):
        tool = Activations(ops=["log"])
        with amanda.apply(tool):
            torch.tensor([0.0, 1.0, -1.0]).log()
        assert [(r.not_finite, r.mean) for r in tool.rows()] == [(2, 0)]

    def test_operators_and_modules_at_once_are_refused(self):
        with pytest.raises(ValueError, match="not both"):
            Activations(ops=["relu"], modules=["*"])

    def test_what_does_not_fit_on_the_disk_is_said_and_ends_no_program(self, tmp_path, capsys):
        paths = [tmp_path / "kept.npz", tmp_path / "kept.safetensors"]
        tools = [Activations(["exp"], out=path) for path in paths]
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            with amanda.apply(*tools):
                for _ in range(3):
                    torch.zeros(100).exp()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        for tool, path in zip(tools, paths, strict=True):
            assert tool.captures()["exp"].tolist() == [1] * 200
            assert "File too large" in tool.report()[0]
            assert read_tensors(path).keys() <= {"exp"}
        assert capsys.readouterr().err.count("capturing stopped, the program goes on") == 2

    def test_a_process_that_was_forked_leaves_captures_alone(self, monkeypatch):
        with amanda.apply(tool := Activations(["exp"], capture=9)):
            torch.zeros(2).exp()
            with monkeypatch.context() as forked:
                forked.setattr(os, "getpid", lambda: -1)
                torch.ones(2).exp()
        assert tool.captures()["exp"].tolist() == [1, 1]

    def test_captures_of_nothing_are_refused(self):
        with pytest.raises(ValueError, match="capture is 0, and has to be 1 or more"):
            Activations(capture=0)


class TestGradients:
    def test_norms_are_those_of_the_parameters(self, model, tmp_path):
        tool = Gradients(out=tmp_path / "found.json")
        with amanda.apply(tool):
            for _ in range(2):
                model.train()
        expected = {name: float(grad.norm()) for name, grad in models.gradients().items()}
        rows = tool.rows()
        assert sorted((row.operators, row.steps) for row in rows) == [(1, 2)] * 2 + [(2, 2)] * 2
        norms = sorted(row.norm for row in rows)
        np.testing.assert_allclose(norms, sorted(expected.values()), rtol=1e-4)
        total = np.sqrt(sum(norm**2 for norm in expected.values()))
        written = json.loads((tmp_path / "found.json").read_text())
        np.testing.assert_allclose(written["total"]["norm"], total, rtol=1e-4)
        layers = np.sqrt(sum(norm**2 for norm in written["layers"].values()))
        np.testing.assert_allclose(layers, total, rtol=1e-4)

    @pytest.mark.parametrize("inputs", [3, 2])
    def test_of_a_matrix_that_is_used_both_ways(self, inputs):
        net, tool = nn.Linear(inputs, 2, bias=False), Gradients()
        x = torch.from_numpy(X)[:, :inputs]
        with amanda.apply(tool):
            nn.functional.linear(net(x), net.weight.t()).square().sum().backward()
        (row,) = tool.rows()
        assert row.operators == 2
        np.testing.assert_allclose(row.norm, float(net.weight.grad.norm()), rtol=1e-5)

    def test_of_parameters_that_the_loss_goes_over(self):
        net, tool = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 4)), Gradients()
        with amanda.apply(tool):
            loss = net(torch.from_numpy(X)).square().sum()
            for parameter in net.parameters():
                loss = loss + parameter.square().sum()
            loss.backward()
        expected = [float(parameter.grad.norm()) for parameter in net.parameters()]
        np.testing.assert_allclose([row.norm for row in tool.rows()], expected, rtol=1e-5)

    def test_of_a_matrix_that_is_cut_up(self):
        attention, tool = nn.MultiheadAttention(4, 2), Gradients()
        with amanda.apply(tool):
            attention(*[torch.randn(3, 1, 4) for _ in range(3)])[0].sum().backward()
        norms = sorted(row.norm for row in tool.rows())
        expected = sorted(float(p.grad.norm()) for p in attention.parameters())
        np.testing.assert_allclose(norms, expected, rtol=1e-5, atol=1e-6)

    def test_a_layer_has_those_of_its_parameters_together(self):
        net, tool = models.OnTorch(), Gradients()
        with amanda.apply(tool):
            net.train()
        layer = net.model.second
        norm = torch.cat([layer.weight.grad.flatten(), layer.bias.grad]).norm()
        np.testing.assert_allclose(tool.layers()["second"], float(norm), rtol=1e-6)

    def test_what_is_not_finite_is_counted(self):
        net, tool = models.OnTorch(), Gradients()
        net.model.second.bias.data[0] = float("nan")
        with amanda.apply(tool):
            net.train()
        assert tool.totals()["not_finite"] > 0

    def test_that_of_complex_numbers_has_their_magnitudes(self):
        weight, tool = torch.nn.Parameter(torch.tensor([[3 + 4j, 1j]])), Gradients()
        with amanda.apply(tool):
            (torch.ones(1, 1, dtype=torch.complex64) @ weight).abs().square().sum().backward()
        assert tool.totals()["norm"] == pytest.approx(2 * 26**0.5)


class TestChanges:
    def test_steering_adds_a_vector(self, model):
        id, vector = relu(model), np.array([1, -2, 3], np.float32)
        with amanda.apply(Steer(vector, operator=id, scale=0.5)):
            found = model.run()
        expected = models.plain(change=lambda y: y + vector * 0.5)[1]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    def test_patching_puts_what_another_run_gave(self, model, tmp_path):
        id = relu(model)
        capture = Activations(ops=["Relu"], namespace="onnx", out=tmp_path / "kept.npz")
        with amanda.apply(capture):
            other = model.run(OTHER)
        with amanda.apply(Patch(str(tmp_path / "kept.npz"), operator=id)):
            assert np.array_equal(model.run(), other)

    @pytest.mark.parametrize("change", [Steer, Patch])
    def test_what_is_put_there_is_as_exact_as_the_output(self, change):
        x, vector = torch.ones(2, 3, dtype=torch.float64), [0.1, 0.2, 0.3]
        with amanda.apply(change(vector, operator="mul")):
            found = x * 0
        assert found.tolist() == [vector, vector]

    @pytest.mark.parametrize("change", [Steer, Patch])
    def test_what_the_output_cannot_hold_is_refused(self, change):
        with (
            amanda.apply(change([0.5, 1.5], operator="argmax")),
            pytest.raises(amanda.UnsupportedError, match=r"'argmax'.* gives int64, which cannot"),
        ):
            torch.ones(2, 3).argmax(1)

    def test_values_of_other_shapes_are_refused(self):
        with (
            amanda.apply(Patch(np.zeros((2, 3), np.float32), operator="relu")),
            pytest.raises(amanda.RoutineError, match=r"shape \(2, 3\) do not fit .*\(2, 4\)"),
        ):
            torch.ones(2, 4).relu()

    def test_what_is_changed_is_told_and_written(self, tmp_path):
        net, places = models.OnTorch(), {"operator": "first/linear", "tokens": [0, 2]}
        steer = Steer(np.ones(1), **places, out=tmp_path / "steer.json")
        patch = Patch(np.zeros(1), **places, out=tmp_path / "patch.csv")
        with amanda.apply(steer, patch):
            net.run()
        (row,) = json.loads((tmp_path / "steer.json").read_text())["changed"]
        assert (row["type"], row["scope"], row["tokens"]) == ("linear", "first", [0, 2])
        assert "looking_models.py:" in row["source"]
        head, line = (tmp_path / "patch.csv").read_text().splitlines()
        assert head == "id,type,scope,source,tokens"
        assert line.startswith("first/linear,linear,first,")
        assert repr(patch) == "<Patch: 1 outputs changed at 'first/linear'>"

    def test_what_does_not_run_is_said(self):
        net = models.OnTorch()
        with (
            pytest.warns(amanda.AmandaWarning, match=r"'first/relu' did not run.*first/linear"),
            amanda.apply(Steer(np.ones(3), operator="first/relu")),
        ):
            net.run()

    def test_a_place_without_a_value_is_refused(self):
        with pytest.raises(LookupError, match="no value for 'relu', but for exp"):
            Patch({"exp": X}, operator="relu")

    @pytest.mark.parametrize("places", [{}, {"operator": "a", "module": "b"}])
    def test_one_place_is_named(self, places):
        with pytest.raises(ValueError, match="an operator or a module"):
            Steer(X, **places)


def test_all_of_it_on_the_other_backend_of_keras():
    keras_process.run("torch", "keras_looking_program.py")
