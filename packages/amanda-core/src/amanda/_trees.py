"""Trees of tensors: what modules take and return, in tuples, lists, mappings and dataclasses."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

IsTensor: TypeAlias = Callable[[Any], bool]


def leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All that a tree holds, in order, by the name of the tree and the keys that lead there.

    What is no tuple, list, mapping or dataclass is a leaf, and so is an empty one of these.
    """
    children = _children(tree)
    if not children:
        yield name, tree
    for key, child in children:
        yield from leaves(child, f"{name}.{key}" if name else str(key))


def tensors_in(tree: Any, is_tensor: IsTensor) -> list[Any]:
    """The tensors of a tree, in order."""
    if is_tensor(tree):
        return [tree]
    return [tensor for _, child in _children(tree) for tensor in tensors_in(child, is_tensor)]


def with_tensors_in(tree: Any, tensors: Sequence[Any], is_tensor: IsTensor) -> Any:
    """A tree with other tensors in the places of those of :func:`tensors_in`.

    Whatever holds the same tensors as before is the same object, and all else a copy.
    """
    return _with(tree, iter(tensors), is_tensor)


def _with(tree: Any, rest: Iterator[Any], is_tensor: IsTensor) -> Any:
    if is_tensor(tree):
        return next(rest)
    found = [(key, child, _with(child, rest, is_tensor)) for key, child in _children(tree)]
    if all(new is child for _, child, new in found):
        return tree
    if isinstance(tree, tuple):
        make = getattr(type(tree), "_make", type(tree))  # a named tuple has it
        return make([new for _, _, new in found])
    copied = copy.copy(tree)
    for key, child, new in found:
        if new is child:
            continue
        if isinstance(tree, (list, Mapping)):
            copied[key] = new
        else:
            object.__setattr__(copied, key, new)  # it may be frozen
    return copied


def _children(tree: Any) -> Sequence[tuple[Any, Any]]:
    """What a tuple, list, mapping or dataclass holds, with the keys; nothing for anything else."""
    if isinstance(tree, (tuple, list)):
        return list(enumerate(tree))
    if isinstance(tree, Mapping):
        return list(tree.items())
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return [(f.name, getattr(tree, f.name)) for f in dataclasses.fields(tree)]
    return ()
