"""Each operator that an active tool wants has a kernel on the interception key.

A type is a base name of ``aten`` (``conv2d``, ``add``, ``relu_``), with all its overloads; an
operator of another library carries its namespace (``mylib::op``).
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import torch
from amanda import UnsupportedError

from amanda_torch._internals import operator_names, overloads_of
from amanda_torch.kernels import make_kernel
from amanda_torch.parameters import COPYING, noting_copies
from amanda_torch.targets import Target
from amanda_torch.thread import KEY_NAME, local

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from amanda.driving import Engine

    from amanda_torch.identity import Identity

# What these give is memory as it was found.
UNINITIALIZED = frozenset(
    (
        "empty",
        "empty_like",
        "empty_strided",
        "empty_permuted",
        "_empty_affine_quantized",
        "_empty_per_channel_affine_quantized",
        "new_empty",
        "new_empty_strided",
    )
)
# What torch's own C++ calls on tensors that are still being made, or to ask about a tensor: a
# Python kernel in between would break it, and no tool means them by "all operators".
PLUMBING = frozenset(
    (
        "alias",
        "detach",
        "detach_",
        "lift",
        "lift_fresh",
        "lift_fresh_copy",
        "set_",
        "set_data",
        "data",
        "requires_grad_",
        "_fw_primal",
        "_make_dual",
        "_unpack_dual",
        "_has_compatible_shallow_copy_type",
        "_has_same_storage_numel",
        "_new_zeros_with_same_feature_meta",
        "_local_scalar_dense",
        "item",
        "is_nonzero",
        "equal",
        "is_same_size",
        "record_stream",
        "_version",
        "output_nr",
        "is_leaf",
        "retain_grad",
        "retains_grad",
        "rename_",
        "rename",
        "_backward",
        "resize_",
        "resize_as_",
        "_propagate_xla_data",
        "_assert_async",
        "_functional_assert_async",
        "_assert_tensor_metadata",
        "_functional_assert_scalar",
        "_assert_scalar",
        "_print",
        "sym_constrain_range",
        "sym_constrain_range_for_size",
        *UNINITIALIZED,
    )
)
# Namespaces of torch's own internals; their operators are seen only when asked for by type.
_INTERNAL_NAMESPACES = frozenset(
    (
        "_c10d_functional",
        "_c10d_functional_autograd",
        "_dtensor",
        "_native",
        "_test",
        "c10d",
        "debug_mode_ops",
        "debugprims",
        "export",
        "inductor",
        "inductor_prims",
        "mkl",
        "mkldnn",
        "mkldnn_prepacked",
        "prim",
        "prims",
        "profiler",
        "rngprims",
        "static_runtime",
        "symm_mem",
    )
)
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
                self._engines.pop(owner, None)
                return
            if engine.wanted is not None and (bad := engine.wanted & PLUMBING):
                raise UnsupportedError(
                    f"{', '.join(sorted(bad))}: plumbing of PyTorch that cannot be intercepted; "
                    "leave it out of ops=[...]"
                )
            self._engines[owner] = engine
            self.refresh()

    def refresh(self) -> None:
        """Make and drop kernels so that all wanted types have one, and no others."""
        with self._lock:
            wanted: set[str] = set()
            for engine in self._engines.values():
                wanted.update(engine.wanted or ())
                if engine.context_maps:
                    wanted.update(COPYING)
            every = any(engine.wanted is None for engine in self._engines.values())
            if every or self._has_more_of(wanted):
                self._list_overloads()
            if every:
                wanted.update(t for t in self._overloads if _by_default(t))
            alone = len(self._engines) == 1  # others would miss what they want of those in common
            if alone and not self._in_common <= wanted:
                self._drop_common()
            for type in [t for t in self._libraries if t not in wanted]:
                self._libraries.pop(type)._destroy()
            missing = wanted.intersection(self._overloads) - self._libraries.keys()
            if every and self._common is None:
                self._in_common = frozenset(t for t in missing if _namespace(t) == "aten")
                self._common = self._library("aten", self._in_common)
            for type in missing - self._in_common:
                self._libraries[type] = self._library(_namespace(type), (type,))

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


def _namespace(type: str) -> str:
    """The namespace of the operators of a type."""
    return type.rpartition("::")[0] or "aten"


def type_of(name: str) -> str:
    """Return the type of an operator by its full name, e.g. ``aten::add.Tensor``."""
    base = name.partition(".")[0]
    return base.removeprefix("aten::")


def canonical_type(name: str) -> str:
    """Return the type of an operator by any name that PyTorch has for it.

    Those are ``aten::add.Tensor``, ``add.Tensor``, ``aten.add.Tensor``, ``torch.ops.aten.add``, and
    the names of functions and methods: ``torch.add``, ``torch.nn.functional.relu``.
    """
    bare = name.removeprefix("torch.ops.")
    if "::" in bare:
        return type_of(bare)
    for prefix in ("torch.nn.functional.", "torch.Tensor.", "torch."):
        if bare.startswith(prefix):
            return bare.removeprefix(prefix)
    parts = bare.split(".")
    if len(parts) > 1 and (bare != name or len(parts) == 3 or parts[0] == "aten"):
        return type_of("::".join(parts[:2]))
    return parts[0]


def _by_default(type: str) -> bool:
    """Tell whether a tool that wants all operators wants this one."""
    namespace = type.rpartition("::")[0]
    return type not in PLUMBING and namespace not in _INTERNAL_NAMESPACES


def is_forward_type(type: str) -> bool:
    """Tell whether the dispatcher knows an operator of this type."""
    namespace, _, name = type.rpartition("::")
    # The dispatcher raises TypeError for text that is not valid Unicode.
    return type.isprintable() and hasattr(getattr(torch.ops, namespace or "aten"), name)
