"""A module's calling context tells in which model, and through which calls, it is reached."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from amanda_torch.places.codes import Codes
from amanda_torch.places.context import Context
from amanda_torch.places.keras import layer_name, layer_scope
from amanda_torch.places.modules import KnownModules
from amanda_torch.places.numbering import Numbering, Root
from amanda_torch.places.paths import innermost_module, is_stateless, joined

if TYPE_CHECKING:
    from types import FrameType

    import torch

    from amanda_torch.frames import Way

    _Module = torch.nn.Module


class Contexts:
    """This finds the calling contexts of modules.

    Attributes:
        numbering: the ids of their operators.
        codes: what their addresses are made of.
        modules: what is known of each module.
        lock: held by whoever adds to them.
    """

    def __init__(self) -> None:
        self.numbering = Numbering()
        self.codes = Codes()
        self.modules = KnownModules(self.numbering)
        self.lock = threading.RLock()

    def outside(self) -> Context:
        """Make a context for all code outside of modules."""
        return Context("", Root(self.numbering))

    def part_of(self, model: _Module, module: _Module) -> Context | None:
        """Return the context of a module for calls from a method of a model that it is part of."""
        if innermost_module(module) is model:
            return None
        whole_model, known = self.modules.of(model), self.modules.of(module)
        if whole_model in known.strangers:
            return None
        with self.lock:
            whole = self._of_model(model)
            address = id(module), ()  # no call site
            context = whole.children.get(address)
            if context is not None and context.holds(module):
                return context
            path = whole_model.paths.find(module, None)
            if path is None:
                known.strangers.add(whole_model)
                return None
            inner = innermost_module(module)
            if inner is not module:
                part = self.part_of(model, inner)
                assert part is not None
                context = part.of_wrapper(module)
            else:
                scope = layer_name(module) or joined(whole.scope, path)
                context = known.at(whole.root, scope) or known.met(
                    Context(scope, whole.root, module)
                )
            known.place(whole, address, context)
            return context

    def model(self, module: _Module, frame: FrameType, outside: Context) -> Context:
        """Return the context of a module that is called outside of modules, as part of no other."""
        seen = self.modules.get(id(module))
        if seen is not None and seen.outside is not None and seen.outside.holds(module):
            return seen.outside
        with self.lock:
            known = self.modules.of(module)
            inner = innermost_module(module)
            if inner is not module:
                known.outside = self.model(inner, frame, outside).of_wrapper(module)
            elif known.outside is None and is_stateless(module):
                known.outside = self._stateless(module, frame, outside)
            else:
                known.outside = self._of_model(module)
            return known.outside

    def child(
        self, parent: Context, module: _Module, way: Way, frame: FrameType, call: object
    ) -> Context:
        """Return the context of a module that is called from within another one.

        Args:
            parent: the context of that one.
            module: what is called.
            way: the call sites that lead to it.
            frame: the last of these.
            call: identifies the call of the model that is running.
        """
        address = id(module), way
        with self.lock:
            known = parent.children.get(address)
            if known is not None and known.holds(module):
                return known  # another thread has come first
            inner = innermost_module(module)
            if inner is module:
                context = self._called(parent, module, way, call)
            elif parent.wraps is not None and parent.wraps.holds(inner):  # a wrapper of a wrapper
                context = parent.wraps.of_wrapper(module)
            else:
                context = self.child(parent, inner, way, frame, call).of_wrapper(module)
            parent.pin(frame, self.codes)
            self.modules.of(module).place(parent.wraps or parent, address, context)
            return context

    def _of_model(self, module: _Module) -> Context:
        known = self.modules.of(module)
        if known.outside is None or not known.outside.holds(module):
            context = Context(layer_name(module) or "", known.root, module)
            known.outside = known.met(context)
        return known.outside

    def _stateless(self, module: _Module, frame: FrameType, outside: Context) -> Context:
        """Return the context of a module that may be made anew for each call outside of modules."""
        code = self.codes.first(frame.f_code)
        place = type(module).__qualname__, (id(code), frame.f_lasti)
        context = outside.stateless.get(place)
        if context is None or not context.holds(None):
            outside.pin(frame, self.codes)
            context = outside.stateless[place] = Context("", outside.root, module)
        context.module = weakref.ref(module)
        return context

    def _called(self, parent: Context, module: _Module, way: Way, call: object) -> Context:
        """Return a context of a module, for an address where it has not been called before."""
        known = self.modules.of(module)
        place = type(module).__qualname__, way
        context = parent.stateless.get(place) if is_stateless(module) else None
        if context is None or self._listed(parent, module):
            name = self._named(parent, module, call)
            scope = joined(parent.scope, type(module).__name__) if name is None else name
            if (layer := layer_name(module)) is not None:
                scope = layer_scope(parent.scope, layer)
            context = known.at(parent.root, scope)
            if context is None or context.placed:
                context = known.met(Context(scope, parent.root, module))
            if name is None and is_stateless(module):
                parent.stateless[place] = context
        context.placed = True
        context.module = weakref.ref(module)
        return context

    def _listed(self, parent: Context, module: _Module) -> bool:
        """Tell whether a module is known to be within the one that calls it."""
        caller = None if parent.module is None else parent.module()
        return caller is not None and self.modules.of(caller).paths.listed(module) is not None

    def _named(self, parent: Context, module: _Module, call: object) -> str | None:
        """Return the path of a module: in the one that calls it, or else where the model has it."""
        caller = None if parent.module is None else parent.module()
        if caller is not None:
            path = self.modules.of(caller).paths.find(module, call)
            if path is not None:
                return joined(parent.scope, path)
        model = None if parent.root.module is None else parent.root.module()
        if model is None:
            return None
        return self.modules.of(model).paths.find(module, call, growing=False)
