"""Every entry of every map, held to the operator schemas of the ``onnx`` package."""

import json
from pathlib import Path

import amanda_contextmap.schema
import pytest
from amanda_contextmap.dtypes import CODES
from amanda_contextmap.tensorflow import context_map as tensorflow_map
from amanda_contextmap.testing import assert_in_schema, schemas
from amanda_contextmap.torch import context_map as torch_map
from onnx import TensorProto

ENTRIES = [
    pytest.param(rule, id=f"{found.vocabulary}-{type}-{number}")
    for found in (torch_map, tensorflow_map)
    for type, rules in found.rules.items()
    for number, rule in enumerate(rules)
]


@pytest.mark.parametrize("rule", ENTRIES)
def test_types_roles_attributes_and_outputs_exist(rule):
    assert_in_schema(rule.type, rule.roles, rule.attrs, rule.outputs or ())


@pytest.mark.parametrize("rule", ENTRIES)
def test_layouts_are_of_its_roles_and_outputs(rule):
    bare = {role.partition("[")[0] for role in rule.roles}
    known = bare | set(rule.roles) | set(rule.outputs or ())
    assert set(rule.layouts) <= known


def test_the_types_of_data_are_those_of_the_package():
    written = Path(amanda_contextmap.schema.__file__).with_name("schemas.json").read_text("utf-8")
    assert json.loads(written) == json.loads(json.dumps(schemas()))


@pytest.mark.parametrize("name", CODES)
def test_data_types_have_the_numbers_of_onnx(name):
    onnx_name = {"float32": "FLOAT", "float64": "DOUBLE"}.get(name, name.upper().replace("_", ""))
    assert CODES[name] == TensorProto.DataType.Value(onnx_name)


@pytest.mark.parametrize(
    ("type", "roles", "attrs", "outputs"),
    [
        ("Convolution", ["X"], [], []),
        ("Conv", ["weight"], [], []),
        ("Conv", ["X"], ["padding"], []),
        ("Conv", ["X"], [], ["Z"]),
    ],
)
def test_what_does_not_exist_fails(type, roles, attrs, outputs):
    with pytest.raises(AssertionError):
        assert_in_schema(type, roles, attrs, outputs)
