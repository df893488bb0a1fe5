"""Calls of custom autograd Functions are made operators here; the dispatcher knows none of them.

Up to PyTorch 2.14 ``Function.apply`` is Python code that ends in a method of a base class, or,
under the transforms of ``torch.func``, in a function; both can be patched. From 2.15 on it is
C++, which a program that took hold of ``MyFunction.apply`` long ago calls directly. What that looks
up at each call can be patched: whether the class has a ``setup_context``, then what binds its
arguments, then, if transforms are in use, what it returns the result of. So for a call that is
to be seen it finds a ``setup_context``, and transforms in use from there until it asks us.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint as checkpointing
from torch.compiler import is_dynamo_compiling

from amanda_torch._internals import (
    APPLY_IN_PYTHON,
    BackwardHookFunction,
    FunctionBase,
    FunctionMeta,
    SingleLevelFunction,
    SyncBatchNorm,
    bind_default_args,
    custom_function_call,
    enter_transform,
    leave_transform,
    library_autograd,
    transforms_active,
)
from amanda_torch.frames import not_a_call_site
from amanda_torch.interception.kernels import run_form
from amanda_torch.operators.higher_order import is_derived, run_derived
from amanda_torch.operators.signature import FunctionSignature
from amanda_torch.operators.targets import Form
from amanda_torch.thread import intercepting, local, unseen

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda_torch.operators.signature import Args, Kwargs
    from amanda_torch.places.identity import Identity

    Run = Callable[..., Any]
    Patch = tuple[Any, str, Any]

_apply = vars(FunctionBase)["apply"]
_NAME = "setup_context"


def patches_of_functions(identity: Identity) -> list[Patch]:
    """List the patches by which calls of Functions are seen."""
    run = Functions(identity).run

    @not_a_call_site
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return run(cls, _applied, args, kwargs)

    @not_a_call_site
    def apply_transformed(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return run(cls, custom_function_call, args, kwargs)

    if APPLY_IN_PYTHON:
        return [
            (SingleLevelFunction, "apply", classmethod(apply)),
            (torch.autograd.function, "custom_function_call", apply_transformed),
        ]

    entering = _Entering()

    def bind(forward: Any, args: Args, kwargs: Kwargs | None) -> tuple[Args, Kwargs]:
        cls, entering.cls = entering.cls, None
        if cls is None or _setup_context(cls) is not _NONE:
            args, kwargs = bind_default_args(forward, args, kwargs)
        if cls is not None:
            enter_transform()  # what runs next is `call`
            entering.entered = True
        return args, kwargs or {}

    @not_a_call_site
    def call(cls: Any, args: Args, kwargs: Kwargs | None) -> Any:
        if entering.entered:
            entering.entered = False
            leave_transform()
        seen = apply_transformed if transforms_active() else apply
        return seen(cls, *args, **(kwargs or {}))

    return [
        (FunctionMeta, _NAME, _SetupContext(entering)),
        (torch.autograd.function, "_bind_default_args", bind),
        (torch.autograd.function, "_call_custom_function_call", call),
    ]


@not_a_call_site
class Functions:
    """This runs custom autograd Functions as the active tools want them.

    Args:
        identity: knows which operator one is.
    """

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._forms: weakref.WeakKeyDictionary[Any, dict[Run, Form]] = weakref.WeakKeyDictionary()

    def run(self, cls: Any, apply: Run, args: Args, kwargs: Kwargs) -> Any:
        """Run a Function.

        Args:
            cls: its class.
            apply: runs it, given the class first.
            args: what it is given.
            kwargs: the same, by name.
        """
        if not _concerns(cls):
            return apply(cls, *args, **kwargs)
        if is_derived(cls):
            return run_derived(cls, apply, args, kwargs)
        engine = local.thread.engine
        if engine is None or _is_torch_internal(cls):
            return unseen(apply)(cls, *args, **kwargs)
        forms = self._forms.setdefault(cls, {})
        if apply not in forms:
            forms[apply] = _form(cls, apply)
        return run_form(self._identity, engine, forms[apply], args, kwargs)


def _form(cls: Any, apply: Run) -> Form:
    """Return the form in which a Function is given its arguments, without keeping the class."""
    reference = weakref.ref(cls)

    @not_a_call_site
    def run(*args: Any, **kwargs: Any) -> Any:
        return apply(reference(), *args, **kwargs)

    name = cls.__name__
    return Form(name, name, FunctionSignature(cls), run, run, from_python=True)


def _concerns(cls: Any) -> bool:
    """Tell whether a call of a Function is not to run here and now as it is."""
    if is_dynamo_compiling() or not intercepting() or cls is checkpointing.CheckpointFunction:
        return False
    if cls.__module__ == library_autograd.__name__:
        return False  # what gives an operator of a library its gradient
    engine = local.thread.engine
    return _is_torch_internal(cls) or (engine is not None and engine.wants(cls.__name__))


def _is_torch_internal(cls: type) -> bool:
    """Tell whether a Function is one with which torch itself hooks into the graph."""
    if cls.__module__ == SyncBatchNorm.__module__:
        return cls is BackwardHookFunction
    return cls.__module__.startswith("torch.")


class _Entering(threading.local):
    """This holds the Function that a call in this thread is of, until its arguments are bound, and
    whether a transform was entered then.
    """

    cls: Any = None
    entered = False


class _SetupContext:
    """This descriptor is found as a Function's ``setup_context``, ahead of that of the class."""

    def __init__(self, entering: _Entering) -> None:
        self._entering = entering

    def __get__(self, cls: Any, _: type) -> Any:
        found = _setup_context(cls)
        if cls is SingleLevelFunction or transforms_active() or not _concerns(cls):
            return found
        code = sys._getframe(1).f_code
        if code is _applied.__code__ or _NAME in code.co_names:  # ours, or asked for in Python
            return found
        self._entering.cls = cls
        return functools.partial(found)  # which is not the one that stands for none

    def __set__(self, cls: Any, value: Any) -> None:
        delattr(FunctionMeta, _NAME)
        try:
            setattr(cls, _NAME, value)
        finally:
            setattr(FunctionMeta, _NAME, self)


def _setup_context(cls: Any) -> Any:
    return next(vars(c)[_NAME] for c in cls.__mro__ if _NAME in vars(c)).__get__(None, cls)


@not_a_call_site
def _applied(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Do what ``Function.apply`` ends in, and from 2.15 on, all that it does."""
    return _apply.__get__(None, cls)(*args, **kwargs)


_NONE = _setup_context(SingleLevelFunction)
