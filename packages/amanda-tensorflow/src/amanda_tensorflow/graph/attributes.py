"""The attributes of a node are read as plain Python values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from amanda_tensorflow._internals import tensor_util

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_attrs(operation: Any) -> Mapping[str, Any]:
    """Return the attributes of an operation as plain Python values; types and shapes as such."""
    found = {}
    for name, value in sorted(operation.node_def.attr.items()):
        if not name.startswith("_"):
            found[name] = _plain(value)
    return found


def flat_attrs(operation: Any, **others: Any) -> tuple[Any, ...]:
    """Return names and values of the attributes of an operation, to run it in no graph.

    Args:
        operation: the operation.
        **others: values of some attributes that are to be others.
    """
    found: list[Any] = []
    for attr in operation.op_def.attr:
        value = others.get(attr.name) or operation.get_attr(attr.name)
        listed = isinstance(value, list)
        found += [attr.name, [_passed(v) for v in value] if listed else _passed(value)]
    return tuple(found)


def _passed(value: Any) -> Any:
    """Return the value of an attribute as what runs an operator in no graph takes it."""
    if isinstance(value, tf.DType):
        return value.as_datatype_enum
    return _plain_item("shape", value) if hasattr(value, "unknown_rank") else value


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "list":
        for field, content in value.list.ListFields():
            return [_plain_item(field.name, item) for item in content]
        return []
    return None if kind is None else _plain_item(kind, getattr(value, kind))


def _plain_item(kind: str, value: Any) -> Any:
    if kind == "s":
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if kind == "type":
        return tf.as_dtype(value).name
    if kind == "shape":
        return None if value.unknown_rank else tuple(d.size for d in value.dim)
    if kind == "tensor":
        return tensor_util.MakeNdarray(value)
    if kind == "func":
        return value.name
    return value
