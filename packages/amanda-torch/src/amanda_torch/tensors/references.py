"""What refers to tensors weakly to tell them apart does not keep programs from swapping them.

``torch.utils.swap_tensors`` has two tensors change places, and refuses what anybody refers to
weakly, since that would mean another tensor then. ``Module.to`` and ``load_state_dict`` swap too,
where a program asks for it and for some classes of tensors. What we refer to is the object, which
stays, and so our references are not listed to it. They outlive scopes, as operators do.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

import torch
from amanda.driving import Reference
from torch.utils.weak import WeakIdRef


class Key(WeakIdRef):
    """This is a :class:`~amanda.driving.Reference` that a table may have for a key."""

    __slots__ = ()


def _of_others(thing: Any) -> list[Any]:
    """List the weak references to an object, without ours."""
    return [
        found for found in weakref.getweakrefs(thing) if not isinstance(found, (Reference, Key))
    ]


_listing = types.ModuleType(weakref.__name__)
vars(_listing).update(vars(weakref), getweakrefs=_of_others)


def hide_from_swaps() -> None:
    """From now on, for good, list our references to nothing that swaps tensors.

    That looks for references in this module by its name there, however it is called itself.
    """
    torch.utils.weakref = _listing  # type: ignore[attr-defined]
