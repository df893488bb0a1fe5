"""The code of an analysis routine may show that it never looks at the tensors of the forward side.

The first backward of an operator is analyzed long after the operator has run, and what nobody looks
at need not be held until then.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

# What a context has that needs no tensor of the forward side, on the backward one.
_WITHOUT_FORWARD = frozenset(
    (
        "attrs",
        "backward_op",
        "backward_op_id",
        "describe",
        "get_backward_op",
        "get_backward_op_id",
        "get_grad_inputs",
        "get_grad_outputs",
        "get_op",
        "get_op_id",
        "grad_inputs",
        "grad_outputs",
        "insert_after_backward_op",
        "insert_before_backward_op",
        "is_backward",
        "is_forward",
        "op",
        "op_id",
        "replace_backward_op",
        "state",
    )
)
# What reaches local variables without naming them.
_FRAMES = frozenset(("_getframe", "currentframe", "eval", "exec", "locals", "stack", "vars"))
# The instructions that end with one local variable on the stack, by the Pythons that have them.
_LOADS = frozenset(
    (
        "LOAD_FAST",
        "LOAD_FAST_BORROW",
        "LOAD_FAST_BORROW_LOAD_FAST_BORROW",
        "LOAD_FAST_CHECK",
        "LOAD_FAST_LOAD_FAST",
        "STORE_FAST_LOAD_FAST",
    )
)


def may_look_at_forward(callback: Callable[..., Any]) -> bool:
    """Tell whether an analysis routine may look at inputs or outputs of the forward operator.

    It does not if its code does nothing with the context but to use what needs none of them. One
    that passes the context on, or whose code cannot be read, may.
    """
    function = callback.__func__ if isinstance(callback, MethodType) else callback
    if not isinstance(function, FunctionType):
        return True
    code, place = function.__code__, int(function is not callback)
    if place >= code.co_argcount:
        return True
    context = code.co_varnames[place]
    if context in code.co_cellvars or not _FRAMES.isdisjoint(code.co_names):
        return True
    instructions = list(dis.get_instructions(code))
    for this, following in zip(instructions, [*instructions[1:], None], strict=True):
        if "_FAST" not in this.opname:  # it handles no local variable
            continue
        variables = this.argval if isinstance(this.argval, tuple) else (this.argval,)
        if context not in variables:
            continue
        if variables.index(context) < len(variables) - 1 or this.opname not in _LOADS:
            return True
        if following is None or following.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            return True
        if following.argval not in _WITHOUT_FORWARD:
            return True
    return False
