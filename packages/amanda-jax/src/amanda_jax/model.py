"""Models, their parameters, and which operator of a model is being called."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import jax
from amanda.driving import Operator, Operators, calling_instruction

from amanda_jax._internals import source
from amanda_jax.tracing import is_library, primal

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Model:
    """What operators belong to, and live as long as."""


@dataclass(eq=False)
class Run:
    """One call of a model.

    Attributes:
        parameters: those of the model by ``id()``, and what was made of them by a cast or a view.
    """

    model: Model
    parameters: dict[int, Any] = field(default_factory=dict)


class _Thread(threading.local):
    run: Run | None = None


thread = _Thread()
operators = Operators("jax")
_outside = Model()


def instrument(fun: Callable[_P, _R], parameters: int | None = 0) -> Callable[_P, _R]:
    """Have a function taken as a model, whose operators are freed with what this returns.

    Without this all functions are one model that lives as long as the process, and none of its
    tensors is known to be a parameter.

    Args:
        fun: the function. It may be given to ``jax.jit``, ``jax.grad`` and the like afterwards.
        parameters: the position of the argument that holds the parameters; None for none.
    """
    model = Model()

    @functools.wraps(fun)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        outer = thread.run
        run = thread.run = outer or Run(model)  # within another model it is part of that
        try:
            if parameters is not None:
                for leaf in jax.tree.leaves(args[parameters]):
                    mark_parameter(primal(leaf), run)
            return fun(*args, **kwargs)
        finally:
            thread.run = outer

    return called


def mark_parameter(tensor: Any, run: Run) -> None:
    """Take a tensor as a parameter in a run."""
    run.parameters[id(tensor)] = tensor  # so that no other one gets its id


def is_parameter(tensor: Any) -> bool:
    """Whether a tensor is a parameter of the model that runs, or a cast or view of one."""
    return thread.run is not None and id(primal(tensor)) in thread.run.parameters


def identify(type: str, path: tuple[int, ...]) -> Operator:
    """The operator of a type that is being called.

    Args:
        type: its type.
        path: the places that lead to it in a function of JAX that the program calls.
    """
    names = source.current_name_stack().stack
    return operators.at(
        part=_outside if thread.run is None else thread.run.model,
        scope=".".join(entry.name for entry in names if isinstance(entry, source.Scope)),
        type=type,
        place=(path, calling_instruction(is_library)),
        run=thread.run,
    )
