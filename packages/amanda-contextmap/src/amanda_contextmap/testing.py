"""A map is tested here against ONNX itself: its schemas, and its reference implementation.

For the tests of maps and of entries that users register; needs the extra
``amanda-contextmap[testing]``.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from amanda.driving import context_map
from onnx import defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from amanda_contextmap.onnx_map import OnnxMap
from amanda_contextmap.schema import base

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Array = np.ndarray[Any, Any]


@contextlib.contextmanager
def own_entries(backend: str) -> Iterator[None]:
    """Forget, at the end of the block, the entries that are registered for a backend within it.

    Maps are shared by all that runs in a process: a test's own entries are not for those after it.
    """
    found = context_map(backend, "onnx")
    assert isinstance(found, OnnxMap)
    before = dict(found.rules)
    try:
        yield
    finally:
        found.rules.clear()
        found.rules.update(before)


_VARIADIC = defs.OpSchema.FormalParameterOption.Variadic
_SETTING_TYPES = {"scales": np.float32, "ratio": np.float32, "training_mode": np.bool_}


def assert_in_schema(
    type: str, roles: Iterable[str], attrs: Iterable[str], outputs: Iterable[str] = ()
) -> None:
    """Fail on an operator, a role, an attribute or an output that ONNX does not have.

    Args:
        type: an ONNX type.
        roles: of its inputs; ``role[i]`` for an element of a list or a part of a tensor.
        attrs: its attributes, and inputs that are seen as such.
        outputs: its outputs.
    """
    assert defs.has(type), f"ONNX has no operator {type}"
    schema = defs.get_schema(type)
    inputs = {parameter.name for parameter in schema.inputs}
    unknown = {base(role) for role in roles} - inputs
    assert not unknown, f"{type} has no inputs {sorted(unknown)}, but {sorted(inputs)}"
    unknown = {base(name) for name in attrs} - inputs - set(schema.attributes)
    assert not unknown, f"{type} has no attributes {sorted(unknown)}"
    known = [parameter.name for parameter in schema.outputs]
    given = list(outputs)
    assert given == known[: len(given)], f"{type} has outputs {known}, not {given}"


def reference(
    type: str,
    roles: Sequence[str],
    inputs: Sequence[Any],
    attrs: Mapping[str, Any],
    outputs: int = 1,
) -> list[Array]:
    """Compute what ONNX says that an operator computes, given as a portable tool sees it.

    Args:
        type: its ONNX type.
        roles: of the inputs. Parts of one tensor are put together as for recurrent layers:
            matrices along an axis for the directions, biases in pairs.
        inputs: arrays.
        attrs: attributes, and the settings and numbers that ONNX has as inputs.
        outputs: how many of the outputs to give.
    """
    assert_in_schema(type, roles, attrs)
    schema = defs.get_schema(type)
    arrays = [np.asarray(array) for array in inputs]
    given: dict[str, dict[int, Array]] = {}
    for role, array in zip(roles, arrays, strict=True):
        given.setdefault(base(role), {})[_index(role)] = array
    own, numbers = {}, {}
    for name, value in attrs.items():
        if base(name) in schema.attributes:
            tensor = schema.attributes[name].type == defs.OpSchema.AttrType.TENSOR
            own[name] = numpy_helper.from_array(_tensor(value)) if tensor else value
        else:
            dtype = _dtype(schema, base(name), attrs, dict(zip(roles, arrays, strict=True)))
            numbers[name] = _number(name, value, dtype)
    for name, array in numbers.items():
        given.setdefault(base(name), {})[_index(name)] = array
    feeds: dict[str, Array] = {}
    places: list[str] = []
    for parameter in schema.inputs:
        parts = [part for _, part in sorted(given.get(parameter.name, {}).items())]
        if parameter.option != _VARIADIC and len(parts) > 1:
            whole = np.stack(parts)
            parts = [whole if whole.ndim > 2 else whole.reshape(len(parts) // 2, -1)]
        for part in parts:
            places.append(f"{parameter.name}_{len(places)}")
            feeds[places[-1]] = part
        places += [""] * (not parts)
    while places and not places[-1]:
        places.pop()
    results = [f"result_{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(type, places, results, **own)],
        "operator",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ],
        [helper.make_tensor_value_info(n, onnx.TensorProto.UNDEFINED, None) for n in results],
    )
    version = helper.make_opsetid("", defs.onnx_opset_version())
    model = helper.make_model(graph, opset_imports=[version])
    return list(ReferenceEvaluator(model).run(None, feeds))


def _tensor(value: Any) -> Array:
    """Return a tensor of one element for a number."""
    if isinstance(value, np.ndarray):
        return value
    return np.array([value], np.float32 if isinstance(value, float) else None)


def schemas() -> dict[str, Any]:
    """Return what ``schemas.json`` holds, by the ``onnx`` package that is installed.

    Operators whose inputs may differ in type from one another (``Loop`` and the like) are left out.
    """
    sets: list[list[str]] = []
    operators: dict[str, dict[str, tuple[str, int]]] = {}
    for schema in sorted(defs.get_all_schemas(), key=lambda schema: schema.name):
        if schema.domain or any(not parameter.is_homogeneous for parameter in schema.inputs):
            continue
        variables = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        found = operators[schema.name] = {}
        for parameter in schema.inputs:
            tied = parameter.type_str in variables
            names = sorted(
                map(_dtype_name, variables.get(parameter.type_str, [parameter.type_str]))
            )
            if names not in sets:
                sets.append(names)
            found[parameter.name] = (parameter.type_str if tied else "", sets.index(names))
    return {"opset": defs.onnx_opset_version(), "dtypes": sets, "operators": operators}


def _dtype_name(type: str) -> str:
    """Return ``float32`` for ``tensor(float)``; other kinds of values keep their names."""
    name = type.removeprefix("tensor(").removesuffix(")") if type.startswith("tensor(") else type
    return {"float": "float32", "double": "float64"}.get(name, name)


def _index(name: str) -> int:
    found = re.search(r"\[(\d+)\]$", name)
    return 0 if found is None else int(found[1])


def _dtype(
    schema: defs.OpSchema, name: str, numbers: Mapping[str, Any], tensors: Mapping[str, Array]
) -> Any:
    """Return the data type of a number: that of a related tensor if there is one, else of all
    related numbers together.
    """
    kinds = {parameter.name: parameter.type_str for parameter in schema.inputs}

    def related(other: str) -> bool:
        return kinds.get(base(other)) == kinds[name]

    for other, tensor in tensors.items():
        if related(other):
            return tensor.dtype
    if name in _SETTING_TYPES:
        return _SETTING_TYPES[name]
    values = [np.asarray(value) for other, value in numbers.items() if related(other)]
    kind = np.result_type(np.bool_, *(value for value in values if value.size)).kind
    if not all(value.size for value in values):  # of no axes, say
        kind = "i"
    return {"f": np.float32, "b": np.bool_}.get(kind, np.int64)


def _number(name: str, value: Any, dtype: Any) -> Array:
    """Return a number as a tensor; those of ``K`` have an axis.

    Raises:
        ValueError: it is none of that data type.
    """
    array = np.array(value, dtype, ndmin=base(name) == "K")
    if array.dtype.kind in "iub" and not np.array_equal(array.ravel(), np.ravel(value)):
        raise ValueError(f"{name}={value} is no {array.dtype}, which its relatives are")
    return array


if __name__ == "__main__":
    text = re.sub(r"(\]|\}|\d), (\"|\[\")", r"\1,\n\2", json.dumps(schemas()))  # an operator a line
    Path(__file__).with_name("schemas.json").write_text(text + "\n", "utf-8")
