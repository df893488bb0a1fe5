"""Around layers that TensorFlow computes in several operators, a tool does the same on both.

``keras_layers_program.py`` runs once for each backend, in a process of its own.
"""

import keras_process
import numpy as np
import pytest

LAYERS = [
    *("gelu", "silu", "hard_sigmoid", "hard_silu", "celu", "elu", "hard_shrink", "soft_shrink"),
    *("softmax", "layer_norm", "rms_norm", "conv1d", "depthwise1d", "dilated1d", "dilated2d"),
    *("grouped", "max_pool1d", "avg_pool1d", "transpose1d", "separable1d", "dilated_separable1d"),
    *("batch_norm", "batch_norm_axis1", "softsign"),
    *("attention", "causal", "scores", "squareplus", "sparse_plus", "relu"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    arrays = {}
    for backend in ("torch", "tensorflow"):
        file = tmp_path_factory.mktemp(backend) / "arrays.npz"
        keras_process.run(backend, "keras_layers_program.py", file)
        with np.load(file) as loaded:
            arrays[backend] = dict(loaded)
    return arrays


@pytest.mark.parametrize("layer", LAYERS)
def test_results_and_gradients_under_a_mask_are_the_same(found, layer):
    mine, theirs = (
        {name: array for name, array in found[backend].items() if name.startswith(f"{layer}/")}
        for backend in ("torch", "tensorflow")
    )
    assert mine.keys() == theirs.keys()
    for name in mine:
        largest = max(1, np.abs(theirs[name]).max())
        np.testing.assert_allclose(mine[name], theirs[name], 1e-4, 1e-5 * largest, err_msg=name)
