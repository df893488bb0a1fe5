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
from typing import TYPE_CHECKING, Any

import torch
from amanda import Operator

from amanda_torch.frames import (
    ENDS,
    RESUMES,
    SPECIAL,
    first_argument,
    is_machinery,
    optimizer,
)

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from amanda_torch.thread import ThreadState

    Whereabouts = tuple["Node", list[int]]

# Call sites looked at for one address, and turns told apart at one site: recursion and endless
# loops within one call must not make the cache grow without bound.
_DEEPEST = 32
_TURNS = 4096

_Module = torch.nn.Module

_operators: weakref.WeakValueDictionary[str, Operator] = weakref.WeakValueDictionary()
# The number that was given last for a scope and type, where to go on looking for a free one.
_counts: dict[tuple[str, str], int] = {}
_lock = threading.RLock()


class Node:
    """A module in one calling context: through which call sites it is reached.

    Without a module it stands for all code outside of modules.
    """

    __slots__ = (
        "__weakref__",
        "children",
        "methods",
        "module",
        "pinned",
        "root",
        "scope",
        "sites",
        "stateless",
    )

    def __init__(
        self, scope: str, module: _Module | None = None, root: weakref.ref[_Module] | None = None
    ) -> None:
        self.scope = scope
        self.module = None if module is None else weakref.ref(module)
        self.root = root
        # Which modules are called from here, as long as they live.
        self.children: dict[tuple[int, ...], Node] = {}
        # What serves for all modules of a class that have no state, by the place of their call.
        self.stateless: dict[tuple[object, ...], Node] = {}
        self.sites: dict[tuple[object, ...], list[Operator]] = {}
        # Whether a function outside of modules is given a module first, as methods are.
        self.methods: dict[int, bool] = {}
        # An address holds identities of code objects, which must not be given to others.
        self.pinned: dict[int, CodeType] = {}

    def pin(self, frame: FrameType | None) -> None:
        """Keep the code that an address from this frame is made of."""
        for _ in range(_DEEPEST):
            if frame is None:
                break
            self.pinned[id(frame.f_code)] = frame.f_code
            frame = frame.f_back

    def holds(self, module: _Module | None) -> bool:
        """Whether it is a context of this module; of one that is gone for None."""
        return self.module is not None and self.module() is module


class _Contexts:
    """The calling contexts of one module, which live as long as it does.

    Attributes:
        outside: the one for calls from outside of any module.
        inner: the first one for calls from within another module. One is taken for the other, so
            that ``model.encoder(x)`` and ``model(x)`` run the same operators.
        places: where the contexts are among the children of others.
    """

    __slots__ = ("inner", "module", "outside", "places")

    def __init__(self, module: _Module) -> None:
        key = id(module)

        def forget(gone: weakref.ref[_Module]) -> None:
            contexts = _contexts.get(key)
            if contexts is not None and contexts.module is gone:
                del _contexts[key]
                for parent, addresses in contexts.places.items():
                    for address in addresses:
                        parent.children.pop(address, None)

        self.module = weakref.ref(module, forget)
        self.outside: Node | None = None
        self.inner: weakref.ref[Node] | None = None
        self.places: weakref.WeakKeyDictionary[Node, set[tuple[int, ...]]]
        self.places = weakref.WeakKeyDictionary()


_contexts: dict[int, _Contexts] = {}


def locate(type: str, key: object, frame: FrameType, thread: ThreadState) -> Operator:
    """The operator of a type, told apart by a key from others at its place, called from a frame."""
    node = thread.node
    path: list[object] = [key]
    if node is None:
        node, way = _outside(frame, thread)
        path += way
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
            caller = caller.f_back
        if len(path) > 2 * _DEEPEST:
            del path[2 * _DEEPEST :]
    address = tuple(path)
    site = node.sites.get(address)
    if site is None:
        with _lock:
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
    with _lock:  # another thread may have come first
        while turn >= len(site):
            site.append(_new_operator(node, type, frame, thread))
        return site[turn]


def enter(module: _Module, frame: FrameType, thread: ThreadState) -> Node:
    """The calling context for a module that is called from a frame."""
    parent = thread.node
    if parent is None:
        known = _contexts.get(id(module))
        if known is not None and known.outside is not None and known.outside.holds(module):
            return known.outside
        return _outermost(module, frame, thread)
    address = (id(module), *_inside(frame, thread))
    node = parent.children.get(address)
    if node is None or not node.holds(module):
        node = _child(parent, module, address, frame)
    return node


def whereabouts(frame: FrameType, thread: ThreadState) -> Whereabouts:
    """The module that a frame runs in, and the call sites that lead from there to the frame."""
    if thread.node is None:
        return _outside(frame, thread)
    return thread.node, _inside(frame, thread)


def _inside(frame: FrameType | None, thread: ThreadState) -> list[int]:
    path: list[int] = []
    while frame is not None and len(path) < 2 * _DEEPEST:
        code = id(frame.f_code)
        kind = SPECIAL.get(code)
        if kind is None:
            path += (code, frame.f_lasti)
        elif kind is ENDS:
            break
        elif kind is RESUMES:
            path += thread.origin
            break
        frame = frame.f_back
    return path[: 2 * _DEEPEST]


def _outside(frame: FrameType | None, thread: ThreadState) -> Whereabouts:
    """Outside of module calls, what a module is given to (``model.generate()``) runs in it.

    The path ends there, or where the scope was opened.
    """
    outside = thread.outside
    assert outside is not None
    owner: tuple[_Module, FrameType, int] | None = None
    path: list[int] = []
    while frame is not None:
        code = frame.f_code
        kind = SPECIAL.get(id(code))
        if kind is None:
            path += (id(code), frame.f_lasti)
            if _takes_module(outside, frame):
                candidate = first_argument(frame)
                if _is_module(candidate):
                    owner = candidate, frame, len(path)
        elif kind is ENDS:
            break
        elif kind is RESUMES:
            if owner is None or thread.resumed is not outside:
                assert thread.resumed is not None
                return thread.resumed, [*path, *thread.origin][: 2 * _DEEPEST]
            break
        if code is thread.floor:
            break
        frame = frame.f_back
    if owner is None:
        return outside, path[: 2 * _DEEPEST]
    module, method, end = owner
    return enter(module, method, thread), path[: min(end, 2 * _DEEPEST)]


def _takes_module(outside: Node, frame: FrameType) -> bool:
    key = id(frame.f_code)
    known = outside.methods.get(key)
    if known is None:
        known = outside.methods[key] = _is_module(first_argument(frame))
        outside.pinned[key] = frame.f_code
    return known


def _new_operator(node: Node, type: str, frame: FrameType, thread: ThreadState) -> Operator:
    updating = optimizer(frame) if thread.node is None else None
    scope = node.scope if updating is None else updating
    id, name = _free_id(scope, type)
    operator = Operator(
        id=id,
        type=type,
        name=name,
        scope=scope,
        backend="torch",
        on_request=updating is not None or is_machinery(frame),
    )
    _operators[id] = operator
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


def _outermost(module: _Module, frame: FrameType, thread: ThreadState) -> Node:
    outside = thread.outside
    assert outside is not None
    with _lock:
        contexts = _contexts_of(module)
        if contexts.outside is not None and contexts.outside.holds(module):
            return contexts.outside  # another thread has come first
        node = None if contexts.inner is None else contexts.inner()
        if node is None and _is_stateless(module):
            place = (type(module).__qualname__, id(frame.f_code), frame.f_lasti)
            node = outside.stateless.get(place)
            if node is None or not node.holds(None):
                outside.pin(frame)
                node = outside.stateless[place] = _root_node(module, frame)
            node.module = weakref.ref(module)
        contexts.outside = node or _root_node(module, frame)
        return contexts.outside


def _root_node(module: _Module, frame: FrameType) -> Node:
    owner = _owner(module, frame) or module
    name = _keras_name(module) or _name_in(owner, module) or ""
    return Node(name, module, weakref.ref(owner))


def _child(parent: Node, module: _Module, address: tuple[int, ...], frame: FrameType) -> Node:
    with _lock:
        known = parent.children.get(address)
        if known is not None and known.holds(module):
            return known  # another thread has come first
        contexts = _contexts_of(module)
        place = (type(module).__qualname__, *address[1:])
        node = parent.stateless.get(place) if _is_stateless(module) else None
        if node is None:
            root = None if parent.root is None else parent.root()
            name = None if root is None else _name_in(root, module)
            scope = name or f"{parent.scope}.{type(module).__name__}".lstrip(".")
            if (layer := _keras_name(module)) is not None:
                scope = f"{parent.scope}/{layer}".lstrip("/")
            node = contexts.outside if contexts.inner is None else None
            if node is None:
                node = Node(scope, module, parent.root)
            else:
                node.scope, node.root = scope, parent.root
            if name is None and _is_stateless(module):
                parent.stateless[place] = node
        node.module = weakref.ref(module)
        if contexts.inner is None:
            contexts.inner = weakref.ref(node)
        parent.pin(frame)
        parent.children[address] = node
        contexts.places.setdefault(parent, set()).add(address)
        return node


def _is_stateless(module: _Module) -> bool:
    """Whether a module is as good as a function, so that one may be made anew for each call."""
    return _keras_name(module) is None and not any(  # Keras keeps variables of its own
        value is not None
        for state in (module._parameters, module._buffers, module._modules)
        for value in state.values()
    )


def _is_module(value: Any) -> bool:
    """Whether a value is a module that has been through ``Module.__init__``."""
    return isinstance(value, _Module) and "_modules" in vars(value)


def _name_in(root: _Module, module: _Module) -> str | None:
    return next((name for name, found in root.named_modules() if found is module), None)


def _keras_name(module: _Module) -> str | None:
    """The name of a Keras layer, which Keras knows by the path of these names."""
    layer = getattr(sys.modules.get("keras"), "Layer", None)
    return module.name if layer is not None and isinstance(module, layer) else None


def _owner(module: _Module, frame: FrameType | None) -> _Module | None:
    """The module whose method calls ``module`` from outside of any module call.

    ``model.generate()`` calls parts of the model, which are to be named as parts of it.
    """
    owner = None
    while frame is not None:
        candidate = first_argument(frame)
        if _is_module(candidate) and _name_in(candidate, module) is not None:
            owner = candidate
        frame = frame.f_back
    return owner
