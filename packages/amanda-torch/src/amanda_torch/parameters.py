"""Which tensors are parameters of the model, or what was read, cast or viewed of one.

A view knows its base. Of a cast or a copy autograd knows where it comes from. Where gradients are
switched off nobody does, and so operators that copy are watched, for tools that speak of weights
in another vocabulary. What is lost: a view of such a copy in inference mode, which has no base.
"""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from amanda_torch.frames import not_a_call_site

if TYPE_CHECKING:
    from collections.abc import Callable

# Autograd nodes of what reads, casts or views a tensor.
_READING = re.compile(
    "(Alias|AsStrided|Chunk|Clone|Detach|Expand|Flatten|Movedim|Narrow|Permute|ReshapeAlias|Select"
    "|Slice|Split|SplitWithSizes|Squeeze|T|ToCopy|Transpose|Unbind|Unfold|UnsafeView|Unsqueeze"
    "|ViewAsComplex|ViewAsReal|View)Backward[0-9]+"
)
COPYING = frozenset(("clone", "contiguous", "reshape", "to", "type_as", "_to_copy"))
"""Types of the operators that may copy a parameter."""

# By the copy; that of a parameter that is gone is none.
_copies = WeakTensorKeyDictionary()


def parameter(tensor: torch.Tensor) -> torch.nn.Parameter | None:
    """The parameter that a tensor is, or that it was read, cast or viewed of; None for none."""
    base = tensor._base if tensor._is_view() else tensor
    assert base is not None
    node = base.grad_fn
    while node is not None and _READING.fullmatch(node.name()):
        node = node.next_functions[0][0]
    source = base if node is None else getattr(node, "variable", None)
    if isinstance(source, torch.nn.Parameter):
        return source
    copied = _copies.get(base)
    return None if copied is None else copied()


def is_parameter(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a parameter, or was read, cast or viewed of one."""
    return parameter(tensor) is not None


def noting_copies(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel of an operator that copies, which notes copies of parameters made without grad."""

    @not_a_call_site
    def noting(keys: Any, *args: Any, **kwargs: Any) -> Any:
        result = kernel(keys, *args, **kwargs)
        source = args[0]
        if torch.is_grad_enabled() or result is source or not isinstance(source, torch.Tensor):
            return result  # a number may be converted too
        if (copied := parameter(source)) is not None:
            _copies[result] = weakref.ref(copied)
        return result

    return noting
