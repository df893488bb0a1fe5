"""Around layers that TensorFlow computes in several operators, a tool does the same on both.

``keras_layers_program.py`` runs once for each backend, in a process of its own.
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
LAYERS = [
    *("gelu", "silu", "hard_sigmoid", "hard_silu", "celu", "elu", "hard_shrink", "soft_shrink"),
    *("softmax", "layer_norm", "rms_norm", "conv1d", "depthwise1d", "dilated1d", "dilated2d"),
    *("grouped", "max_pool1d", "avg_pool1d", "transpose1d", "separable1d", "dilated_separable1d"),
    *("attention", "causal", "scores", "squareplus", "sparse_plus", "relu"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    arrays = {}
    for backend in ("torch", "tensorflow"):
        file = tmp_path_factory.mktemp(backend) / "arrays.npz"
        settings = {
            "KERAS_BACKEND": backend,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "",
        }
        command = [sys.executable, str(HERE / "keras_layers_program.py"), str(file)]
        subprocess.run(command, env=os.environ | settings, check=True, cwd=HERE)
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
