"""Which operator this is: its module, the call sites that lead to it, and, in a loop, its turn.

An operator is a place in a model, as an instruction is a place in a program. Its address is the
calling context of the module it runs in, then the call sites (code object and instruction offset)
between that module's ``forward`` and the operator. A place that is passed several times within
one call of the outermost module (a loop, a module called twice) is a different operator each
time, told apart by its turn. Nothing here looks at tensors, so a generation loop finds in its
second step the operators of the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from amanda_torch.contexts import child, lock, model, part_of
from amanda_torch.frames import (
    DEEPEST,
    ENDS,
    RESUMES,
    SKIPPED,
    SPECIAL,
    first_argument,
    first_code,
    learn_codes,
)
from amanda_torch.ownership import is_machinery, optimizer
from amanda_torch.paths import is_module, unwrapped
from amanda_torch.settings import Place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from amanda import Operator

    from amanda_torch.contexts import Node
    from amanda_torch.settings import Settings
    from amanda_torch.thread import ThreadState

    Whereabouts = tuple["Node", list[int | str]]

# Turns told apart at one site: an endless loop within one call must not make the cache grow
# without bound.
_TURNS = 4096

_Module = torch.nn.Module


def locate(
    type: str,
    key: object,
    frame: FrameType,
    thread: ThreadState,
    given: tuple[Settings, Sequence[str]] | None = None,
) -> Operator:
    """The operator of a type, told apart by a key from others at its place, called from a frame.

    Args:
        type: its type.
        key: tells it apart.
        frame: what calls it.
        thread: the current thread's state.
        given: its settings and their names, where no turns are counted.
    """
    node = thread.node
    path: list[object] = [key]
    if node is None:
        node, way = _outside(frame, thread)
        path += way
        if given is not None and node is thread.outside:
            return _outside_of_modules(type, tuple(path), frame, node, *given) or locate(
                type, key, frame, thread, given
            )
    else:  # what _inside does, spelled out since it runs at every execution
        caller: FrameType | None = frame
        while caller is not None:
            code = id(caller.f_code)
            kind = SPECIAL.get(code)
            if kind is None:
                path.append(code)
                path.append(caller.f_lasti)
            elif kind is ENDS:
                break
            elif kind is RESUMES:
                path += thread.origin
                break
            elif kind is not SKIPPED:
                path.append(kind)
                path.append(caller.f_lasti)
            caller = caller.f_back
        if len(path) > 2 * DEEPEST:
            del path[2 * DEEPEST :]
    address = tuple(path)
    site = node.sites.get(address)
    if site is None:
        if learn_codes(frame):
            return locate(type, key, frame, thread, given)
        with lock:
            node.pin(frame)
            site = node.sites.setdefault(address, [])
    visits = thread.visits
    turn = 0
    if visits is not None:
        key = id(site)
        turn = visits.get(key, 0)
        visits[key] = turn + 1
    if turn < len(site):
        return site[turn]
    if turn >= _TURNS:
        return site[-1]
    with lock:  # another thread may have come first
        while turn >= len(site):
            site.append(_new_operator(node, type, frame))
        return site[turn]


def _outside_of_modules(
    type: str,
    address: tuple[object, ...],
    frame: FrameType,
    outside: Node,
    settings: Settings,
    names: Sequence[str],
) -> Operator | None:
    """The operator at an address outside of modules; None if the address has changed."""
    place = outside.places.get(address)
    if place is None:
        if learn_codes(frame):
            return None
        with lock:
            outside.pin(frame)
            place = outside.places.setdefault(address, Place())
    operator = place.get(settings)
    if operator is None:
        with lock:
            operator = place.add(settings, names, lambda: _new_operator(outside, type, frame))
    return operator


def enter(module: _Module, frame: FrameType, thread: ThreadState) -> Node:
    """The calling context for a module that is called from a frame."""
    parent = thread.node
    if parent is None:
        return _outermost(module, frame, thread)
    address = (id(module), *_inside(frame, thread))
    node = parent.children.get(address)
    if node is None or not node.holds(module):
        if parent.wraps is not None and parent.wraps.holds(module):
            return parent.wraps
        if learn_codes(frame):
            return enter(module, frame, thread)
        node = child(parent, module, address, frame, thread.visits)
    return node


def whereabouts(frame: FrameType, thread: ThreadState) -> Whereabouts:
    """The module that a frame runs in, and the call sites that lead from there to the frame."""
    learn_codes(frame)
    if thread.node is None:
        return _outside(frame, thread)
    return thread.node, _inside(frame, thread)


def _inside(frame: FrameType | None, thread: ThreadState) -> list[int | str]:
    path: list[int | str] = []
    while frame is not None and len(path) < 2 * DEEPEST:
        code = id(frame.f_code)
        kind = SPECIAL.get(code)
        if kind is None:
            path += (code, frame.f_lasti)
        elif kind is ENDS:
            break
        elif kind is RESUMES:
            path += thread.origin
            break
        elif kind is not SKIPPED:
            path += (kind, frame.f_lasti)
        frame = frame.f_back
    return path[: 2 * DEEPEST]


def _outside(frame: FrameType | None, thread: ThreadState) -> Whereabouts:
    """Outside of module calls, what a module is given to (``model.generate()``) runs in it.

    The path ends there, or where the scope was opened.
    """
    outside = thread.outside
    assert outside is not None
    owner: tuple[_Module, FrameType, int] | None = None
    path: list[int | str] = []
    while frame is not None:
        code = frame.f_code
        kind = SPECIAL.get(id(code))
        if kind is ENDS:
            break
        if kind is RESUMES:
            if owner is None or thread.resumed is not outside:
                assert thread.resumed is not None
                return thread.resumed, [*path, *thread.origin][: 2 * DEEPEST]
            break
        if kind is not SKIPPED:
            candidate = _given(outside, frame)  # by which the code is learned
            path += (SPECIAL.get(id(code), id(code)), frame.f_lasti)
            if candidate is not None:
                owner = candidate, frame, len(path)
        if code is thread.floor:
            break
        frame = frame.f_back
    if owner is None:
        return outside, path[: 2 * DEEPEST]
    module, method, end = owner
    return model(module, method, outside), path[: min(end, 2 * DEEPEST)]


def _given(outside: Node, frame: FrameType) -> _Module | None:
    """The module that a function is given first, as methods are."""
    key = id(first_code(frame.f_code))
    takes = outside.methods.get(key)
    if takes is None:
        learn_codes(frame)
        code = first_code(frame.f_code)
        outside.pinned[id(code)] = code
        takes = outside.methods[id(code)] = is_module(first_argument(frame))
    if not takes:
        return None
    candidate = first_argument(frame)
    return candidate if is_module(candidate) else None


def _owners(frame: FrameType | None, thread: ThreadState) -> list[_Module]:
    """The modules that functions around a call from outside of modules are given, innermost first.

    ``model.generate()`` calls parts of the model, which are to be named as parts of it.
    """
    outside = thread.outside
    assert outside is not None
    owners: list[_Module] = []
    while frame is not None:
        kind = SPECIAL.get(id(frame.f_code))
        if kind is RESUMES and thread.resumed is not None and thread.resumed.module is not None:
            resumed = thread.resumed.module()
            return owners if resumed is None else [*owners, resumed]
        if kind is ENDS or kind is RESUMES:
            break
        if kind is not SKIPPED and (owner := _given(outside, frame)) is not None:
            owners.append(owner)
        if frame.f_code is thread.floor:
            break
        frame = frame.f_back
    return owners


def _outermost(module: _Module, frame: FrameType, thread: ThreadState) -> Node:
    for owner in reversed(_owners(frame, thread)):
        if owner is not module and (node := part_of(unwrapped(owner), module)) is not None:
            return node
    outside = thread.outside
    assert outside is not None
    return model(module, frame, outside)


def _new_operator(node: Node, type: str, frame: FrameType) -> Operator:
    updating = optimizer(frame)
    scope = node.scope if updating is None else updating
    return node.root.add(scope, type, updating is not None or is_machinery(frame))
