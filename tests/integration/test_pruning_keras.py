"""Keras models that are trained under tools that prune, the same on both backends.

``pruning_program.py`` runs once for each backend, in a process of its own.
"""

import keras_process
import numpy as np
import pytest

KINDS = ["magnitude", "tiles", "vectors", "vectors_spelled_out", "channels"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    found = {}
    for backend in ("torch", "tensorflow"):
        file = tmp_path_factory.mktemp(backend) / "arrays.npz"
        keras_process.run(backend, "pruning_program.py", file)
        with np.load(file) as arrays:
            found[backend] = dict(arrays)
    return found


def of_kind(arrays, kind):
    return {k.partition("/")[2]: a for k, a in arrays.items() if k.partition("/")[0] == kind}


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_the_same(runs, kind):
    torch, tensorflow = (of_kind(arrays, kind) for arrays in runs.values())
    assert torch.keys() == tensorflow.keys()
    for name, array in torch.items():
        np.testing.assert_allclose(array, tensorflow[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_attention_is_pruned_alike_whether_it_is_fused_or_not(runs, backend):
    fused, spelled_out = (
        of_kind(runs[backend], kind) for kind in ("vectors", "vectors_spelled_out")
    )
    for name, array in fused.items():
        np.testing.assert_allclose(array, spelled_out[name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.parametrize("kind", ["magnitude", "tiles", "vectors"])
def test_what_is_permanent_computes_as_under_the_tool(runs, backend, kind):
    found = of_kind(runs[backend], kind)
    np.testing.assert_allclose(found["permanent"], found["output"], rtol=1e-5, atol=1e-5)
    assert found["zeros"].all()
    assert found["written"].sum() >= found["zeros"].sum()
