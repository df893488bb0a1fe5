"""A forward function hands versions of tensors to the backward function of its gradient.

A function that is called under a tape returns intermediate tensors, and these very objects are
arguments of its backward function. Where that needs another version of one, it travels beside the
tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda.driving import Patches

    from amanda_tensorflow.graph.wanted import Wanted

    Signature = tuple[tuple[int, tuple[Wanted, ...]], ...]
    """Which arguments have other versions, for which operators."""

# A tensor carries its other versions under this name.
_VERSIONS = "_amanda_versions"

_alive: set[int] = set()  # by identity; a count would be wrong once threads race


class _Versions(dict["Wanted", Any]):
    """These are other versions of a tensor, by the operators whose gradients need them."""

    def __init__(self) -> None:
        super().__init__()
        _alive.add(id(self))
        _changed()

    def __del__(self) -> None:
        _alive.discard(id(self))
        _changed()


_patches: Patches | None = None


def hold_while_alive(patches: Patches) -> None:
    """Have patches held while there are versions: backward functions may run after the scope."""
    global _patches
    _patches = patches


def _changed() -> None:
    """Hold the patches or let them go; another thread may do the opposite meanwhile."""
    held = not _alive
    while _patches is not None and held != bool(_alive):
        held = bool(_alive)
        _patches.hold(held, "versions")


def put_beside(tensor: Any, operator: Wanted, version: Any) -> None:
    """Have another version of a tensor travel beside it."""
    versions = getattr(tensor, _VERSIONS, None)
    if versions is None:
        versions = _Versions()
        setattr(tensor, _VERSIONS, versions)
    versions[operator] = version


def beside(tensor: Any, operator: Wanted) -> Any:
    """Return the other version of a tensor."""
    return getattr(tensor, _VERSIONS)[operator]


def signature_of(args: Sequence[Any]) -> Signature:
    """Tell which arguments of a call have other versions."""
    if not _alive:
        return ()
    return tuple(
        (index, tuple(versions))
        for index, arg in enumerate(args)
        if (versions := getattr(arg, _VERSIONS, None))
    )


def dtypes_of(args: Sequence[Any], signature: Signature) -> Callable[[int, Wanted], int | None]:
    """Make a function that tells the data type of a version of an argument; None for no version."""
    available = dict(signature)

    def dtype(index: int, operator: Wanted) -> int | None:
        if operator not in available.get(index, ()):
            return None
        return int(beside(args[index], operator).dtype.as_datatype_enum)

    return dtype
