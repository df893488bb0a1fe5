"""The calling contexts of modules: in which model, and through which calls, a module is reached."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import TYPE_CHECKING

import torch

from amanda_torch.frames import DEEPEST, first_code
from amanda_torch.numbering import Root
from amanda_torch.paths import Paths, is_stateless, joined, keras_name, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    from amanda import Operator

    from amanda_torch.settings import Place

    Address = tuple[object, ...]

_Module = torch.nn.Module

lock = threading.RLock()


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
        "places",
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
        # The places outside of modules, where no call of a model counts turns.
        self.places: dict[Address, Place] = {}
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


def part_of(model: _Module, module: _Module) -> Node | None:
    """The context of a module for calls from a method of a model that it is a part of."""
    if unwrapped(module) is model:
        return None
    whole_model, contexts = _contexts_of(model), _contexts_of(module)
    if whole_model in contexts.strangers:
        return None
    with lock:
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
            part = part_of(model, inner)
            assert part is not None
            node = part.of_wrapper(module)
        else:
            layer = keras_name(module)
            scope = joined(whole.scope, path) if layer is None else layer
            node = contexts.at(whole.root, scope) or contexts.met(Node(scope, whole.root, module))
        contexts.place(whole, address, node)
        return node


def model(module: _Module, frame: FrameType, outside: Node) -> Node:
    """The context of a module that is called from outside of modules, as a part of no other."""
    known = _contexts.get(id(module))
    if known is not None and known.outside is not None and known.outside.holds(module):
        return known.outside
    with lock:
        contexts = _contexts_of(module)
        inner = unwrapped(module)
        if inner is not module:
            contexts.outside = model(inner, frame, outside).of_wrapper(module)
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


def child(parent: Node, module: _Module, address: Address, frame: FrameType, call: object) -> Node:
    """The context of a module that is called from within another one.

    Args:
        parent: the context of that one.
        module: what is called.
        address: identifies the module and the call sites that lead to it.
        frame: the last of these.
        call: identifies the call of the model that is running.
    """
    with lock:
        known = parent.children.get(address)
        if known is not None and known.holds(module):
            return known  # another thread has come first
        inner, contexts = unwrapped(module), _contexts_of(module)
        if inner is not module:
            if parent.wraps is not None and parent.wraps.holds(inner):  # a wrapper of a wrapper
                node = parent.wraps.of_wrapper(module)
            else:
                within = (id(inner), *address[1:])
                node = child(parent, inner, within, frame, call).of_wrapper(module)
        else:
            node = _called(parent, module, address, call)
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
