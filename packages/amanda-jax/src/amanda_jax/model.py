"""A model is a function whose calls tell its operators and its parameters."""

import functools
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
from amanda.driving import Operator, Operators

from amanda_jax._internals import source
from amanda_jax.tracing import LIBRARY, primal

_P = ParamSpec("_P")
_R = TypeVar("_R")
Parameter = tuple["Leaf", Any]  # with the array that it is now


class Leaf:
    """A leaf is a parameter of a model: the array that is at one place whenever it is called."""


class Model:
    """A model is what operators belong to, and live as long as; it has its parameters by place."""

    def __init__(self) -> None:
        self.leaves: defaultdict[int, Leaf] = defaultdict(Leaf)


class Run:
    """A run is one call of a model; what runs in none is in a run of no model."""

    def __init__(self, model: Model | None) -> None:
        self.model = model
        # By id(): the tensor, which is held so that no other one gets its id, and its parameter.
        self._parameters: dict[int, tuple[Any, Parameter]] = {}

    def parameter(self, tensor: Any) -> Parameter | None:
        """Return the parameter that a tensor is, or is a cast or view of."""
        return self._parameters.get(id(primal(tensor)), (tensor, None))[1]

    def mark(self, tensor: Any, parameter: Parameter) -> None:
        """Take a tensor as a parameter, unless it is known as one of the model around this."""
        tensor = primal(tensor)
        self._parameters.setdefault(id(tensor), (tensor, parameter))


class _Thread(threading.local):
    run = Run(None)


thread = _Thread()
operators = Operators("jax", LIBRARY)


def instrument(fun: Callable[_P, _R], parameters: int | None = 0) -> Callable[_P, _R]:
    """Have a function, whose argument at one position holds its parameters, taken as a model.

    Its operators are freed with what this returns, which may be given to ``jax.jit`` and the like.
    All that runs in no model is one that lives as long as the process, without parameters.
    """
    model = Model()  # not the function: that refers to itself, and would wait for the collector

    @functools.wraps(fun)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        outer = thread.run
        run = thread.run = outer if outer.model else Run(model)  # within a model it is part of that
        try:
            arrays = () if parameters is None else jax.tree.leaves(args[parameters])
            for index, array in enumerate(arrays):
                run.mark(array, (model.leaves[index], array))
            return fun(*args, **kwargs)
        finally:
            thread.run = outer

    return called


def identify(type: str) -> Operator:
    """Return the operator of a type that is being called."""
    names = source.current_name_stack().stack
    return operators.at(
        part=thread.run.model,
        scope=".".join(entry.name for entry in names if isinstance(entry, source.Scope)),
        type=type,
        run=thread.run if thread.run.model else None,
    )
