"""A module's path is the one by which its model knows it.

What wraps a module (a compiled model, DistributedDataParallel, FSDP) is no place in the model, so
its path is that of the module it wraps.
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from typing import Any

import torch

from amanda_torch.places.keras import layer_name

_Module = torch.nn.Module

# Wrappers that do not hand on attributes, by which others are told.
_WRAPPERS = (
    torch.nn.DataParallel,
    torch.nn.parallel.DistributedDataParallel,
    torch.optim.swa_utils.AveragedModel,
)


class Paths:
    """This lists the paths of the modules within one, level by level and as far as is asked.

    So each module of a model is listed once for the module that calls it, however many there are.
    """

    def __init__(self, module: _Module) -> None:
        self._module = weakref.ref(module)
        self._call: object = None
        self._start()

    def find(self, module: _Module, call: object, growing: bool = True) -> str | None:
        """Return the path of a module; None if it is not within this one.

        Args:
            module: what to look for.
            call: identifies the call of the model that is running, in which everything is listed
                anew at most once: models rarely exchange modules while they run.
            growing: whether to look at each call for modules that were added.
        """
        path = self.listed(module)
        if path is None and growing and self._grown():
            path = self.listed(module)
        if path is None and (call is None or call is not self._call):
            self._call = call
            self._start()
            path = self.listed(module)
        return path

    def _start(self) -> None:
        module = self._module()
        assert module is not None
        # By identity of the module.
        self._paths: dict[int, tuple[weakref.ref[_Module], str]] = {}
        # What holds others, its path, and how many of them are listed.
        self._containers: list[tuple[weakref.ref[_Module], str, int]] = []
        self._waiting = deque([(self._module, "")])
        self._paths[id(module)] = self._module, ""

    def listed(self, module: _Module) -> str | None:
        """Return the path of a module as far as it is listed; it may have been added since."""
        key = id(module)
        while True:
            found = self._paths.get(key)
            if found is not None and found[0]() is module:
                return found[1]
            if not self._waiting:
                return None
            reference, path = self._waiting.popleft()
            container = reference()
            if container is not None and (count := len(container._modules)):
                self._containers.append((reference, path, count))
                self._list(container, path, 0)

    def _list(self, container: _Module, path: str, start: int) -> None:
        wrapped = innermost_module(container) is not container
        for name, module in itertools.islice(container._modules.items(), start, None):
            if module is None:
                continue
            known = self._paths.get(id(module))
            if known is None or known[0]() is not module:
                place = path if wrapped else joined(path, name)
                reference = weakref.ref(module)
                self._paths[id(module)] = reference, place
                self._waiting.append((reference, place))

    def _grown(self) -> bool:
        """Tell whether modules were added to those that are listed, which then are listed too."""
        grown = False
        for i, (reference, path, count) in enumerate(self._containers):
            container = reference()
            if container is not None and len(container._modules) > count:
                self._containers[i] = reference, path, len(container._modules)
                self._list(container, path, count)
                grown = True
        return grown


def joined(scope: str, path: str) -> str:
    """Return a path within what is at another path."""
    return f"{scope}.{path}" if scope and path else scope or path


def innermost_module(module: _Module) -> _Module:
    """Return the module that is wrapped, or the one that is given if it wraps none.

    A wrapper holds nothing but the module it wraps, and hands on to it what attributes it has not
    itself; some of torch's own do not, and are known by name.
    """
    while True:
        inner = _wrapped(module)
        if inner is None:
            return module
        module = inner


def may_wrap(module: _Module) -> bool:
    """Tell whether a module is of a class whose modules may wrap another one."""
    hands_on = type(module).__getattr__ is not _Module.__getattr__
    return isinstance(module, _WRAPPERS) or (
        hands_on and not isinstance(module, torch.jit.ScriptModule)
    )


def _wrapped(module: _Module) -> _Module | None:
    if not may_wrap(module):
        return None
    if isinstance(module, _WRAPPERS):  # which may run operators before it holds what it wraps
        return module._modules.get("module") if is_module(module) else None
    if not is_module(module) or module._parameters or module._buffers:
        return None
    children = (innermost_module(child) for child in module._modules.values() if child is not None)
    inner = {id(child): child for child in children}
    return next(iter(inner.values())) if len(inner) == 1 else None


def is_stateless(module: _Module) -> bool:
    """Tell whether a module is as good as a function, and may be made anew for each call."""
    return layer_name(module) is None and not any(  # Keras keeps variables of its own
        value is not None
        for state in (module._parameters, module._buffers, module._modules)
        for value in state.values()
    )


def is_module(value: Any) -> bool:
    """Tell whether a value is a module that has been through ``Module.__init__``."""
    return isinstance(value, _Module) and "_modules" in vars(value)
