"""The same Keras models with the same weights under the same tools, on both backends.

``keras_program.py`` runs once for each backend, in a process of its own.
"""

import json

import keras_process
import numpy as np
import pytest

# Known differences between the backends of Keras.
# - Which copies, casts and changes of shape lie between the operators that compute; that PyTorch
#   pads ahead of a convolution where TensorFlow's pads itself.
MOVES = {
    "Cast",
    "Identity",
    "Transpose",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Expand",
    "Slice",
    "Pad",
}
# - What a normalization is made of: several operators, or one.
NORMALIZATION = ("norm", "norm_after", "BN", "bn")


class Run:
    """What one process found of a model."""

    def __init__(self, folder):
        with np.load(folder / "arrays.npz") as arrays:
            self.arrays = dict(arrays)
        self.rows = json.loads((folder / "rows.json").read_text())

    def named(self, kind):
        """The arrays whose names begin with a kind, by the rest of their names."""
        prefix = f"{kind}/"
        return {k.removeprefix(prefix): a for k, a in self.arrays.items() if k.startswith(prefix)}


class Pair:
    """A model on both backends."""

    def __init__(self, torch, tensorflow):
        self.torch, self.tensorflow = torch, tensorflow
        # On PyTorch a scope is the path of a layer; on TensorFlow functions may add to it.
        self.layers = {scope for _, scope in self.torch.rows["trace"]}

    def layer(self, scope):
        while scope not in self.layers:
            scope = scope.rpartition("/")[0]
            assert scope, "an operator in no layer"
        return scope

    def is_normalization(self, layer):
        name = layer.rpartition("/")[2]
        return name.startswith(NORMALIZATION) or name.endswith(NORMALIZATION)

    def computing(self, run):
        """The operators that compute, each with its layer; a normalization as one."""
        found = []
        for type, scope in run.rows["trace"]:
            layer = self.layer(scope)
            row = ("a normalization", layer) if self.is_normalization(layer) else (type, layer)
            if type not in MOVES and row != (found[-1:] or [None])[0]:
                found.append(row)
        return found

    def activations(self, run):
        """What operators returned, in rows of the last axis, except inside of normalizations."""
        rows = [(type, self.layer(scope)) for type, scope in run.rows["activations"]]
        arrays = (run.arrays[f"activation/{i}"] for i in range(len(rows)))
        return [
            (row, array.reshape(-1, array.shape[-1]))
            for row, array in zip(rows, arrays, strict=True)
            if not self.is_normalization(row[1])
        ]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Of the backends, with a folder for each model."""
    found = [tmp_path_factory.mktemp(backend) for backend in ("torch", "tensorflow")]
    for backend, folder in zip(("torch", "tensorflow"), found, strict=True):
        keras_process.run(backend, "keras_program.py", folder)
    return found


@pytest.fixture(scope="module", params=["transformer", "mobilenet"])
def pair(request, folders):
    return Pair(*(Run(folder / request.param) for folder in folders))


def assert_close(found, expected):
    """Within a ten-thousandth of the largest element."""
    largest = np.abs(expected).max()
    assert largest > 0
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * largest)


def test_the_same_operators_compute_in_the_same_order_in_the_same_layers(pair):
    found = pair.computing(pair.torch)
    assert found == pair.computing(pair.tensorflow)
    assert len(found) > 25


def test_flops_are_equal_to_the_integer_by_type(pair):
    assert pair.torch.rows["flops"] == pair.tensorflow.rows["flops"] != {}


def test_activations_are_equal(pair):
    found, expected = pair.activations(pair.torch), pair.activations(pair.tensorflow)
    assert [row for row, _ in found] == [row for row, _ in expected]
    assert len(found) > 15
    for (_, one), (_, other) in zip(found, expected, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("tool", ["pruned", "quantized", "rounded"])
def test_outputs_under_a_tool_that_changes_weights_are_equal(pair, tool):
    found, expected = pair.torch.arrays[tool], pair.tensorflow.arrays[tool]
    assert_close(found, expected)
    assert np.abs(found - pair.torch.arrays["plain"]).max() > 1e-4  # the tool had its effect


def test_the_same_tensors_are_quantized(pair):
    found, expected = (
        [(type, pair.layer(scope), *rest) for type, scope, *rest in run.rows["rounded"]]
        for run in (pair.torch, pair.tensorflow)
    )
    assert found == expected
    assert {(input, kind) for *_, input, kind in found} >= {("A", "activation"), ("B", "weight")}


def test_outputs_of_quantized_activations_are_as_near_as_rounding_lets_them(pair):
    found, expected = (run.arrays["rounded activations"] for run in (pair.torch, pair.tensorflow))
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.02 * np.abs(expected).max())
    assert np.abs(found - pair.torch.arrays["plain"]).max() > 1e-4


def test_gradients_after_a_step_with_masked_weights_are_equal(pair):
    found, expected = pair.torch.named("gradient"), pair.tensorflow.named("gradient")
    assert found.keys() == expected.keys()
    for path in found:
        if not path.endswith("key/bias"):  # the same for all keys, it changes no attention
            assert_close(found[path], expected[path])


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a_step_of_keras_own_training_goes_along_these_gradients(pair, backend):
    run = getattr(pair, backend)
    start, gradients, fitted = run.named("start"), run.named("gradient"), run.named("fitted")
    assert len(fitted) > 10
    for path in fitted:
        np.testing.assert_allclose(fitted[path], start[path] - gradients[path], atol=1e-5)


def test_weights_after_a_step_of_keras_own_training_are_equal(pair):
    found, expected = pair.torch.named("fitted"), pair.tensorflow.named("fitted")
    assert found.keys() == expected.keys()
    for path in found:
        np.testing.assert_allclose(found[path], expected[path], atol=1e-5)


def test_gradients_that_a_tool_sees_by_role_are_equal(pair):
    found, expected = (
        {pair.layer(scope): gradient for scope, gradient in run.named("by role").items()}
        for run in (pair.torch, pair.tensorflow)
    )
    assert found.keys() == expected.keys()
    for layer in found:
        assert_close(found[layer], expected[layer])


def test_one_filter_by_scope_selects_the_same_layers(pair):
    first = sorted(pair.layers)[len(pair.layers) // 2]
    found, expected = (
        {pair.layer(scope) for type, scope in run.rows["trace"] if scope.startswith(first)}
        for run in (pair.torch, pair.tensorflow)
    )
    assert found == expected != set()
