"""What stack frames tell of an operator: whether they are call sites of the model, and whose.

Frames are looked at by the identity of their code, since that is what an address is made of.
"""

from __future__ import annotations

import inspect
import sys
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from amanda_torch._internals import OpOverload, OpOverloadPacket, call_impl, wrapped_call_impl

if TYPE_CHECKING:
    from types import FrameType

# Where torch runs operators for purposes of its own; tools see them when they ask for their type.
_MACHINERY = (
    "torch._dynamo.utils.",
    "torch._tensor_str.",
    "torch.amp.",
    "torch.distributed.",
    "torch.jit.",
    "torch.nn.parallel.",
    "torch.optim.",
    "torch.testing.",
    "torch.utils.data.",
)

# Frames that are no call sites of the model: the code of a module begins; an address goes on as it
# was when a checkpoint was made; ours, or what runs code again.
ENDS, RESUMES, SKIPPED = "ends", "resumes", "skipped"

# By identity of the code. How a call gets to a module's forward depends on its hooks.
SPECIAL: dict[int, str] = {
    id(code): ENDS
    for code in (
        wrapped_call_impl.__code__,
        call_impl.__code__,
        *(c for c in call_impl.__code__.co_consts if isinstance(c, CodeType)),
    )
}


def skip_frames(*codes: CodeType) -> None:
    """Leave the frames of these functions out of every address."""
    SPECIAL.update((id(code), SKIPPED) for code in codes)


def end_paths(*codes: CodeType) -> None:
    """Have every path end at the frames of these functions."""
    SPECIAL.update((id(code), ENDS) for code in codes)


def resume_paths(*codes: CodeType) -> None:
    """Have paths go on from these functions with the thread's ``origin``."""
    SPECIAL.update((id(code), RESUMES) for code in codes)


def optimizer(frame: FrameType | None) -> str | None:
    """The class of the optimizer whose ``step`` is running, if one is."""
    passed: list[CodeType] = []
    while frame is not None:
        if frame.f_code.co_name in ("step", "zero_grad"):
            candidate = first_argument(frame)
            if isinstance(candidate, torch.optim.Optimizer):
                closure = inspect.unwrap(argument(frame, "closure") or candidate.step)
                if getattr(closure, "__code__", None) in passed:
                    return None  # the program's own function, which the optimizer calls
                return type(candidate).__name__
        passed.append(frame.f_code)
        frame = frame.f_back
    return None


def is_machinery(frame: FrameType | None) -> bool:
    """Whether a frame runs an operator for purposes of torch itself."""
    while frame is not None and SPECIAL.get(id(frame.f_code)) is SKIPPED:
        frame = frame.f_back
    name = "" if frame is None else frame.f_globals.get("__name__", "")
    return f"{name}.".startswith(_MACHINERY)


def first_argument(frame: FrameType) -> Any:
    """What a function was given first (``self`` in a method), None if it takes nothing."""
    code = frame.f_code
    return argument(frame, code.co_varnames[0]) if code.co_argcount else None


def argument(frame: FrameType, name: str) -> Any:
    """An argument of a function by its name.

    Before Python 3.13 a look at the local variables leaves a copy of them in the frame, which
    would keep a model alive that the program has let go of. It is emptied, unless the program
    holds it too (``locals()``).
    """
    variables = frame.f_locals
    value = variables.get(name)
    held_by_frame_alone = 3  # the frame, this function, and the call that counts
    if sys.version_info < (3, 13) and sys.getrefcount(variables) == held_by_frame_alone:
        variables.clear()
    return value


# How torch.ops gets to an operator says nothing of who asks for it.
skip_frames(OpOverload.__call__.__code__, OpOverloadPacket.__call__.__code__)
