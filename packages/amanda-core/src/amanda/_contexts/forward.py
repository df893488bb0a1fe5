"""Routines may ask for more of an execution's forward side than is at their point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

# Tensors by their indices; a driver may leave out those for which nobody asks.
ByIndex: TypeAlias = Sequence[Any] | Mapping[int, Any]


@dataclass(slots=True, frozen=True)
class Ask:
    """An ask is for one tensor of the forward side, which a routine is given after those at its
    point.

    Attributes:
        what: which of the tensors of :class:`Forward`.
        index: its index among them.
    """

    what: Literal["inputs", "given", "outputs"]
    index: int


@dataclass(slots=True, eq=False)
class Forward:
    """The forward side of an execution is what routines may ask for.

    Attributes:
        inputs: what the operator ran on: the inputs with what routines before it have returned.
        given: the inputs as the program gives them, ahead of any routine.
        outputs: what the operator itself gave, ahead of any routine after it.
        run: runs the operator itself, with its own gradient, on all of its inputs.
    """

    inputs: ByIndex = ()
    given: ByIndex = ()
    outputs: ByIndex = ()
    run: Callable[[Sequence[Any]], Sequence[Any]] | None = None

    @classmethod
    def of(
        cls,
        asked: Mapping[Ask, Any],
        run: Callable[[Sequence[Any]], Sequence[Any]] | None = None,
    ) -> Forward:
        """Make one that has nothing but some tensors that were asked for."""
        tensors: dict[str, dict[int, Any]] = {"inputs": {}, "given": {}, "outputs": {}}
        for ask, tensor in asked.items():
            tensors[ask.what][ask.index] = tensor
        return cls(**tensors, run=run)

    def tensor(self, ask: Ask) -> Any:
        """Return the tensor that is asked for.

        Raises:
            LookupError: there is none.
        """
        tensors: ByIndex = getattr(self, ask.what)
        return tensors[ask.index]


NOTHING = Forward()


def original(
    run: Callable[[Sequence[Any]], Sequence[Any]], tensors: Sequence[Any], chosen: Sequence[int]
) -> Callable[..., Any]:
    """Make the operator itself callable for the routine that replaces it.

    Args:
        run: see :attr:`Forward.run`.
        tensors: the inputs of the operator.
        chosen: indices of those that the routine is given, and gives it in their order.

    Returns:
        what takes as many tensors and returns the output, or a tuple of several.
    """

    def run_original(*inputs: Any) -> Any:
        count = len(chosen)
        if len(inputs) != count:
            takes = f"original() takes {count} tensor{'s' * (count != 1)} here, as the routine does"
            raise TypeError(f"{takes}; it was given {len(inputs)}")
        given = list(tensors)
        for index, tensor in zip(chosen, inputs, strict=True):
            given[index] = tensor
        outputs = run(given)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return run_original
