"""Trees of tensors are what modules take and return: tuples, lists, mappings and dataclasses."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

IsTensor: TypeAlias = Callable[[Any], bool]
# The identities of what a part of a tree is in: one that holds itself ends there.
_Around: TypeAlias = tuple[int, ...]


def leaves(tree: Any, name: str = "", around: _Around = ()) -> Iterator[tuple[str, Any]]:
    """List all that a tree holds, in order, by its name and the keys that lead there.

    What is no tuple, list, mapping or dataclass is a leaf, and so is an empty one of these.
    """
    children = _children(tree, around)
    if not children:
        yield name, tree
    for key, child in children:
        yield from leaves(child, f"{name}.{key}" if name else str(key), (*around, id(tree)))


def tensors_in(tree: Any, is_tensor: IsTensor, around: _Around = ()) -> list[Any]:
    """List the tensors of a tree, in order."""
    if is_tensor(tree):
        return [tree]
    if tree is None or isinstance(tree, (int, float, str)):
        return []
    within = (*around, id(tree))
    children = _children(tree, around)
    return [tensor for _, child in children for tensor in tensors_in(child, is_tensor, within)]


def with_tensors_in(tree: Any, tensors: Sequence[Any], is_tensor: IsTensor) -> Any:
    """Copy a tree with other tensors in the places of those of :func:`tensors_in`.

    Whatever holds the same tensors as before is the same object, and all else a copy.
    """
    return _with(tree, iter(tensors), is_tensor, ())


def _with(tree: Any, rest: Iterator[Any], is_tensor: IsTensor, around: _Around) -> Any:
    if is_tensor(tree):
        return next(rest)
    within = (*around, id(tree))
    children = _children(tree, around)
    found = [(key, child, _with(child, rest, is_tensor, within)) for key, child in children]
    if all(new is child for _, child, new in found):
        return tree
    if isinstance(tree, tuple):
        make = getattr(type(tree), "_make", type(tree))  # a named tuple has it
        return make([new for _, _, new in found])
    copied = copy.copy(tree)
    for i, (key, child, new) in enumerate(found):
        if new is child:
            continue
        if isinstance(tree, list):
            copied[i] = new
        elif isinstance(tree, Mapping):
            copied[key] = new
        else:
            object.__setattr__(copied, key, new)  # it may be frozen
    return copied


def _children(tree: Any, around: _Around) -> Sequence[tuple[Any, Any]]:
    """List what a tuple, list, mapping or dataclass holds, with the keys; nothing for any other."""
    if id(tree) in around:
        return ()
    if isinstance(tree, (tuple, list)):
        return list(zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True))
    if isinstance(tree, Mapping):
        return list(tree.items())
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = (field.name for field in dataclasses.fields(tree))
        return [(name, getattr(tree, name)) for name in names if hasattr(tree, name)]
    return ()
