"""Code outside of module calls belongs to the module whose method it is, if to any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from amanda_torch.frames import DEEPEST, ENDS, RESUMES, ROLES, SKIPPED, continued, first_argument
from amanda_torch.places.paths import is_module

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from amanda_torch.frames import Way
    from amanda_torch.places.context import Context
    from amanda_torch.places.contexts import Contexts
    from amanda_torch.thread import ThreadState

_Module = torch.nn.Module


class Outside:
    """This tells by frames outside of module calls where in a model code runs.

    Args:
        contexts: the calling contexts of modules.
    """

    def __init__(self, contexts: Contexts) -> None:
        self._contexts = contexts
        self._codes = contexts.codes

    def reached(self, frame: FrameType, thread: ThreadState) -> tuple[Context, Way]:
        """Return where code outside of module calls runs: in what a module is given to, if in any.

        ``model.generate()`` is such code. The way ends there, or where the scope was opened.
        """
        outside = thread.outside
        assert outside is not None
        owner: tuple[_Module, FrameType, Way] | None = None
        way: Way = ()
        deep = 0
        for caller, role in _frames_outside(frame, thread):
            if role is RESUMES:
                if owner is None or thread.resumed is not outside:
                    assert thread.resumed is not None
                    return thread.resumed, continued(way, thread.origin)
                break
            candidate = self._given(outside, caller)  # by which the code is learned
            if deep < DEEPEST:
                code = id(caller.f_code)
                way = way, ROLES.get(code, code), caller.f_lasti
                deep += 1
            if candidate is not None:
                owner = candidate, caller, way
        if owner is None:
            return outside, way
        module, method, way = owner
        return self._contexts.model(module, method, outside), way

    def owners(self, frame: FrameType, thread: ThreadState) -> Iterator[_Module]:
        """List the modules that functions around a call from outside of modules are given first."""
        outside = thread.outside
        assert outside is not None
        for caller, role in _frames_outside(frame, thread):
            if role is RESUMES:
                resumed = thread.resumed
                owner = None if resumed is None or resumed.module is None else resumed.module()
            else:
                owner = self._given(outside, caller)
            if owner is not None:
                yield owner

    def _given(self, outside: Context, frame: FrameType) -> _Module | None:
        """Return the module that a function is given first, as methods are."""
        takes = outside.methods.get(id(self._codes.first(frame.f_code)))
        if takes is None:
            self._codes.learn(frame)
            code = self._codes.first(frame.f_code)
            outside.pinned[id(code)] = code
            takes = outside.methods[id(code)] = is_module(first_argument(frame))
        if not takes:
            return None
        candidate = first_argument(frame)
        return candidate if is_module(candidate) else None


def _frames_outside(
    frame: FrameType | None, thread: ThreadState
) -> Iterator[tuple[FrameType, str | int | None]]:
    """List the call sites outside of modules, innermost first, up to where the scope was opened.

    Each comes with its role; the last one may be what recomputes a checkpoint.
    """
    while frame is not None:
        code = frame.f_code
        role = ROLES.get(id(code))
        if role is ENDS:
            return
        if role is not SKIPPED:
            yield frame, role
        if role is RESUMES or code is thread.floor:
            return
        frame = frame.f_back
