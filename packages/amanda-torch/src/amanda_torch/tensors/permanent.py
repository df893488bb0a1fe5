"""Parameters are read and written here as operators are given them."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch
from amanda import UnsupportedError
from amanda.driving import Reference, Stored

from amanda_torch.places.keras import parameters_of
from amanda_torch.tensors.holders import holders_of
from amanda_torch.tensors.parameters import way_to
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from amanda import Operator

    from amanda_torch.tensors.views import View

_LOOKUPS = frozenset(["Gather", "embedding", "embedding_bag", "gather", "index", "index_select"])


class StoredParameter(Stored):
    """This tells where a parameter has the elements of what an operator is given.

    That is the parameter, a view of it, or a copy of these, maybe cast to another type.

    Args:
        tensor: what the operator is given.
        source: the parameter.
    """

    def __init__(self, tensor: torch.Tensor, source: torch.nn.Parameter) -> None:
        self._source = Reference(source)
        self._dtype = tensor.dtype
        self._way: list[View] | None = []
        if tensor is not source:
            with unshown():
                self._way = way_to(tensor) if tensor.layout is torch.strided else None

    def source(self, model: Any) -> torch.nn.Parameter | None:
        """Return the parameter, if the model has it.

        Raises:
            UnsupportedError: the model has shards of its parameters.
        """
        source = self._source()
        if not isinstance(model, torch.nn.Module):
            return None
        _refuse_shards(model)
        return source if any(held is source for held in parameters_of(model)) else None

    def read(self, model: Any) -> torch.Tensor:
        """Return a copy of what the operator is given.

        Raises:
            UnsupportedError: that is a copy whose elements come from no view of the parameter.
        """
        source = self._held()
        if self._way:
            source = source.flatten()[self._places(source)]
        return source.to(self._dtype, copy=True)

    def write(self, model: Any, tensor: torch.Tensor) -> Callable[[], object]:
        """Have the parameter hold what the operator is to be given, where that is not so yet."""
        source = self._held()
        before, places = source.clone(), self._places(source) if self._way else None
        held = source if places is None else source.flatten()[places]
        if tensor.dtype != source.dtype:
            changed = (_bits(held.to(tensor.dtype)) != _bits(tensor)).any(-1)
            tensor = torch.where(changed, tensor.to(source.dtype), held)
        if places is not None:
            flat = source.flatten().clone()
            flat[places] = tensor
            tensor = flat.view(source.shape)
        source.copy_(tensor)
        return functools.partial(source.copy_, before)

    def taken_elsewhere(self, model: Any, seen: Sequence[Operator]) -> str | None:
        """Name a module that holds the parameter too, and whose operator is none of those seen."""
        tables, others = holders_of(model, self._source())
        looking_up = [operator for operator in seen if operator.__name__ in _LOOKUPS]
        if tables and not looking_up:
            return tables[0]
        if len(tables) + len(others) < 2 or len(others) <= len(seen) - len(looking_up):
            return None
        scopes = {operator.scope for operator in seen}
        return next((path for path in others if path not in scopes), None)

    def places(self) -> np.ndarray[Any, Any] | None:
        """Return, for each element that the operator is given, its place in the flat parameter."""
        source = self._source()
        if self._way is None or source is None:
            return None
        with unshown():
            return self._numbers(source).numpy()

    def _held(self) -> torch.Tensor:
        source = self._source()
        assert source is not None
        if self._way is None:
            raise UnsupportedError(
                "it is given a copy of a parameter, of which it is not known where each element "
                "comes from"
            )
        return source.detach()

    def _places(self, source: torch.Tensor) -> torch.Tensor:
        """Return, for each element that the operator is given, its place in the parameter."""
        return self._numbers(source).to(source.device)

    def _numbers(self, source: torch.Tensor) -> torch.Tensor:
        places = torch.arange(source.numel(), device="cpu").view(source.shape)
        for view in self._way or ():
            places = view.of(places)
        return places


def _refuse_shards(model: torch.nn.Module) -> None:
    """Refuse a model that gathers for each call what its operators are given.

    Raises:
        UnsupportedError: ``fully_shard`` was applied to a part of it.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None and any(isinstance(m, fsdp.FSDPModule) for m in model.modules()):
        raise UnsupportedError(
            f"{type(model).__name__} keeps shards of its parameters (fully_shard), and what "
            "operators are given is gathered for each call; make this permanent in a model that "
            "is not sharded, into which you load its whole state"
        )


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of each element of a tensor, which may be compared."""
    return tensor.unsqueeze(-1).contiguous().view(torch.uint8)
