"""Code that is made anew from the same text is the same place as the code before it.

``GraphModule.recompile()`` and ``exec`` make it, in each step if they are called there. The first
one stands for all, for as long as any of them, or an address, holds it.
"""

from __future__ import annotations

import threading
import weakref
from types import CodeType
from typing import TYPE_CHECKING

from amanda_torch.frames import DEEPEST, ROLES

if TYPE_CHECKING:
    from types import FrameType

# How many pieces of code without a file are told apart: a program may make other code in each step.
_MADE = 4096


class Codes:
    """This tells for each code object the one that stands for it in the addresses of operators."""

    def __init__(self) -> None:
        self._from_files: weakref.WeakValueDictionary[object, CodeType]
        self._from_files = weakref.WeakValueDictionary()
        self._made: weakref.WeakValueDictionary[object, CodeType] = weakref.WeakValueDictionary()
        self._known: dict[int, weakref.ref[CodeType]] = {}
        self._first: dict[int, CodeType] = {}
        self._lock = threading.RLock()

    def first(self, code: CodeType) -> CodeType:
        """Return the code that stands for this one."""
        return self._first.get(id(code), code)

    def learn(self, frame: FrameType | None) -> bool:
        """Learn the code that an address from a frame is made of, and tell if that changes it."""
        changed = False
        for _ in range(DEEPEST):
            if frame is None:
                break
            if id(frame.f_code) not in ROLES and self._stands_for_another(frame.f_code):
                changed = True
            frame = frame.f_back
        return changed

    def _stands_for_another(self, code: CodeType) -> bool:
        """Find out what stands for this code, and tell if that is other code, not known before."""
        key = id(code)
        if key in self._known:
            return False
        with self._lock:
            first = self._equal(code)

            def forget(_: weakref.ref[CodeType]) -> None:
                self._known.pop(key, None)
                if self._first.pop(key, None) is not None:
                    ROLES.pop(key, None)

            self._known[key] = weakref.ref(code, forget)
            if first is code:
                return False
            self._first[key] = first
            ROLES[key] = id(first)
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
    """Return what all code of the same text has in common.

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
