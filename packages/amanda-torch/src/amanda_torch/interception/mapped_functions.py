"""Some Python functions are one operator in another vocabulary, and several here.

Context maps tell which. A tool that speaks their vocabulary sees the call; all others see what the
function runs, as if it had not been patched.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any

import torch
from amanda import driving
from amanda.driving import ByOperator, OnImport
from torch.compiler import is_dynamo_compiling

from amanda_torch.execution.call import Call
from amanda_torch.frames import not_a_call_site
from amanda_torch.interception.kernels import run_at
from amanda_torch.operators.signature import Signature
from amanda_torch.operators.targets import Form
from amanda_torch.overrides import without_overrides
from amanda_torch.thread import intercepting, local

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from amanda import Driver
    from amanda.driving import Engine, Execution

    from amanda_torch.places.identity import Identity

    Patch = tuple[Any, str, Any]

_PLAIN = (torch.Tensor, bool, int, float, str, type(None))


class MappedFunctions(driving.Patches):
    """These functions are patched while a thread has tools to which they may be operators.

    Args:
        identity: knows which operator a call is.
        driver: what context maps are asked with.
    """

    def __init__(self, identity: Identity, driver: Driver) -> None:
        super().__init__(self._exchanged)
        self._identity = identity
        self._driver = driver
        self._functions: dict[str, str] = {}
        self._known: ByOperator[dict[str, bool]] = ByOperator()

    def serve(self, engine: Engine | None, owner: Hashable) -> None:
        """Have the functions patched that the tools of a thread may see as one, if it has any."""
        maps = [] if engine is None else engine.context_maps.values()
        found = {type: name for each in maps for type, name in each.functions().items()}
        with self._lock:
            if not found.items() <= self._functions.items():
                self._functions |= found
                if self._holders:  # for others, who have another map
                    self.remove()
                    self.install()
            self.hold(bool(found), owner)

    def _exchanged(self) -> Iterator[OnImport]:
        for type, name in self._functions.items():
            place, _, bare = name.rpartition(".")
            yield OnImport(place, functools.partial(self._within, type, bare))

    def _within(self, type: str, name: str, module: Any) -> Iterator[Patch]:
        function = getattr(module, name, None)
        if inspect.isfunction(function):
            yield module, name, self._seen(type, function)

    def _seen(self, type: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose calls are seen by those to whom they are operators of a type."""

        signature = _FunctionSignature(function)
        form = Form(type, type, signature, function, function, from_python=True)

        @not_a_call_site
        def seen(*args: Any, **kwargs: Any) -> Any:
            if is_dynamo_compiling() or not intercepting():
                return function(*args, **kwargs)
            thread = local.thread
            engine = thread.engine
            if engine is None or not engine.context_maps or not engine.wants(type):
                return function(*args, **kwargs)
            if not all(isinstance(value, _PLAIN) for value in (*args, *kwargs.values())):
                return function(*args, **kwargs)
            identity = self._identity
            operator = identity.operator(form, args, kwargs, sys._getframe(1), thread)
            call = Call(engine, identity, operator, form, args, kwargs)
            if not without_overrides(lambda: self._is_one(call.shown(call.inputs()), engine)):
                return function(*args, **kwargs)
            return run_at(identity, engine, operator, form, args, kwargs)

        exchanged: Any = functools.update_wrapper(seen, function)
        exchanged.__prepare_scriptable__ = lambda: function  # what TorchScript compiles
        return exchanged  # type: ignore[no-any-return]

    def _is_one(self, execution: Execution, engine: Engine) -> bool:
        """Tell whether an operator is one in a vocabulary of the active tools, and note which."""
        operator = execution.operator
        if operator.serial not in self._known:
            self._known.keep(operator, {})
        known = self._known[operator.serial]
        for vocabulary, context_map in engine.context_maps.items():
            if vocabulary not in known:
                named = operator.type in context_map.functions()
                known[vocabulary] = named and context_map.is_one(execution, self._driver)
            if known[vocabulary]:
                operator.only_in = vocabulary
                return True
        return False


class _FunctionSignature(Signature):
    """This is the signature of a function that returns a new tensor."""

    returns = 1

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(list(inspect.signature(function).parameters))
