"""Calls of modules and of TorchScript are noted here; the dispatcher tells nothing of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_dynamo_compiling

from amanda_torch._internals import ScriptMethod, is_key_included
from amanda_torch.frames import calls_a_module, runs_compiled
from amanda_torch.interception.module_points import call_module
from amanda_torch.interception.script import prepare, run_compiled
from amanda_torch.thread import KEY, intercept, local

if TYPE_CHECKING:
    from amanda_torch.places.identity import Identity

    Patch = tuple[Any, str, Any]

_call = torch.nn.Module.__call__
_script = vars(torch.jit.ScriptFunction)["__call__"]
_script_method = vars(ScriptMethod)["__call__"]


def patches_of_modules(identity: Identity) -> list[Patch]:
    """List the patches by which calls of modules are noted."""

    @calls_a_module
    def module_call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Do what ``Module.__call__`` does, and take note of the call.

        Which calling context that is, the first operator in it asks for.
        """
        if is_dynamo_compiling():  # torch.export follows the code, and need not follow ours
            return _call(self, *args, **kwargs)
        thread = local.thread
        engine = thread.engine
        if engine is None or not is_key_included(KEY):
            return _call(self, *args, **kwargs)
        outer, visits = thread.entered, thread.visits
        if outer is None:
            thread.visits = {}
        thread.entered = entered = [self, outer, sys._getframe(1), None]
        looks = True
        try:
            if engine.filters_scopes:
                looks = engine.looks_within(identity.context(entered, thread).scope)
                intercept(looks)
            if looks and engine.wants_modules:
                return call_module(identity, engine, thread, entered, args, kwargs)
            if self._compiled_call_impl is not None:
                return self._compiled_call_impl(*args, **kwargs)
            return self._call_impl(*args, **kwargs)
        finally:
            thread.entered, thread.visits = outer, visits
            if not looks:
                intercept(thread.engine is not None)

    return [(torch.nn.Module, "__call__", module_call)]


@runs_compiled
def _script_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Call TorchScript so that outside of modules too, turns tell its operators apart."""
    thread = local.thread
    if thread.engine is None:
        return _script(self, *args, **kwargs)
    prepare(thread, self, args)
    if thread.visits is not None:
        return run_compiled(thread, _script, self, *args, **kwargs)
    thread.visits = {}
    try:
        return run_compiled(thread, _script, self, *args, **kwargs)
    finally:
        thread.visits = None


@runs_compiled
def _script_method_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    thread = local.thread
    if thread.engine is None:
        return _script_method(self, *args, **kwargs)
    prepare(thread, self, args)
    return run_compiled(thread, _script_method, self, *args, **kwargs)


PATCHES: list[Patch] = [
    (torch.jit.ScriptFunction, "__call__", _script_call),
    (ScriptMethod, "__call__", _script_method_call),
]
