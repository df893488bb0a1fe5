"""Errors of tools get through Keras as they are, on each of its backends.

``keras_errors_program.py`` runs once for each backend, in a process of its own.
"""

import json

import keras_process
import pytest


@pytest.fixture(scope="module", params=["torch", "tensorflow"])
def found(request, tmp_path_factory):
    file = tmp_path_factory.mktemp(request.param) / "errors.json"
    keras_process.run(request.param, "keras_errors_program.py", file)
    return json.loads(file.read_text())


@pytest.mark.parametrize("run", ["predict", "fit", "call"])
@pytest.mark.parametrize("model", ["dense", "nested"])
@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("analysis", ["RoutineError", "KeyError"]),
        ("routine", ["RoutineError", "KeyError"]),
        ("action", ["ActionError", "NoneType"]),
    ],
)
def test_an_error_of_a_tool_is_itself_with_its_cause(found, model, way, run, expected):
    name = f"{model} {way} {run}"
    if name not in found["tools"]:
        assert run == "call"  # which TensorFlow runs eagerly
        return
    *kinds, message = found["tools"][name]
    assert kinds == expected
    assert "Failing" in message
    assert "Exception encountered" not in message


def test_an_error_of_the_program_is_as_without_tools(found):
    plain, beside = found["own"]
    assert plain == beside
    assert "mine" in plain[1]
