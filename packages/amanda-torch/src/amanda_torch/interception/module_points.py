"""Calls of modules are operators for tools that look at modules.

A module takes and returns trees of tensors, and is code of the program: it may do anything, and is
never run just to see. Otherwise it is an operator as all others, and carried out by what they are.
"""

from __future__ import annotations

import inspect
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import torch
from amanda import AmandaWarning
from amanda.driving import leaves, tensors_in, with_tensors_in
from torch import Tensor
from torch.nn.modules.lazy import LazyModuleMixin

from amanda_torch.frames import calls_a_module, not_a_call_site
from amanda_torch.interception.kernels import run_at
from amanda_torch.operators.signature import Signature
from amanda_torch.operators.targets import Form
from amanda_torch.places.keras import is_symbolic, layer_name
from amanda_torch.places.paths import innermost_module, joined, may_wrap
from amanda_torch.thread import CONTEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amanda.driving import Engine

    from amanda_torch.operators.signature import Args, Kwargs
    from amanda_torch.places.identity import Identity
    from amanda_torch.thread import Entered, ThreadState


@calls_a_module
def run_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Do what ``Module.__call__`` does."""
    if module._compiled_call_impl is not None:
        return module._compiled_call_impl(*args, **kwargs)
    return module._call_impl(*args, **kwargs)


@not_a_call_site
def call_module(
    identity: Identity,
    engine: Engine,
    thread: ThreadState,
    entered: Entered,
    args: Args,
    kwargs: Kwargs,
) -> Any:
    """Call a module as the active tools want it, if any of them looks at it.

    What wraps a module stands for it, and the call of the module within is none of its own.
    """
    module, outer, frame, _ = entered
    known = _plain.get(type(module))
    if known is not None and not engine.wants_class(known):
        return run_module(module, *args, **kwargs)
    place = identity.context(entered, thread)
    while place.wraps is not None:
        place = place.wraps
    around = None if outer is None else outer[CONTEXT]
    within_wrapper = around is not None and around.wraps is not None and around.scope == place.scope
    cls = place.type
    if cls is None:
        cls = place.type = class_name(module)
    if isinstance(module, torch.jit.ScriptModule):
        _warn_of_unseen(module, place.scope, engine)
    if within_wrapper or not engine.wants_module(cls, place.scope):
        return run_module(module, *args, **kwargs)
    if any(isinstance(value, torch.fx.Proxy) for value in (*args, *kwargs.values())):
        return run_module(module, *args, **kwargs)  # it is traced, on no tensors
    if layer_name(module) is not None and is_symbolic((args, kwargs)):
        return run_module(module, *args, **kwargs)
    operator = identity.module_operator(place, cls, frame, thread)
    plan = engine.plan(operator)
    if plan is not None and plan.is_noop:
        return run_module(module, *args, **kwargs)
    return run_at(identity, engine, operator, _FORM, (module, *args), kwargs)


def _warn_of_unseen(module: torch.jit.ScriptModule, path: str, engine: Engine) -> None:
    """Warn of modules that tools look at and TorchScript runs, once for each that has them."""
    if module in _warned:
        return
    within = [(name, inner) for name, inner in module.named_modules() if name]
    names = [n for n, m in within if engine.wants_module(class_name(m), joined(path, n))]
    if names:
        _warned.add(module)
        warnings.warn(
            f"{class_name(module)} {path!r} is TorchScript, which calls the modules in it where no "
            f"tool sees that: {', '.join(names)}; instrument the module that it was made of",
            AmandaWarning,
            stacklevel=4,
        )


_warned: weakref.WeakSet[torch.jit.ScriptModule] = weakref.WeakSet()


def class_name(module: torch.nn.Module) -> str:
    """Return the class of a module, or of what it wraps.

    That is the one which TorchScript has made it of, or which it becomes when it is called
    (``LazyLinear``).
    """
    module = innermost_module(module)
    if isinstance(module, torch.jit.ScriptModule):
        return str(getattr(module, "original_name", type(module).__name__))
    cls = type(module)
    if isinstance(module, LazyModuleMixin) and module.cls_to_become is not None:
        cls = module.cls_to_become
    elif not may_wrap(module):
        _plain[cls] = cls.__name__
    return cls.__name__


# Names of classes whose modules wrap no others, and are of the class that they say.
_plain: weakref.WeakKeyDictionary[type[torch.nn.Module], str] = weakref.WeakKeyDictionary()


class _ModuleSignature(Signature):
    """This is how modules take their arguments; the module itself is the first one."""

    repeatable = repeatable_on_copies = False
    opaque = True
    returns_tensors = False

    def __init__(self) -> None:
        super().__init__(())

    def tensors(self, args: Args, kwargs: Kwargs) -> list[Tensor]:
        """List the tensors among the arguments, trees flattened."""
        return _tensors_in((args[1:], kwargs))

    def with_tensors(
        self, args: Args, kwargs: Kwargs, tensors: Sequence[Any]
    ) -> tuple[Args, Kwargs]:
        """Return the arguments with other tensors in the places that :meth:`tensors` found."""
        given, named = with_tensors_in((args[1:], kwargs), tensors, _is_tensor)
        return (args[0], *given), named

    def input_names(self, args: Args, kwargs: Kwargs) -> list[str]:
        """List the names of what :meth:`tensors` finds, with the keys that lead there."""
        return [name for name, leaf in _leaves(args, kwargs) if _is_tensor(leaf)]

    def attrs(self, args: Args, kwargs: Kwargs) -> Kwargs:
        """Return all else that is given, by such names."""
        return {name: leaf for name, leaf in _leaves(args, kwargs) if not _is_tensor(leaf)}

    @property
    def outputs_of(self) -> Callable[[Any], list[Tensor]]:
        """List the tensors that it returned, trees flattened."""
        return _tensors_in

    def output_names(self, result: Any) -> list[str]:
        """List where in what it returned these are."""
        name = "output" if isinstance(result, (Tensor, tuple, list)) else ""
        return [name for name, leaf in leaves(result, name) if _is_tensor(leaf)]

    def with_outputs(self, result: Any, tensors: Sequence[Tensor]) -> Any:
        """Return what it returned, with other tensors in it."""
        return with_tensors_in(result, tensors, _is_tensor)


def _leaves(args: Args, kwargs: Kwargs) -> Iterator[tuple[str, Any]]:
    """List all that a module is given, in order, by the names of its parameters."""
    module, *given = args
    names, variadic = _names(innermost_module(module))
    for i, value in enumerate(given):
        name = names[i] if i < len(names) else f"{variadic}.{i - len(names)}"
        yield from leaves(value, name)
    for name, value in kwargs.items():
        yield from leaves(value, name)


def _names(module: torch.nn.Module) -> tuple[Sequence[str], str]:
    """List the names of what a module is given by position, and that of all that follows."""
    function: Any = module.forward if layer_name(module) is None else module.call
    schema = getattr(function, "schema", None)  # of TorchScript
    if schema is not None:
        return [argument.name for argument in schema.arguments[1:]], "args"
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # it is written in C, or shows none
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in positional]
    variadic = (p.name for p in parameters if p.kind is p.VAR_POSITIONAL)
    return names, next(variadic, "args")


def _tensors_in(tree: Any) -> list[Tensor]:
    return tensors_in(tree, _is_tensor)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


_FORM = Form("a module", "a module", _ModuleSignature(), run_module, run_module, from_python=True)
