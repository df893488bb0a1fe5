"""Calls of modules as operators, for tools that look at modules.

A module takes and returns trees of tensors, and is code of the program: it may do anything, and is
never run just to see. Otherwise it is an operator as all others, and carried out by what they are.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from amanda.driving import leaves, tensors_in, with_tensors_in
from torch import Tensor

from amanda_torch.frames import calls_a_module, not_a_call_site
from amanda_torch.kernels import run_at
from amanda_torch.paths import unwrapped
from amanda_torch.signature import Signature
from amanda_torch.targets import Form
from amanda_torch.thread import NODE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amanda.driving import Engine

    from amanda_torch.identity import Identity
    from amanda_torch.signature import Args, Kwargs
    from amanda_torch.thread import Entered, ThreadState


@calls_a_module
def run_module(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """What ``Module.__call__`` does."""
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
    node = identity.node(entered, thread)
    place = node
    while place.wraps is not None:
        place = place.wraps
    around = None if outer is None else outer[NODE]
    within_wrapper = around is not None and around.wraps is not None and around.scope == place.scope
    type = class_name(unwrapped(module))
    if within_wrapper or not engine.wants_module(type, place.scope):
        return run_module(module, *args, **kwargs)
    operator = identity.module_operator(place, type, frame, thread)
    plan = engine.plan(operator)
    if plan is not None and plan.is_noop:
        return run_module(module, *args, **kwargs)
    return run_at(identity, engine, operator, _FORM, (module, *args), kwargs)


def class_name(module: torch.nn.Module) -> str:
    """The class of a module; of one of TorchScript, that which it was made of."""
    if isinstance(module, torch.jit.ScriptModule):
        return str(getattr(module, "original_name", type(module).__name__))
    return type(module).__name__


class _ModuleSignature(Signature):
    """How modules take their arguments; the module itself is the first one."""

    repeatable = False
    returns_tensors = False

    def __init__(self) -> None:
        super().__init__(())

    def tensors(self, args: Args, kwargs: Kwargs) -> list[Tensor]:
        """The tensors among the arguments, trees flattened."""
        return tensors_in((args[1:], kwargs), _is_tensor)

    def with_tensors(
        self, args: Args, kwargs: Kwargs, tensors: Sequence[Any]
    ) -> tuple[Args, Kwargs]:
        """The arguments with other tensors in the places that :meth:`tensors` found."""
        given, named = with_tensors_in((args[1:], kwargs), tensors, _is_tensor)
        return (args[0], *given), named

    def input_names(self, args: Args, kwargs: Kwargs) -> list[str]:
        """The names of the tensors that :meth:`tensors` finds, with the keys that lead there."""
        return [name for name, leaf in _leaves(args, kwargs) if _is_tensor(leaf)]

    def attrs(self, args: Args, kwargs: Kwargs) -> Kwargs:
        """All else that is given, by such names."""
        return {name: leaf for name, leaf in _leaves(args, kwargs) if not _is_tensor(leaf)}

    def outputs_of(self, result: Any) -> list[Tensor]:
        """The tensors that it returned, trees flattened."""
        return tensors_in(result, _is_tensor)

    def output_names(self, result: Any) -> list[str]:
        """Where in what it returned these are."""
        name = "output" if isinstance(result, (Tensor, tuple, list)) else ""
        return [name for name, leaf in leaves(result, name) if _is_tensor(leaf)]

    def with_outputs(self, result: Any, tensors: Sequence[Tensor]) -> Any:
        """What it returned, with other tensors in it."""
        return with_tensors_in(result, tensors, _is_tensor)


def _leaves(args: Args, kwargs: Kwargs) -> Iterator[tuple[str, Any]]:
    """All that a module is given, in order, by the names of its parameters."""
    module, *given = args
    try:
        parameters = list(inspect.signature(unwrapped(module).forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    variadic = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    for i, value in enumerate(given):
        name = names[i] if i < len(names) else f"{variadic}.{i - len(names)}"
        yield from leaves(value, name)
    for name, value in kwargs.items():
        yield from leaves(value, name)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


@not_a_call_site
def _resume(_: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    return run_module(module, *args, **kwargs)


_FORM = Form("a module", "a module", _ModuleSignature(), run_module, _resume)
