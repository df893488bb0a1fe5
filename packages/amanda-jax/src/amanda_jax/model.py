"""Models, their parameters, and which operator of a model is being called."""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import jax
from amanda.driving import Operator, Operators, calling_instructions

from amanda_jax._internals import source
from amanda_jax.tracing import is_library, primal

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Model:
    """What operators belong to, and live as long as."""


@dataclass(eq=False)
class Run:
    """One call of a model, with its parameters and their casts and views by ``id()``."""

    model: Model
    parameters: dict[int, Any] = field(default_factory=dict)


class _Thread(threading.local):
    run: Run | None = None


thread = _Thread()
operators = Operators("jax")


def instrument(fun: Callable[_P, _R], parameters: int | None = 0) -> Callable[_P, _R]:
    """Have a function, whose argument at one position holds its parameters, taken as a model.

    Its operators are freed with what this returns, which may be given to ``jax.jit`` and the like.
    All that runs in no model is one that lives as long as the process, without parameters.
    """
    model = Model()  # not the function: that refers to itself, and would wait for the collector

    @functools.wraps(fun)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        outer = thread.run
        thread.run = outer or Run(model)  # within another model it is part of that
        try:
            for leaf in () if parameters is None else jax.tree.leaves(args[parameters]):
                mark_parameter(leaf)
            return fun(*args, **kwargs)
        finally:
            thread.run = outer

    return called


def mark_parameter(tensor: Any) -> None:
    """Take a tensor as a parameter in the run that is going on."""
    if thread.run is not None:  # which holds it, so that no other one gets its id
        thread.run.parameters[id(primal(tensor))] = primal(tensor)


def is_parameter(tensor: Any) -> bool:
    """Whether a tensor is a parameter of the model that runs, or a cast or view of one."""
    return thread.run is not None and id(primal(tensor)) in thread.run.parameters


def identify(type: str) -> Operator:
    """The operator of a type that is being called."""
    names = source.current_name_stack().stack
    return operators.at(
        part=None if thread.run is None else thread.run.model,
        scope=".".join(entry.name for entry in names if isinstance(entry, source.Scope)),
        type=type,
        place=calling_instructions(is_library),
        run=thread.run,
    )
