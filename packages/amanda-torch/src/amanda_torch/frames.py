"""Which stack frames are call sites of the model, and which code is the same place as other code.

Frames are looked at by the identity of their code, since that is what an address is made of.
"""

from __future__ import annotations

import sys
import threading
import weakref
from types import CodeType
from typing import TYPE_CHECKING, Any

from amanda_torch._internals import OpOverload, OpOverloadPacket, call_impl, wrapped_call_impl

if TYPE_CHECKING:
    from types import FrameType

# Frames that are no call sites of the model: the code of a module begins; an address goes on as it
# was when a checkpoint was made; ours, or what runs code again.
ENDS, RESUMES, SKIPPED = "ends", "resumes", "skipped"

# Call sites looked at for one address: recursion must not make it grow without bound.
DEEPEST = 32
# How many pieces of code without a file are told apart: a program may make other code in each step.
_MADE = 4096

# By identity of the code. How a call gets to a module's forward depends on its hooks. A number is
# the identity of the code for which this one stands in an address, since it is equal to it.
SPECIAL: dict[int, str | int] = {
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


class _Codes:
    """Which code is the same place as other code: what was made anew from the same text.

    ``GraphModule.recompile()`` and ``exec`` make it, in each step if they are called there. The
    first one stands for all, for as long as any of them, or an address, holds it.
    """

    def __init__(self) -> None:
        self._from_files: weakref.WeakValueDictionary[object, CodeType]
        self._from_files = weakref.WeakValueDictionary()
        self._made: weakref.WeakValueDictionary[object, CodeType] = weakref.WeakValueDictionary()
        self._known: dict[int, weakref.ref[CodeType]] = {}
        self._first: dict[int, CodeType] = {}
        self._lock = threading.RLock()

    def first(self, code: CodeType) -> CodeType:
        """The code that stands for this one."""
        return self._first.get(id(code), code)

    def learn(self, code: CodeType) -> bool:
        """Find out what stands for this code; whether that is other code, not known before."""
        key = id(code)
        if key in self._known:
            return False
        with self._lock:
            first = self._equal(code)

            def forget(_: weakref.ref[CodeType]) -> None:
                self._known.pop(key, None)
                if self._first.pop(key, None) is not None:
                    SPECIAL.pop(key, None)

            self._known[key] = weakref.ref(code, forget)
            if first is code:
                return False
            self._first[key] = first
            SPECIAL[key] = id(first)
            return True

    def _equal(self, code: CodeType) -> CodeType:
        made = code.co_filename.startswith("<")
        table = self._made if made else self._from_files
        text = _text(code) if made else (code.co_filename, _text(code))
        first = table.get(text)
        if first is None and made and len(table) >= _MADE:
            first = next(iter(table.values()), None)
        if first is None:
            first = table[text] = code
        return first


def _text(code: CodeType) -> tuple[object, ...]:
    """What code of the same text has in common.

    Code itself is not compared, since some versions of Python count what it has learned from
    running as a part of it.
    """
    constants = (
        _text(value) if isinstance(value, CodeType) else (type(value), repr(value))
        for value in code.co_consts
    )
    return (
        code.co_name,
        code.co_firstlineno,
        code.co_flags,
        code.co_argcount,
        code.co_code,
        tuple(constants),
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
    )


_codes = _Codes()
first_code = _codes.first


def learn_codes(frame: FrameType | None) -> bool:
    """Learn the code that an address from a frame is made of; whether the address changes by it."""
    changed = False
    for _ in range(DEEPEST):
        if frame is None:
            break
        if id(frame.f_code) not in SPECIAL and _codes.learn(frame.f_code):
            changed = True
        frame = frame.f_back
    return changed


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
