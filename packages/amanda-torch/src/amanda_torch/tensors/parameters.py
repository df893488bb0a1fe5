"""PyTorch tells what a tensor was read, cast or viewed of; core follows that to a parameter.

A view knows its base. Of a cast or a copy autograd knows where it comes from. Where gradients are
switched off nobody does, and so operators that copy are watched, for tools that speak of weights
in another vocabulary. What is lost: a view of such a copy in inference mode, which has no base.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from amanda.driving import Reference
from torch.utils.weak import WeakIdKeyDictionary

from amanda_torch.frames import not_a_call_site
from amanda_torch.tensors.references import Key
from amanda_torch.tensors.views import view_of_base, views_by_nodes
from amanda_torch.thread import local

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.autograd.graph import Node

    from amanda_torch.tensors.views import View

# Autograd nodes of what reads, casts or views a tensor.
_READING = re.compile(
    "(Alias|AsStrided|Chunk|Clone|Detach|Expand|Flatten|Movedim|Narrow|Permute|ReshapeAlias|Select"
    "|Slice|Split|SplitWithSizes|Squeeze|T|ToCopy|Transpose|Unbind|Unfold|UnsafeView|Unsqueeze"
    "|ViewAsComplex|ViewAsReal|View)Backward[0-9]+"
)
COPYING = frozenset(("clone", "contiguous", "reshape", "to", "type_as", "_to_copy"))
"""Types of the operators that may copy a parameter."""

# By the copy: the parameter, which may be gone, and the way from it.
_copies = WeakIdKeyDictionary(ref_type=Key)
_NO_COPY = None, None


def is_parameter_itself(found: object) -> bool:
    """Tell whether something is a parameter itself."""
    return isinstance(found, torch.nn.Parameter)


def may_lead_to_parameter(tensor: torch.Tensor) -> bool:
    """Tell at a glance whether a tensor may be a parameter, or a read, cast or view of one."""
    if type(tensor) is not torch.Tensor:
        return True
    node = tensor.grad_fn
    if node is None:
        return tensor._is_view() or bool(_copies)
    return _READING.fullmatch(node.name()) is not None


def read_from(found: torch.Tensor | Node) -> Any:
    """Return what a tensor, or the result of an autograd node, was read, cast or viewed of."""
    node: Node | None
    if isinstance(found, torch.Tensor):
        if found._is_view():
            return found._base
        node = found.grad_fn
        if node is None:
            copied, _ = _copies.get(found, _NO_COPY)
            return None if copied is None else copied()
    else:
        node = found
    if _READING.fullmatch(node.name()):
        return node.next_functions[0][0]
    return getattr(node, "variable", None)  # which the node of a leaf has


def way_to(tensor: torch.Tensor) -> list[View] | None:
    """List the views by which a tensor comes from its parameter; copies are none.

    None where that is not known.
    """
    if not tensor._is_view():
        return _way_to_base(tensor)
    assert tensor._base is not None
    way = _way_to_base(tensor._base)
    return None if way is None else [*way, view_of_base(tensor)]


def _way_to_base(base: torch.Tensor) -> list[View] | None:
    if is_parameter_itself(base):
        return []
    if base.grad_fn is None:
        return _copies.get(base, _NO_COPY)[1]  # type: ignore[no-any-return]
    return views_by_nodes(base)


def noting_copies(
    kernel: Callable[..., Any], parameter_behind: Callable[[Any], Any]
) -> Callable[..., Any]:
    """Make an operator's kernel note the copies of parameters that it makes without grad.

    Args:
        kernel: runs the operator.
        parameter_behind: see :meth:`amanda.Driver.parameter_behind`.
    """

    @not_a_call_site
    def noting(*args: Any, **kwargs: Any) -> Any:
        engine = local.thread.engine
        result = kernel(*args, **kwargs)
        if engine is None or not engine.context_maps:
            return result
        source = args[0]
        if torch.is_grad_enabled() or result is source or not isinstance(source, torch.Tensor):
            return result  # a number may be converted too
        if (copied := parameter_behind(source)) is not None:
            way = way_to(source) if result.shape == source.shape else None
            _copies[result] = Reference(copied), way
        return result

    return noting
