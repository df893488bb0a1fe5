"""A tool that looks at modules sees the same layers of Keras on both backends, and does the same.

``keras_modules_program.py`` runs once for each backend, in a process of its own, and imports Keras
in a scope. Keras runs each model on stand-ins when it is built: nobody is to see anything of that.
"""

import json

import keras_process
import numpy as np
import pytest


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    results = {}
    for backend in ("torch", "tensorflow"):
        file = tmp_path_factory.mktemp(backend) / "found.json"
        keras_process.run_without_keras(backend, "keras_modules_program.py", file)
        results[backend] = json.loads(file.read_text())
    return results


def test_classes_paths_and_names_of_inputs_are_the_same(found):
    expected = [
        ["Dense", "head", ["inputs"]],
        ["Dense", "open", ["inputs"]],
        ["Dense", "value", ["inputs"]],
        ["Functional", "net", ["inputs"]],
        ["Gate", "gate", ["inputs.value", "inputs.key"]],
    ]
    for backend in ("torch", "tensorflow"):
        assert [json.loads(each) for each in found[backend]["seen"]] == expected


def test_sources_are_lines_of_the_program(found):
    for backend in ("torch", "tensorflow"):
        assert found[backend]["files"] == ["keras_modules_model.py"]


def test_outputs_have_the_shapes_of_batches_and_never_those_of_stand_ins(found):
    layers = ("net", "value", "gate", "open", "head")
    for backend in ("torch", "tensorflow"):
        assert found[backend]["shapes"] == {layer: [[[4, 2]]] for layer in layers}


def test_a_changed_gradient_trains_the_same_model(found):
    for mine, theirs in zip(*(found[b]["weights"] for b in ("torch", "tensorflow")), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_a_function_of_keras_that_is_one_operator_is_seen_as_one(found):
    given = np.linspace(-1, 1, 24).reshape(1, 2, 3, 4)
    for backend in ("torch", "tensorflow"):
        np.testing.assert_allclose(
            found[backend]["normalized"], -given / np.sqrt(1.5), atol=1e-6, err_msg=backend
        )
