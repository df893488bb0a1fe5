"""Which operator this is: its module, the call sites that lead to it, and, in a loop, its turn.

An operator is a place in a model, as an instruction is a place in a program. Its address is the
calling context of the module it runs in, then the call sites (code object and instruction offset)
between that module's ``forward`` and the operator. A place that is passed several times within
one call of the outermost module (a loop, a module called twice) is a different operator each
time, told apart by its turn. Nothing here looks at tensors, so a generation loop finds in its
second step the operators of the first one.
"""

from __future__ import annotations

import sys
import threading
import weakref
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from amanda import Operator

if TYPE_CHECKING:
    from types import FrameType

    from amanda_torch.thread import ThreadState

# Call sites looked at for one address, and turns told apart at one site: recursion and endless
# loops within one call must not make the cache grow without bound.
_DEEPEST = 32
_TURNS = 4096

_Module = torch.nn.Module


# Frames that are no call sites of the model: the code of a module begins; an address goes on as it
# was when a checkpoint was made; ours, or what runs code again.
_ENDS, _RESUMES, _SKIPPED = "ends", "resumes", "skipped"

# By identity of the code. How a call gets to a module's forward depends on its hooks.
_SPECIAL: dict[int, str] = {
    id(code): _ENDS
    for code in (
        _Module._wrapped_call_impl.__code__,
        _Module._call_impl.__code__,
        *(c for c in _Module._call_impl.__code__.co_consts if isinstance(c, CodeType)),
    )
}

_operators: weakref.WeakValueDictionary[str, Operator] = weakref.WeakValueDictionary()
# The number that was given last for a scope and type, where to go on looking for a free one.
_counts: dict[tuple[str, str], int] = {}
_lock = threading.RLock()


def skip_frames(*codes: CodeType) -> None:
    """Leave the frames of these functions out of every address."""
    _SPECIAL.update((id(code), _SKIPPED) for code in codes)


def end_paths(*codes: CodeType) -> None:
    """Have every path end at the frames of these functions."""
    _SPECIAL.update((id(code), _ENDS) for code in codes)


def resume_paths(*codes: CodeType) -> None:
    """Have paths go on from these functions with the thread's ``origin``."""
    _SPECIAL.update((id(code), _RESUMES) for code in codes)


class Node:
    """A module in one calling context: through which call sites it is reached."""

    __slots__ = ("__weakref__", "children", "module", "pinned", "root", "scope", "sites")

    def __init__(
        self, scope: str, module: _Module | None = None, root: weakref.ref[_Module] | None = None
    ) -> None:
        self.scope = scope
        self.module = None if module is None else weakref.ref(module)
        self.root = root
        # Weak: a context lives as long as its module.
        self.children: weakref.WeakValueDictionary[tuple[int, ...], Node]
        self.children = weakref.WeakValueDictionary()
        self.sites: dict[tuple[object, ...], list[Operator]] = {}
        # An address holds identities of code objects, which must not be given to others.
        self.pinned: list[CodeType] = []


class _Contexts:
    """The calling contexts of one module, which live as long as it does.

    The first one is unclaimed while it was only met by calls from outside of any module. The
    first call site inside a parent takes it over, so that ``model.encoder(x)`` and
    ``model(x)`` run the same operators.
    """

    __slots__ = ("claimed", "module", "nodes")

    def __init__(self, module: _Module) -> None:
        key = id(module)

        def forget(gone: weakref.ref[_Module]) -> None:
            if key in _contexts and _contexts[key].module is gone:
                del _contexts[key]

        self.module = weakref.ref(module, forget)
        self.nodes: list[Node] = []
        self.claimed = False


_contexts: dict[int, _Contexts] = {}


def locate(type: str, frame: FrameType, thread: ThreadState) -> Operator:
    """The operator of a type that is called from a frame."""
    node = thread.node
    if node is None:
        node = thread.outside
        assert node is not None
        address = (type, *call_path(frame, thread))
    else:  # what call_path does, spelled out since it runs at every execution
        path: list[object] = [type]
        caller: FrameType | None = frame
        while caller is not None:
            code = id(caller.f_code)
            kind = _SPECIAL.get(code)
            if kind is None:
                path.append(code)
                path.append(caller.f_lasti)
            elif kind is _ENDS:
                break
            elif kind is _RESUMES:
                path += thread.origin
                break
            caller = caller.f_back
        if len(path) > 2 * _DEEPEST:
            del path[2 * _DEEPEST :]
        address = tuple(path)
    site = node.sites.get(address)
    if site is None:
        site = _new_site(node, address, frame)
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
    return _new_operator(node, site, type, frame)


def enter(module: _Module, frame: FrameType, thread: ThreadState) -> Node:
    """The calling context for a module that is called from a frame."""
    parent = thread.node
    if parent is None:
        return _outermost(module, frame)
    address = (id(module), *call_path(frame, thread))
    node = parent.children.get(address)
    if node is None or node.module is None or node.module() is not module:
        node = _child(parent, module, address, frame)
    return node


def call_path(frame: FrameType | None, thread: ThreadState) -> tuple[int, ...]:
    """The call sites from a frame up to the module that it runs in, or to the open scope."""
    path: list[int] = []
    floor = thread.floor if thread.node is None else 0
    while frame is not None and len(path) < 2 * _DEEPEST:
        code = id(frame.f_code)
        kind = _SPECIAL.get(code)
        if kind is None:
            path += (code, frame.f_lasti)
        elif kind is _ENDS:
            break
        elif kind is _RESUMES:
            path += thread.origin
            break
        if id(frame) == floor:
            break
        frame = frame.f_back
    return tuple(path[: 2 * _DEEPEST])


def _codes(frame: FrameType | None) -> list[CodeType]:
    codes: list[CodeType] = []
    while frame is not None and len(codes) < _DEEPEST:
        codes.append(frame.f_code)
        frame = frame.f_back
    return codes


def _new_site(node: Node, address: tuple[object, ...], frame: FrameType) -> list[Operator]:
    with _lock:
        node.pinned += (c for c in _codes(frame) if c not in node.pinned)
        return node.sites.setdefault(address, [])


def _new_operator(node: Node, site: list[Operator], type: str, frame: FrameType) -> Operator:
    optimizer = _optimizer(frame) if node.module is None else None
    scope = node.scope if optimizer is None else optimizer
    with _lock:
        id, name = _free_id(scope, type)
        operator = Operator(
            id=id,
            type=type,
            name=name,
            scope=scope,
            backend="torch",
            on_request=optimizer is not None,
        )
        _operators[id] = operator
        site.append(operator)
    return operator


def _free_id(scope: str, type: str) -> tuple[str, str]:
    """The first id and name that no living operator has."""
    prefix = f"{scope}/" if scope else ""
    count = _counts.get((scope, type), 0)
    if prefix + _numbered(type, count) not in _operators:
        count = 0  # its model is gone, and lower numbers are free again
    while True:
        count += 1
        name = _numbered(type, count)
        if prefix + name not in _operators:
            _counts[scope, type] = count
            return prefix + name, name


def _numbered(type: str, count: int) -> str:
    return type if count == 1 else f"{type}#{count}"


def _contexts_of(module: _Module) -> _Contexts:
    known = _contexts.get(id(module))
    if known is None or known.module() is not module:
        known = _contexts[id(module)] = _Contexts(module)
    return known


def _outermost(module: _Module, frame: FrameType) -> Node:
    known = _contexts.get(id(module))
    if known is not None and known.nodes and known.module() is module:
        return known.nodes[0]
    with _lock:
        owner = _owner(module, frame)
        scope = "" if owner is None else _name_in(owner, module) or ""
        node = Node(scope, module, weakref.ref(owner or module))
        _contexts_of(module).nodes.append(node)
    return node


def _child(parent: Node, module: _Module, address: tuple[int, ...], frame: FrameType) -> Node:
    with _lock:
        contexts = _contexts_of(module)
        if contexts.nodes and not contexts.claimed:
            node = contexts.nodes[0]
        else:
            root = None if parent.root is None else parent.root()
            name = None if root is None else _name_in(root, module)
            if name is None:  # not registered with the root: say where it was met
                name = f"{parent.scope}.{type(module).__name__}".lstrip(".")
            node = Node(name, module, parent.root)
            contexts.nodes.append(node)
        contexts.claimed = True
        parent.pinned += (c for c in _codes(frame) if c not in parent.pinned)
        parent.children[address] = node
    return node


def _name_in(root: _Module, module: _Module) -> str | None:
    return next((name for name, found in root.named_modules() if found is module), None)


def _owner(module: _Module, frame: FrameType | None) -> _Module | None:
    """The module whose method calls ``module`` from outside of any module call.

    ``model.generate()`` calls parts of the model, which are to be named as parts of it.
    """
    owner = None
    while frame is not None:
        candidate = _first_argument(frame)
        if isinstance(candidate, _Module) and _name_in(candidate, module) is not None:
            owner = candidate
        frame = frame.f_back
    return owner


def _optimizer(frame: FrameType | None) -> str | None:
    """The class of the optimizer whose ``step`` is running, if one is."""
    while frame is not None:
        if frame.f_code.co_name == "step":
            candidate = _first_argument(frame)
            if isinstance(candidate, torch.optim.Optimizer):
                return type(candidate).__name__
        frame = frame.f_back
    return None


def _first_argument(frame: FrameType) -> Any:
    """What a function was given first (``self`` in a method), None if it takes nothing.

    Before Python 3.13 a look at the local variables leaves a copy of them in the frame, which
    would keep a model alive that the program has let go of. It is emptied, unless the program
    holds it too (``locals()``).
    """
    if not frame.f_code.co_argcount:
        return None
    variables = frame.f_locals
    first = variables.get(frame.f_code.co_varnames[0])
    held_by_frame_alone = 3  # the frame, this function, and the call that counts
    if sys.version_info < (3, 13) and sys.getrefcount(variables) == held_by_frame_alone:
        variables.clear()
    return first
