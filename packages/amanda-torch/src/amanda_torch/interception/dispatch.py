"""Each operator that an active tool wants has a kernel on the interception key."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import torch
from amanda import UnsupportedError

from amanda_torch._internals import operator_names, overloads_of
from amanda_torch.interception.kernels import make_kernel
from amanda_torch.operators.composed import is_derived_here
from amanda_torch.operators.targets import Target
from amanda_torch.operators.types import PLUMBING, by_default, namespace_of, type_of
from amanda_torch.tensors.parameters import COPYING, noting_copies
from amanda_torch.thread import KEY_NAME, local

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from amanda.driving import Engine

    from amanda_torch.places.identity import Identity

# Types of which it takes less time to tell whether there are new operators than to list all.
_FEW = 100


class Interception:
    """This sees to it that all types have a kernel which an engine of some thread wants.

    Kernels stay when the last scope is left, since no thread includes their key any more and the
    next scope then has to make none; they go when that one does not want them.

    Each type has a library of torch of its own, that it may come and go by itself. Where a tool
    wants all, those of ``aten`` have one in common, which takes a third less memory; they go
    together.

    Args:
        identity: tells the kernels which operators run.
        parameter_behind: tells which parameter a tensor was read of.
    """

    def __init__(self, identity: Identity, parameter_behind: Callable[[Any], Any]) -> None:
        self._identity = identity
        self._parameter_behind = parameter_behind
        self._engines: dict[tuple[int, int], Engine] = {}
        self._libraries: dict[str, torch.library.Library] = {}
        self._common: torch.library.Library | None = None
        self._in_common: frozenset[str] = frozenset()
        self._kernels: dict[str, Callable[..., Any]] = {}
        self._overloads: dict[str, list[str]] = {}
        self._types: frozenset[str] = frozenset()
        self._by_default: frozenset[str] = frozenset()
        # Whether there are kernels for all since transforms are in use; what was wanted in scopes
        # that used some the last time, which keep these kernels; and whether one was used in this.
        self._derives = False
        self._transformed: set[frozenset[str] | None] = set()
        self._transforms = False
        self._names: list[str] = []
        self._told: dict[str, tuple[str, ...]] = {}
        self._lock = threading.RLock()
        # An operator without a kernel on the key goes on to its usual kernels.
        self._fallthrough = torch.library.Library("_", "IMPL", KEY_NAME)
        self._fallthrough.fallback(torch.library.fallthrough_kernel)

    def serve(self, engine: Engine | None) -> None:
        """Have kernels for what the engine of the current thread wants.

        Raises:
            UnsupportedError: it wants a type that cannot be intercepted.
        """
        owner = local.thread.owner
        with self._lock:
            if engine is None:
                self._leave(owner)
                return
            if engine.wanted is not None and (bad := engine.wanted & PLUMBING):
                raise UnsupportedError(
                    f"{', '.join(sorted(bad))}: plumbing of PyTorch that cannot be intercepted; "
                    "leave it out of ops=[...]"
                )
            self._engines[owner] = engine
            known = engine.wanted in self._transformed
            self._derives = self._derives or known or is_derived_here()
            self.refresh()

    def _leave(self, owner: tuple[int, int]) -> None:
        engine = self._engines.pop(owner, None)
        if engine is not None and not self._transforms:
            self._transformed.discard(engine.wanted)
        if not self._engines:
            self._derives = self._transforms = False

    def serve_transforms(self) -> None:
        """Have kernels for all, which tell what PyTorch derives from what the program calls.

        To make them takes longer than a step of a small model. They stay for the next scope whose
        tools want the same, as long as such scopes use transforms.
        """
        with self._lock:
            self._transforms = True
            self._transformed.update(engine.wanted for engine in self._engines.values())
            if not self._derives:
                self._derives = True
                self.refresh()

    def refresh(self) -> None:
        """Make and drop kernels so that all wanted types have one, and no others."""
        with self._lock:
            wanted: set[str] = set()
            for engine in self._engines.values():
                wanted.update(engine.wanted or ())
                if engine.context_maps:
                    wanted.update(COPYING)
            every = self._derives or any(e.wanted is None for e in self._engines.values())
            if every or self._has_more_of(wanted):
                self._list_overloads()
            if every:
                wanted.update(self._by_default)
            alone = len(self._engines) == 1  # others would miss what they want of those in common
            if alone and not self._in_common <= wanted:
                self._drop_common()
            for type in [t for t in self._libraries if t not in wanted]:
                self._libraries.pop(type)._destroy()
            missing = wanted.intersection(self._overloads) - self._libraries.keys()
            if every and self._common is None:
                self._in_common = frozenset(t for t in missing if namespace_of(t) == "aten")
                self._common = self._library("aten", self._in_common)
            for type in missing - self._in_common:
                self._libraries[type] = self._library(namespace_of(type), (type,))

    def types(self) -> frozenset[str]:
        """List all types that can be intercepted."""
        with self._lock:
            self._list_overloads()
            return self._types

    def _has_more_of(self, types: Collection[str]) -> bool:
        """Tell whether there may be operators of these types that are not listed.

        To list them takes a millisecond.
        """
        if len(types) > _FEW:
            return True
        printable = filter(str.isprintable, types)  # others there are not
        names = (type if "::" in type else f"aten::{type}" for type in printable)
        told = {name: tuple(overloads_of(name)[1] or ()) for name in names}
        if told.items() <= self._told.items():
            return False
        self._told.update(told)
        return True

    def _list_overloads(self) -> None:
        names = operator_names()
        if names == self._names:
            return
        self._names = names
        before, self._overloads = self._overloads, {}
        for name in names:
            self._overloads.setdefault(type_of(name), []).append(name)
        # to have kernels for all overloads of a type
        if any(before.get(t) != self._overloads.get(t) for t in self._in_common):
            self._drop_common()
        for type in [t for t in self._libraries if before.get(t) != self._overloads.get(t)]:
            self._libraries.pop(type)._destroy()
        self._types = frozenset(self._overloads) - PLUMBING
        self._by_default = frozenset(filter(by_default, self._overloads))

    def _drop_common(self) -> None:
        if self._common is not None:
            self._common._destroy()
        self._common, self._in_common = None, frozenset()

    def _library(self, namespace: str, types: Iterable[str]) -> torch.library.Library:
        library = torch.library.Library(namespace, "IMPL", KEY_NAME)
        for type in types:
            for name in self._overloads[type]:
                if name not in self._kernels:
                    resolve = functools.partial(Target, type, name)
                    kernel = make_kernel(self._identity, type, resolve)
                    if type in COPYING:
                        kernel = noting_copies(kernel, self._parameter_behind)
                    self._kernels[name] = kernel
                library.impl(name, self._kernels[name])
        return library
