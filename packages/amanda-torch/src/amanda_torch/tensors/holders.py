"""A parameter may be held by several modules, as an embedding and a head share one."""

from __future__ import annotations

import sys
from typing import Any

import torch

from amanda_torch.places.keras import layer_name


def holders_of(model: torch.nn.Module, parameter: Any) -> tuple[list[str], list[str]]:
    """List the paths of the modules of a model that hold a parameter themselves, and run.

    A module that has another holder within it only gives the parameter a second name.

    Returns:
        Those that look up rows of it, and all others.
    """
    tables: list[str] = []
    others: list[str] = []
    for path, module in model.named_modules():
        if any(held is parameter for held in _held(module)) and _runs(module):
            (tables if isinstance(module, _table_classes()) else others).append(path)
    holders = [*tables, *others]
    return tables, [path for path in others if not any(_is_within(o, path) for o in holders)]


def _is_within(path: str, other: str) -> bool:
    return path != other and path.startswith(f"{other}." if other else "")


def _held(module: torch.nn.Module) -> list[Any]:
    if layer_name(module) is None:
        return list(module._parameters.values())
    layer: Any = module
    own = (*layer._trainable_variables, *layer._non_trainable_variables)
    return [variable.value for variable in own]


def _runs(module: torch.nn.Module) -> bool:
    """Tell whether a module is called, as one that only lists parameters is not."""
    return type(module).forward is not torch.nn.Module.forward


def _table_classes() -> tuple[type, ...]:
    layers = getattr(sys.modules.get("keras"), "layers", None)
    of_keras = () if layers is None else (layers.Embedding,)
    return (torch.nn.Embedding, torch.nn.EmbeddingBag, *of_keras)
