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

    from torch.autograd.graph import Node

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


def is_parameter_itself(found: object) -> bool:
    """Whether something is a parameter itself."""
    return isinstance(found, torch.nn.Parameter)


def read_from(found: torch.Tensor | Node) -> Any:
    """What a tensor, or the result of an autograd node, was read, cast or viewed of."""
    node: Node | None
    if isinstance(found, torch.Tensor):
        if found._is_view():
            return found._base
        node = found.grad_fn
        if node is None:
            copied = _copies.get(found)
            return None if copied is None else copied()
    else:
        node = found
    if _READING.fullmatch(node.name()):
        return node.next_functions[0][0]
    return getattr(node, "variable", None)  # which the node of a leaf has


def noting_copies(
    kernel: Callable[..., Any], parameter_behind: Callable[[Any], Any]
) -> Callable[..., Any]:
    """A kernel of an operator that copies, which notes copies of parameters made without grad.

    Args:
        kernel: runs the operator.
        parameter_behind: see :meth:`amanda.Driver.parameter_behind`.
    """

    @not_a_call_site
    def noting(keys: Any, *args: Any, **kwargs: Any) -> Any:
        result = kernel(keys, *args, **kwargs)
        source = args[0]
        if torch.is_grad_enabled() or result is source or not isinstance(source, torch.Tensor):
            return result  # a number may be converted too
        if (copied := parameter_behind(source)) is not None:
            _copies[result] = weakref.ref(copied)
        return result

    return noting
