"""A module's paths and calling contexts are known for as long as it lives."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING

from amanda_torch.places.numbering import Root
from amanda_torch.places.paths import Paths

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from amanda_torch.places.context import Address, Context
    from amanda_torch.places.numbering import Numbering


class KnownModule:
    """This holds what is known of one module.

    Attributes:
        outside: the context for calls from outside of any module.
        first: by model and path, the context that was met first there. It is taken for the calls
            from outside too, so that ``self.encoder(x)`` runs the same operators in a method of a
            model as in its ``forward``.
        places: where the contexts are among the children of others.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        numbering: Numbering,
        gone: Callable[[weakref.ref[torch.nn.Module]], None],
    ) -> None:
        self.module = weakref.ref(module, gone)
        self._numbering = numbering
        # Most modules need none of these.
        self._root: Root | None = None
        self._paths: Paths | None = None
        self._strangers: weakref.WeakSet[KnownModule] | None = None
        self.outside: Context | None = None
        self.first: weakref.WeakKeyDictionary[Root, dict[str, weakref.ref[Context]]]
        self.first = weakref.WeakKeyDictionary()
        self.places: weakref.WeakKeyDictionary[Context, set[Address]] = weakref.WeakKeyDictionary()

    @property
    def root(self) -> Root:
        """Return its operators, where it is the model that is called."""
        if self._root is None:
            self._root = Root(self._numbering, self.module())
        return self._root

    @property
    def paths(self) -> Paths:
        """Return the paths of the modules within it."""
        if self._paths is None:
            module = self.module()
            assert module is not None
            self._paths = Paths(module)
        return self._paths

    @property
    def strangers(self) -> weakref.WeakSet[KnownModule]:
        """Return the models that it is known not to be part of."""
        if self._strangers is None:
            self._strangers = weakref.WeakSet()
        return self._strangers

    def place(self, parent: Context, address: Address, context: Context) -> None:
        """Put one of the contexts among the children of another module's."""
        parent.children[address] = context
        self.places.setdefault(parent, set()).add(address)

    def forget_places(self) -> None:
        """Take the contexts away from among the children of other modules."""
        for parent, addresses in self.places.items():
            for address in addresses:
                parent.children.pop(address, None)
                parent.calls.forget(address[0])

    def at(self, root: Root, scope: str) -> Context | None:
        """Return the context that was met first in a model at a path."""
        known = self.first.get(root, {}).get(scope)
        return None if known is None else known()

    def met(self, context: Context) -> Context:
        """Take note of a context."""
        if self.at(context.root, context.scope) is None:
            self.first.setdefault(context.root, {})[context.scope] = weakref.ref(context)
        return context


class KnownModules(dict[int, KnownModule]):
    """This holds what is known of all living modules, by identity."""

    def __init__(self, numbering: Numbering) -> None:
        super().__init__()
        self._numbering = numbering

    def of(self, module: torch.nn.Module) -> KnownModule:
        """Return what is known of a module."""
        known = self.get(id(module))
        if known is None or known.module() is not module:
            known = self[id(module)] = KnownModule(module, self._numbering, self._forget(module))
        return known

    def _forget(self, module: torch.nn.Module) -> Callable[[weakref.ref[torch.nn.Module]], None]:
        key = id(module)

        def forget(
            gone: weakref.ref[torch.nn.Module], ending: Callable[[], bool] = sys.is_finalizing
        ) -> None:
            if ending():  # when Python ends, what this needs may be gone already
                return
            known = self.get(key)
            if known is not None and known.module is gone:
                del self[key]
                known.forget_places()

        return forget
