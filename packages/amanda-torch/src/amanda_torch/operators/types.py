"""A type is the base name of an operator, and all its overloads are of it.

Those of ``aten`` have bare names (``conv2d``, ``add``, ``relu_``); an operator of another library
carries its namespace (``mylib::op``).
"""

from __future__ import annotations

import torch

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
        "_add_batch_dim",
        "_remove_batch_dim",
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


def namespace_of(type: str) -> str:
    """Return the namespace of the operators of a type."""
    return type.rpartition("::")[0] or "aten"


def type_of(name: str) -> str:
    """Return the type of an operator by its full name, e.g. ``aten::add.Tensor``."""
    base = name.partition(".")[0]
    return base.removeprefix("aten::")


def canonical_type(name: str) -> str:
    """Return the type of an operator by any name that PyTorch has for it.

    Those are ``aten::add.Tensor``, ``add.Tensor``, ``aten.add.Tensor``, ``torch.ops.aten.add``, and
    the names of functions and methods: ``torch.add``, ``nn.functional.relu``, ``torch.fft.fft``.
    Of what is none of these, as ``torch.nn.Linear``, it is the last part of the name.
    """
    bare = name.removeprefix("torch.ops.")
    if "::" in bare:
        return type_of(bare)
    if bare != name or bare.startswith("aten."):
        return type_of("::".join(bare.split(".")[:2]))
    parts = bare.removeprefix("torch.").split(".")
    for found in (parts[0], "_".join(parts), "::".join(parts[:2])):
        if is_forward_type(found):
            return found
    return parts[-1] if all(parts) else bare


def by_default(type: str) -> bool:
    """Tell whether a tool that wants all operators wants this one."""
    return type not in PLUMBING and namespace_of(type) not in _INTERNAL_NAMESPACES


def is_forward_type(type: str) -> bool:
    """Tell whether the dispatcher knows an operator of this type."""
    namespace, _, name = type.rpartition("::")
    # The dispatcher raises TypeError for text that is not valid Unicode.
    return type.isprintable() and hasattr(getattr(torch.ops, namespace or "aten"), name)
