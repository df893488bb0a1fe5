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


class Leaf:
    """A parameter of a model: whatever array is at that place when the model is called."""


class Model:
    """What operators belong to, and live as long as.

    Attributes:
        leaves: its parameters, in the order of the tree that they are in.
    """

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []

    def leaf(self, index: int) -> Leaf:
        """The parameter at that place of the tree."""
        self.leaves += (Leaf() for _ in range(index + 1 - len(self.leaves)))
        return self.leaves[index]


@dataclass(eq=False)
class Run:
    """One call of a model.

    Attributes:
        model: the one that is called.
        parameters: its parameters and their casts and views, by ``id()``, each with the place that
            it has and the array that is there.
    """

    model: Model
    parameters: dict[int, tuple[Any, Leaf, Any]] = field(default_factory=dict)

    def mark(self, tensor: Any, leaf: Leaf, array: Any) -> None:
        """Take a tensor as a parameter; it is held, so that no other one gets its id."""
        tensor = primal(tensor)
        self.parameters[id(tensor)] = tensor, leaf, primal(array)


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
        run = thread.run = outer or Run(model)  # within another model it is part of that
        try:
            arrays = () if parameters is None else jax.tree.leaves(args[parameters])
            for index, array in enumerate(arrays):
                if id(primal(array)) not in run.parameters:  # and known to the model around it
                    run.mark(array, model.leaf(index), array)
            return fun(*args, **kwargs)
        finally:
            thread.run = outer

    return called


def mark_form(source: Any, tensor: Any) -> None:
    """Take a tensor, which is a cast or view of another one, as the parameter that this is."""
    if thread.run is not None and (found := parameter_of(source)) is not None:
        thread.run.mark(tensor, *found)


def parameter_of(tensor: Any) -> tuple[Leaf, Any] | None:
    """The parameter of the model that runs which a tensor is, or a cast or view of, and its array;
    None if it is none."""
    known = None if thread.run is None else thread.run.parameters.get(id(primal(tensor)))
    return None if known is None else known[1:]


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
