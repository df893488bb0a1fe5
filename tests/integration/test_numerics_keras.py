"""Tools about numerics find the same of one Keras model on both backends.

``keras_numerics_program.py`` runs once for each backend, in a process of its own.
"""

import json

import keras_process
import numpy as np
import pytest
from amanda_tools import compare_records


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Where each backend wrote what was found."""
    folders = {b: tmp_path_factory.mktemp(b) for b in ("torch", "tensorflow")}
    for backend, folder in folders.items():
        keras_process.run(backend, "keras_numerics_program.py", folder)
    return folders


@pytest.fixture(scope="module")
def found(folders):
    """What was found on each backend."""
    return {b: json.loads((path / "found.json").read_text()) for b, path in folders.items()}


@pytest.mark.parametrize("target", ["weights", "activations", "gradients"])
def test_a_seed_gives_the_same_faults(found, target):
    one, other = (found[backend]["faults"][target] for backend in ("torch", "tensorflow"))
    assert len(one) > 5
    assert {row[0] for row in one} == {"net/conv", "net/dense"}
    assert [row[:4] for row in one] == [row[:4] for row in other]
    if target == "gradients":
        return
    # Values too, of activations those of the first layer alone, which has the same inputs. What is
    # smaller than normal numbers TensorFlow takes for zero.
    scopes = ("net/conv", "net/dense") if target == "weights" else ("net/conv",)
    values = [[row[4:] for row in rows if row[0] in scopes] for rows in (one, other)]
    np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-30)


def test_a_campaign_has_the_same_trials(found):
    assert found["torch"]["trials"] == found["tensorflow"]["trials"]
    assert {trial[3] for trial in found["torch"]["trials"]} == {"same", "changed"}


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_the_operator_that_makes_an_infinity_is_named(found, backend):
    row = found[backend]["nonfinite"]
    assert (row["scope"], row["made"], row["of"]) == ("net/inverse", "inf", "finite")
    file, _, line = row["source"].rpartition(":")
    with open(file) as program:
        assert "# where it goes wrong" in program.readlines()[int(line) - 1]


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_kernels_are_joined_to_layers(found, backend):
    launches = found[backend]["kernels"]
    for layer in ("net/conv/", "net/dense/"):
        for direction in ("forward", "backward"):
            counts = [n for k, n in launches.items() if layer in k and k.endswith(direction)]
            assert counts
            assert all(count % 3 == 0 for count in counts)  # of three steps


class TestCompare:
    def test_finds_no_difference_between_the_backends(self, folders):
        found = compare_records(*(folders[b] / "same.npz" for b in ("torch", "tensorflow")))
        assert found.first() is None
        layers = found.by_layer()
        assert {"net/conv", "net/dense"} <= layers.keys()
        assert "Conv" in {row.type for row in layers["net/conv"]}
        assert {row.compared for row in layers["net/conv"]} <= {"digest", "values"}

    @pytest.mark.parametrize("backends", [("torch", "tensorflow"), ("tensorflow", "tensorflow")])
    def test_names_the_layer_whose_weight_is_another(self, folders, backends):
        one, other = backends
        found = compare_records(folders[one] / "same.npz", folders[other] / "changed.npz")
        assert (found.first().scope, found.first().type) == ("net/dense", "Gemm")

    def test_compares_gradients_across_backends(self, folders):
        found = compare_records(*(folders[b] / "step.npz" for b in ("torch", "tensorflow")))
        assert found.first() is None
        gradients = {(r.type, r.tensor) for r in found.rows() if r.direction == "backward"}
        assert {("Conv", "W"), ("Gemm", "A"), ("Gemm", "B")} <= gradients
