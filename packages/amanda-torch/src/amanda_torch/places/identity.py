"""An operator is known by its module, the call sites that lead to it, and its turn in a loop.

An operator is a place in a model, as an instruction is a place in a program. Its address is the
calling context of the module it runs in, then the call sites (code object and instruction offset)
between that module's ``forward`` and the operator. A place that is passed several times within
one call of the outermost module (a loop, a module called twice) is a different operator each
time, told apart by its turn. Nothing here looks at tensors, so a generation loop finds in its
second step the operators of the first one.

Core's ``Operators`` keeps places that the driver has named before. Here the place is found by the
frames themselves, level by level, since naming one anew at each execution would cost more than
all else.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from amanda.driving import ByOperator

from amanda_torch._internals import count_function_modes
from amanda_torch.frames import call_sites
from amanda_torch.operators.settings import Place, attributes
from amanda_torch.places.context import Context, Passage, Site, Turn
from amanda_torch.places.contexts import Contexts
from amanda_torch.places.outside import Outside
from amanda_torch.places.ownership import is_torch_internal, optimizer
from amanda_torch.places.paths import innermost_module
from amanda_torch.places.sources import source_of
from amanda_torch.thread import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from amanda import Operator

    from amanda_torch.frames import Way
    from amanda_torch.operators.settings import Settings
    from amanda_torch.operators.signature import Args, Kwargs
    from amanda_torch.operators.targets import Form, Forms
    from amanda_torch.places.context import Address
    from amanda_torch.thread import Entered, ThreadState

# Turns told apart at one site: an endless loop within one call must not make the cache grow
# without bound.
_TURNS = 4096

_NO_SETTINGS: tuple[Settings, Sequence[str]] = (), ()

# Where in a calling context the call of the module itself is.
_CALL = "the call", ()

_Module = torch.nn.Module


class Identity:
    """This knows the operators of a process by the places that run them.

    Attributes:
        contexts: the calling contexts of modules.

    Args:
        parameter_behind: returns the parameter that a tensor is, or a read, cast or view of.
    """

    def __init__(self, parameter_behind: Callable[[torch.Tensor], Any]) -> None:
        self._parameter_behind = parameter_behind
        self.contexts = Contexts()
        self._codes = self.contexts.codes
        self._outside = Outside(self.contexts)
        # Names of the settings that differ from one execution of an operator to the next.
        self._differing: ByOperator[frozenset[str]] = ByOperator()

    def operator(
        self, form: Form, args: Args, kwargs: Kwargs, frame: FrameType, thread: ThreadState
    ) -> Operator:
        """Return the operator that is executed, where it has one form alone; see :meth:`turn`."""
        return self.turn(form, args, kwargs, frame, thread).operator

    def turn(
        self, target: Forms, args: Args, kwargs: Kwargs, frame: FrameType, thread: ThreadState
    ) -> Turn:
        """Return the operator that is executed, and the form in which it is given its arguments.

        Args:
            target: what is called, which tells the form.
            args: the arguments; parameters, and those that are no tensors, tell operators apart
                outside of modules, where no turns are counted.
            kwargs: the same, by name.
            frame: what calls it.
            thread: the current thread's state.
        """
        entered = thread.entered
        if entered is None:
            return self._turn_outside(target.form(args, kwargs), args, kwargs, frame, thread)
        context = entered[CONTEXT] or self.context(entered, thread)
        route = context.ways.follow(target, frame)
        passage: Passage | None = None if route is None else route.found
        if passage is None or not passage.fits(args) or count_function_modes():
            passage = self._passage(context, passage, target, args, kwargs, frame, thread)
        visits, site, turns = thread.visits, passage.site, passage.turns
        assert visits is not None
        turn = visits.get(site, 0)
        visits[site] = turn + 1
        if turn < len(turns):
            return turns[turn]
        return self._new_turn(turn, context, passage, frame)

    def module_operator(
        self, context: Context, type: str, frame: FrameType, thread: ThreadState
    ) -> Operator:
        """Return the operator that a call of a module is: another one at each turn.

        Args:
            context: its calling context.
            type: its class.
            frame: what calls it.
            thread: the current thread's state.
        """
        site = context.sites.get(_CALL)
        if site is None:
            with self.contexts.lock:
                site = context.sites.setdefault(_CALL, Site())
        visits = thread.visits
        assert visits is not None
        turn = visits[site] = visits.get(site, -1) + 1
        new = functools.partial(context.root.add, context.scope, type, is_module=True)
        return self._at_turn(turn, site, lambda: new(source=source_of(frame)))

    def context(self, entered: Entered, thread: ThreadState) -> Context:
        """Return the calling context of a module call, once the first operator runs in it."""
        module, outer, frame, context = entered
        if context is None:
            if outer is None:
                context = self._outermost(module, frame, thread)
            else:
                parent = outer[CONTEXT] or self.context(outer, thread)
                context = self._within(parent, module, frame, thread)
            entered[CONTEXT] = context
        return context  # type: ignore[no-any-return]

    def whereabouts(self, frame: FrameType, thread: ThreadState) -> tuple[Context, Way]:
        """Return the module a frame runs in, and the call sites that lead from it to the frame."""
        self._codes.learn(frame)
        if thread.entered is None:
            return self._outside.reached(frame, thread)
        return self.context(thread.entered, thread), call_sites(frame, thread.origin)

    def settled(self, attrs: dict[str, Any], operator: Operator) -> Mapping[str, Any]:
        """Return the attributes of an operator, without the values of those that differ."""
        return attributes(attrs, operator, self._differing.get(operator.serial))

    def _passage(
        self,
        context: Context,
        known: Passage | None,
        target: Forms,
        args: Args,
        kwargs: Kwargs,
        frame: FrameType,
        thread: ThreadState,
    ) -> Passage:
        """Return the passage through a place within a module with arguments in this form.

        ``known`` is the last one on this route.
        """
        form = target.form(args, kwargs)
        if known is not None and form is known.form:
            known.fits = form.guard(args)
            return known
        way = call_sites(frame, thread.origin)
        if (form.key, way) not in context.sites and self._codes.learn(frame):
            way = call_sites(frame, thread.origin)
        passage = Passage(self._site(context, (form.key, way), frame), form, form.guard(args))
        with self.contexts.lock:
            context.ways.lead(target, frame, passage)
        return passage

    def _new_turn(self, turn: int, context: Context, passage: Passage, frame: FrameType) -> Turn:
        site, form = passage.site, passage.form
        new = functools.partial(_new_operator, context, form.type, frame)
        operator = self._at_turn(turn, site, new)
        with self.contexts.lock:
            known = len(passage.turns)
            passage.turns += [Turn(o, form) for o in site.operators[known : turn + 1]]
        return Turn(operator, form)

    def _site(self, context: Context, address: Address, frame: FrameType) -> Site:
        site = context.sites.get(address)
        if site is None:
            with self.contexts.lock:
                context.pin(frame, self._codes)
                site = context.sites.setdefault(address, Site())
        return site

    def _at_turn(self, turn: int, site: Site, new: Callable[[], Operator]) -> Operator:
        operators = site.operators
        if turn < len(operators):
            return operators[turn]
        if turn >= _TURNS:
            return operators[-1]
        with self.contexts.lock:  # another thread may have come first
            while turn >= len(operators):
                operators.append(new())
            return operators[turn]

    def _by_what_is_given(
        self,
        form: Form,
        way: Way,
        frame: FrameType,
        context: Context,
        settings: Settings,
        names: Sequence[str],
        parameters: Sequence[torch.Tensor],
    ) -> Operator:
        """Return the operator at a place outside of modules, by settings and parameters."""
        address = form.key, way
        place = context.places.get(address)
        if place is None:
            with self.contexts.lock:
                context.pin(frame, self._codes)
                place = context.places.setdefault(address, Place(self._differing))
        if place.only is not None:
            return place.only
        inner = place
        for parameter in parameters:
            taking = inner.taking(parameter)
            if taking is None:
                with self.contexts.lock:
                    taking = inner.add_taking(parameter)
            inner = taking
        operator = inner.get(settings)
        if operator is None:
            with self.contexts.lock:
                new = functools.partial(_new_operator, context, form.type, frame)
                operator = inner.add(settings, names, new)
            if operator.opt_in:
                place.only = operator
        return operator

    def _turn_outside(
        self, form: Form, args: Args, kwargs: Kwargs, frame: FrameType, thread: ThreadState
    ) -> Turn:
        """Return the operator that is executed outside of modules."""
        context, way = self._outside.reached(frame, thread)
        visits = thread.visits
        if visits is None:
            given = None
            if context is thread.outside:
                given = form.signature.settings(args, kwargs, form.numeric)
            parameters = self._parameters((*args, *kwargs.values()) if kwargs else args)
            if given is not None or parameters:
                settings, names = given or _NO_SETTINGS
                told = settings, names, parameters
                return Turn(self._by_what_is_given(form, way, frame, context, *told), form)
        site = self._site(context, (form.key, way), frame)
        turn = 0
        if visits is not None:
            turn = visits.get(site, 0)
            visits[site] = turn + 1
        new = functools.partial(_new_operator, context, form.type, frame)
        return Turn(self._at_turn(turn, site, new), form)

    def _parameters(self, given: Sequence[Any]) -> list[torch.Tensor]:
        """List the parameters behind arguments; none in lists, which updates of many are given."""
        behind = self._parameter_behind
        return [
            parameter
            for value in given
            if isinstance(value, torch.Tensor) and (parameter := behind(value)) is not None
        ]

    # The module that code runs in

    def _within(
        self, parent: Context, module: _Module, frame: FrameType, thread: ThreadState
    ) -> Context:
        """Return the context of a module that is called from a frame within another one."""
        route = parent.calls.follow(id(module), frame)
        known: Context | None = None if route is None else route.found
        if known is not None and known.holds(module):
            return known
        return self._new_within(parent, module, frame, thread)

    def _new_within(
        self, parent: Context, module: _Module, frame: FrameType, thread: ThreadState
    ) -> Context:
        way = call_sites(frame, thread.origin)
        context = parent.children.get((id(module), way))
        if context is None or not context.holds(module):
            if parent.wraps is not None and parent.wraps.holds(module):
                return parent.wraps
            if self._codes.learn(frame):
                way = call_sites(frame, thread.origin)
            context = self.contexts.child(parent, module, way, frame, thread.visits)
        with self.contexts.lock:
            parent.calls.lead(id(module), frame, context)
        return context

    def _outermost(self, module: _Module, frame: FrameType, thread: ThreadState) -> Context:
        """Return the context of a module that is called from outside of modules.

        ``model.generate()`` calls parts of the model, which are to be named as parts of it.
        """
        for owner in reversed(list(self._outside.owners(frame, thread))):
            if owner is not module:
                context = self.contexts.part_of(innermost_module(owner), module)
                if context is not None:
                    return context
        outside = thread.outside
        assert outside is not None
        return self.contexts.model(module, frame, outside)


def _new_operator(context: Context, type: str, frame: FrameType) -> Operator:
    updating = optimizer(frame)
    scope = context.scope if updating is None else updating
    opt_in = updating is not None or is_torch_internal(frame)
    return context.root.add(scope, type, source_of(frame), opt_in)
