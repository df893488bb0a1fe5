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
from typing import TYPE_CHECKING

import torch
from amanda import Operator

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
from amanda_torch.paths import Paths, is_module, is_stateless, joined, keras_name, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    from amanda_torch.thread import ThreadState

    Address = tuple[object, ...]
    Whereabouts = tuple["Node", list[int | str]]

# Turns told apart at one site: an endless loop within one call must not make the cache grow
# without bound.
_TURNS = 4096

_Module = torch.nn.Module

_operators: weakref.WeakValueDictionary[str, Operator] = weakref.WeakValueDictionary()
# The mark that was given last to what would have an id, where to go on looking for a free one.
_marks: dict[str, int] = {}
_lock = threading.RLock()


class Root:
    """A model as a whole, or all code outside of modules: within it operators are numbered.

    So what a model's operators are called does not depend on what else there is, but for those
    whose id a living operator already has: a mark behind the number tells them from it.
    """

    __slots__ = ("__weakref__", "_counts", "_mark", "_operators", "module")

    def __init__(self, module: _Module | None = None) -> None:
        self.module = None if module is None else weakref.ref(module)
        self._operators: weakref.WeakValueDictionary[str, Operator] = weakref.WeakValueDictionary()
        # The number that was given last for a scope and type, where to look for a free one.
        self._counts: dict[tuple[str, str], int] = {}
        self._mark = 0

    def add(self, scope: str, type: str, on_request: bool) -> Operator:
        """A new operator, with the first id that no living one has."""
        prefix = f"{scope}/" if scope else ""
        count = self._counts.get((scope, type), 0)
        if prefix + _numbered(type, count) not in self._operators:
            count = 0  # what had it is gone, and lower numbers are free again
        name = own = ""
        while not name or own in self._operators or (self.module is None and own in _operators):
            count += 1
            name = _numbered(type, count)
            own = prefix + name
        self._counts[scope, type] = count
        id = own
        if id in _operators:
            self._mark = _free_mark(prefix, type, count, self._mark)
            name = _marked(type, count, self._mark)
            id = prefix + name
        operator = Operator(
            id=id, type=type, name=name, scope=scope, backend="torch", on_request=on_request
        )
        self._operators[own] = _operators[id] = operator
        return operator


def _free_mark(prefix: str, type: str, count: int, mark: int) -> int:
    """A mark that no living operator of this number has, if possible the one that is given."""
    if mark and prefix + _marked(type, count, mark) not in _operators:
        return mark
    own = prefix + _numbered(type, count)
    mark = _marks.get(own, 1)
    if prefix + _marked(type, count, mark) not in _operators:
        mark = 1  # its model is gone, and lower marks are free again
    while True:
        mark += 1
        if prefix + _marked(type, count, mark) not in _operators:
            _marks[own] = mark
            return mark


def _marked(type: str, count: int, mark: int) -> str:
    return f"{type}#{count}@{mark}"


def _numbered(type: str, count: int) -> str:
    return type if count == 1 else f"{type}#{count}"


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
        "placed",
        "root",
        "scope",
        "sites",
        "stateless",
        "wraps",
    )

    def __init__(self, scope: str, root: Root, module: _Module | None = None) -> None:
        self.scope = scope
        self.root = root
        self.module = None if module is None else weakref.ref(module)
        # Whether it is reached from within another module, through a certain call site.
        self.placed = False
        # The context of the module that a wrapper wraps, with which it has all below in common: it
        # may run that module's code without calling the module.
        self.wraps: Node | None = None
        # Which modules are called from here, as long as they live.
        self.children: dict[Address, Node] = {}
        # What serves for all modules of a class that have no state, by the place of their call.
        self.stateless: dict[Address, Node] = {}
        self.sites: dict[Address, list[Operator]] = {}
        # Whether a function outside of modules is given a module first, as methods are.
        self.methods: dict[int, bool] = {}
        # An address holds identities of code objects, which must not be given to others.
        self.pinned: dict[int, CodeType] = {}

    def pin(self, frame: FrameType | None) -> None:
        """Keep the code that an address from this frame is made of."""
        for _ in range(DEEPEST):
            if frame is None:
                break
            code = first_code(frame.f_code)
            self.pinned[id(code)] = code
            frame = frame.f_back

    def of_wrapper(self, wrapper: _Module) -> Node:
        """The context of what wraps this one's module."""
        node = Node(self.scope, self.root, wrapper)
        node.wraps = self
        node.children, node.stateless, node.sites = self.children, self.stateless, self.sites
        node.pinned = self.pinned
        return node

    def holds(self, module: _Module | None) -> bool:
        """Whether it is a context of this module; of one that is gone for None."""
        return self.module is not None and self.module() is module


class _Contexts:
    """What is known of one module, for as long as it lives.

    Attributes:
        root: its operators, where it is the model that is called.
        paths: of the modules within it.
        outside: the context for calls from outside of any module.
        first: by model and path, the context that was met first there. It is taken for the calls
            from outside too, so that ``self.encoder(x)`` runs the same operators in a method of a
            model as in its ``forward``.
        strangers: models that it is known not to be part of.
        places: where the contexts are among the children of others.
    """

    __slots__ = (
        "__weakref__",
        "_paths",
        "_root",
        "_strangers",
        "first",
        "module",
        "outside",
        "places",
    )

    def __init__(self, module: _Module) -> None:
        key = id(module)

        def forget(
            gone: weakref.ref[_Module], ending: Callable[[], bool] = sys.is_finalizing
        ) -> None:
            if ending():  # when Python ends, what this needs may be gone already
                return
            contexts = _contexts.get(key)
            if contexts is not None and contexts.module is gone:
                del _contexts[key]
                for parent, addresses in contexts.places.items():
                    for address in addresses:
                        parent.children.pop(address, None)

        self.module = weakref.ref(module, forget)
        # Most modules need none of these.
        self._root: Root | None = None
        self._paths: Paths | None = None
        self._strangers: weakref.WeakSet[_Contexts] | None = None
        self.outside: Node | None = None
        self.first: weakref.WeakKeyDictionary[Root, dict[str, weakref.ref[Node]]]
        self.first = weakref.WeakKeyDictionary()
        self.places: weakref.WeakKeyDictionary[Node, set[Address]] = weakref.WeakKeyDictionary()

    @property
    def root(self) -> Root:
        if self._root is None:
            self._root = Root(self.module())
        return self._root

    @property
    def paths(self) -> Paths:
        if self._paths is None:
            module = self.module()
            assert module is not None
            self._paths = Paths(module)
        return self._paths

    @property
    def strangers(self) -> weakref.WeakSet[_Contexts]:
        if self._strangers is None:
            self._strangers = weakref.WeakSet()
        return self._strangers

    def place(self, parent: Node, address: Address, node: Node) -> None:
        """Put one of the contexts among the children of another module's."""
        parent.children[address] = node
        self.places.setdefault(parent, set()).add(address)

    def at(self, root: Root, scope: str) -> Node | None:
        """The context that was met first in a model at a path."""
        known = self.first.get(root, {}).get(scope)
        return None if known is None else known()

    def met(self, node: Node) -> Node:
        """Take note of a context."""
        if self.at(node.root, node.scope) is None:
            self.first.setdefault(node.root, {})[node.scope] = weakref.ref(node)
        return node


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
            return locate(type, key, frame, thread)
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
            site.append(_new_operator(node, type, frame))
        return site[turn]


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
        node = _child(parent, module, address, frame, thread)
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
    return _model(module, method, outside), path[: min(end, 2 * DEEPEST)]


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
        if owner is not module and (node := _part(unwrapped(owner), module)) is not None:
            return node
    outside = thread.outside
    assert outside is not None
    return _model(module, frame, outside)


def _part(model: _Module, module: _Module) -> Node | None:
    """The context of a module for calls from a method of a model that it is a part of."""
    if unwrapped(module) is model:
        return None
    whole_model, contexts = _contexts_of(model), _contexts_of(module)
    if whole_model in contexts.strangers:
        return None
    with _lock:
        whole = _root_node(model)
        address = (id(module), 0)  # no call site
        node = whole.children.get(address)
        if node is not None and node.holds(module):
            return node
        path = whole_model.paths.find(module, None)
        if path is None:
            contexts.strangers.add(whole_model)
            return None
        inner = unwrapped(module)
        if inner is not module:
            part = _part(model, inner)
            assert part is not None
            node = part.of_wrapper(module)
        else:
            layer = keras_name(module)
            scope = joined(whole.scope, path) if layer is None else layer
            node = contexts.at(whole.root, scope) or contexts.met(Node(scope, whole.root, module))
        contexts.place(whole, address, node)
        return node


def _model(module: _Module, frame: FrameType, outside: Node) -> Node:
    """The context of a module that is called from outside of modules, as a part of no other."""
    known = _contexts.get(id(module))
    if known is not None and known.outside is not None and known.outside.holds(module):
        return known.outside
    with _lock:
        contexts = _contexts_of(module)
        inner = unwrapped(module)
        if inner is not module:
            contexts.outside = _model(inner, frame, outside).of_wrapper(module)
        elif contexts.outside is None and is_stateless(module):
            code = first_code(frame.f_code)
            place = (type(module).__qualname__, id(code), frame.f_lasti)
            node = outside.stateless.get(place)
            if node is None or not node.holds(None):
                outside.pin(frame)
                node = outside.stateless[place] = Node("", outside.root, module)
            node.module = weakref.ref(module)
            contexts.outside = node
        else:
            contexts.outside = _root_node(module)
        return contexts.outside


def _root_node(module: _Module) -> Node:
    contexts = _contexts_of(module)
    if contexts.outside is None or not contexts.outside.holds(module):
        node = Node(keras_name(module) or "", contexts.root, module)
        contexts.outside = contexts.met(node)
    return contexts.outside


def _child(
    parent: Node, module: _Module, address: Address, frame: FrameType, thread: ThreadState
) -> Node:
    """The context of a module that is called from within another one."""
    with _lock:
        known = parent.children.get(address)
        if known is not None and known.holds(module):
            return known  # another thread has come first
        inner, contexts = unwrapped(module), _contexts_of(module)
        if inner is not module:
            if parent.wraps is not None and parent.wraps.holds(inner):  # a wrapper of a wrapper
                node = parent.wraps.of_wrapper(module)
            else:
                within = (id(inner), *address[1:])
                node = _child(parent, inner, within, frame, thread).of_wrapper(module)
        else:
            node = _called(parent, module, address, thread.visits)
        parent.pin(frame)
        contexts.place(parent.wraps or parent, address, node)
        return node


def _called(parent: Node, module: _Module, address: Address, call: object) -> Node:
    """A context of a module, for an address where it has not been called before."""
    contexts = _contexts_of(module)
    place = (type(module).__qualname__, *address[1:])
    node = parent.stateless.get(place) if is_stateless(module) else None
    if node is None or _listed(parent, module):
        name = _named(parent, module, call)
        scope = joined(parent.scope, type(module).__name__) if name is None else name
        if (layer := keras_name(module)) is not None:
            scope = f"{parent.scope}/{layer}".lstrip("/")
        node = contexts.at(parent.root, scope)
        if node is None or node.placed:
            node = contexts.met(Node(scope, parent.root, module))
        if name is None and is_stateless(module):
            parent.stateless[place] = node
    node.placed = True
    node.module = weakref.ref(module)
    return node


def _listed(parent: Node, module: _Module) -> bool:
    """Whether a module is known to be within the one that calls it."""
    caller = None if parent.module is None else parent.module()
    return caller is not None and _contexts_of(caller).paths.listed(module) is not None


def _named(parent: Node, module: _Module, call: object) -> str | None:
    """The path of a module: in the one that calls it, or else where the model has it."""
    caller = None if parent.module is None else parent.module()
    if caller is not None and (path := _contexts_of(caller).paths.find(module, call)) is not None:
        return joined(parent.scope, path)
    model = None if parent.root.module is None else parent.root.module()
    return None if model is None else _contexts_of(model).paths.find(module, call, growing=False)


def _contexts_of(module: _Module) -> _Contexts:
    known = _contexts.get(id(module))
    if known is None or known.module() is not module:
        known = _contexts[id(module)] = _Contexts(module)
    return known


def _new_operator(node: Node, type: str, frame: FrameType) -> Operator:
    updating = optimizer(frame)
    scope = node.scope if updating is None else updating
    return node.root.add(scope, type, updating is not None or is_machinery(frame))
