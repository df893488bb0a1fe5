"""Modules are reached by calling contexts, which hold the places that run operators."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from amanda_torch.frames import DEEPEST
from amanda_torch.places.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    import torch
    from amanda import Operator

    from amanda_torch.frames import Way
    from amanda_torch.operators.settings import Place
    from amanda_torch.operators.signature import Args
    from amanda_torch.operators.targets import Form
    from amanda_torch.places.codes import Codes
    from amanda_torch.places.numbering import Root

    # What is reached, and the call sites that lead there.
    Address = tuple[object, Way]


@dataclass(slots=True, eq=False)
class Site:
    """A site is a place that runs operators, one for each turn within a call of the model."""

    operators: list[Operator] = field(default_factory=list)


class Turn(NamedTuple):
    """A turn is what a place runs at one pass: an operator, given its arguments in a form."""

    operator: Operator
    form: Form


@dataclass(slots=True, eq=False)
class Passage:
    """A passage is a place that was passed on a route, with arguments in a form.

    Attributes:
        site: the place.
        form: the form.
        fits: whether arguments are known to be in that form.
        turns: what ran there at each turn.
    """

    site: Site
    form: Form
    fits: Callable[[Args], bool]
    turns: list[Turn] = field(default_factory=list)


class Context:
    """A context is a module as it is reached through certain call sites.

    Without a module it stands for all code outside of modules.

    Attributes:
        scope: the path of the module.
        root: the model that it is in.
        module: gives the module.
        type: its class, as tools see it, once that was asked for.
        placed: whether it is reached from within another module, through a certain call site.
        wraps: the context of the module that a wrapper wraps, with which it has all below in
            common: it may run that module's code without calling the module.
        children: which modules are called from here, as long as they live.
        stateless: what serves for all modules of a class without state, by the place of their call.
        sites: the places that run operators, by address.
        ways: the same places by the frames that lead there, and what has an operator there.
        calls: the same children by the frames that lead to their calls, and the module's identity.
        places: those outside of modules, where no call of a model counts turns.
        methods: whether a function outside of modules is given a module first, as methods are.
        pinned: code whose identities addresses hold, which must not be given to other code.
    """

    def __init__(self, scope: str, root: Root, module: torch.nn.Module | None = None) -> None:
        self.scope = scope
        self.root = root
        self.module = None if module is None else weakref.ref(module)
        self.type: str | None = None
        self.placed = False
        self.wraps: Context | None = None
        self.children: dict[Address, Context] = {}
        self.stateless: dict[Address, Context] = {}
        self.sites: dict[Address, Site] = {}
        self.ways = Routes()
        self.calls = Routes()
        self.places: dict[Address, Place] = {}
        self.methods: dict[int, bool] = {}
        self.pinned: dict[int, CodeType] = {}

    def pin(self, frame: FrameType | None, codes: Codes) -> None:
        """Keep the code that an address from this frame is made of."""
        for _ in range(DEEPEST):
            if frame is None:
                break
            code = codes.first(frame.f_code)
            self.pinned[id(code)] = code
            frame = frame.f_back

    def of_wrapper(self, wrapper: torch.nn.Module) -> Context:
        """Return the context of what wraps this one's module."""
        context = Context(self.scope, self.root, wrapper)
        context.wraps = self
        context.children, context.stateless, context.pinned = (
            self.children,
            self.stateless,
            self.pinned,
        )
        context.sites, context.ways, context.calls = self.sites, self.ways, self.calls
        return context

    def holds(self, module: torch.nn.Module | None) -> bool:
        """Tell whether it is a context of this module; for None, of one that is gone."""
        return self.module is not None and self.module() is module
