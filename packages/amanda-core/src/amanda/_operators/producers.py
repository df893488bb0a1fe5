"""What makes the inputs of an operator, the edges of a model, is told as it is found."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from amanda._operators.operator import Operator


class Producer(NamedTuple):
    """A producer is one output of an operator, which makes an input of another.

    Attributes:
        operator: the operator, in its backend's vocabulary.
        output: which of its outputs.
    """

    operator: Operator
    output: int


class Producers(Collection[Producer]):
    """Producers are the outputs that one input of an operator has been so far, as they were met.

    It grows where a driver meets others at a later execution, as in the second turn of a loop. It
    is empty where the input comes from no operator that the tool sees: a parameter, a constant, or
    what the program was given.
    """

    def __init__(self) -> None:
        self._met: dict[tuple[int, int], Producer] = {}

    def __iter__(self) -> Iterator[Producer]:
        return iter(list(self._met.values()))  # another thread may add to it

    def __len__(self) -> int:
        return len(self._met)

    def __contains__(self, producer: object) -> bool:
        return producer in self._met.values()

    def __repr__(self) -> str:
        met = ", ".join(f"{operator.id}:{output}" for operator, output in self)
        return f"<Producers: {met or 'none'}>"

    def add(self, operator: Operator, output: int) -> None:
        """Have met an output of an operator there; a driver calls this."""
        if (operator.serial, output) not in self._met:
            self._met[operator.serial, output] = Producer(operator.snapshot(), output)


class InputProducers(dict[int, Producers]):
    """These are the producers of each input of one operator, by its index, for one tool."""

    def __missing__(self, index: int) -> Producers:
        return self.setdefault(index, Producers())
