"""Tools are told of an execution of an operator by these classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda_tools.place import Place

Direction = Literal["forward", "backward"]

_T = TypeVar("_T")


class Tensors(NamedTuple):
    """These are shapes and dtypes of tensors; None for a gradient that does not flow.

    A size is None where it is not one number, as that of the ragged dimension of a nested tensor.
    """

    shapes: list[list[int | None] | None]
    dtypes: list[str | None]


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind is what executions have in common: the operator, and its tensors' shapes and dtypes.

    Those that follow each other share it, so that what follows from it is worked out once.

    Attributes:
        place: the operator that ran.
        forward: the forward operator that it belongs to; ``place`` itself if it is one.
        direction: whether it is a forward or a backward operator.
        source: file and line of the program's code that runs the forward operator, or made its
            node of a graph, as ``model.py:12``; None if nobody can tell.
        inputs: what it was given; for a backward operator, gradients.
        outputs: what it gave.
    """

    place: Place
    forward: Place
    direction: Direction
    source: str | None
    inputs: Tensors
    outputs: Tensors
    _made: dict[Callable[[Kind], Any], Any] = field(init=False, default_factory=dict, repr=False)

    def once(self, make: Callable[[Kind], _T]) -> _T:
        """Return what a function makes of this kind; it is called once, and its result is kept."""
        made: _T | None = self._made.get(make)
        if made is None:
            made = self._made[make] = make(self)
        return made


class Execution(NamedTuple):
    """This is one execution of a forward or backward operator; times are in nanoseconds.

    Attributes:
        kind: what it has in common with others, whose attributes it has too.
        iteration: how many times the operator had run before.
        start: since the clock of its :class:`Executions` started.
        duration: from beginning to end.
        self_time: the duration, without the operators that ran inside this one.
        depth: how many operators of the same direction it ran inside of.
        allocated: bytes of the accelerator's memory in use afterwards, None if it ran on the host.
        kept: by how many of them it changed that, None if its inputs were on the host.
    """

    kind: Kind
    iteration: int
    start: int
    duration: int
    self_time: int
    depth: int
    allocated: int | None
    kept: int | None

    @property
    def place(self) -> Place:
        """Return the operator that ran."""
        return self.kind.place

    @property
    def forward(self) -> Place:
        """Return the forward operator that it belongs to."""
        return self.kind.forward

    @property
    def direction(self) -> Direction:
        """Tell whether it is a forward or a backward operator."""
        return self.kind.direction

    @property
    def source(self) -> str | None:
        """Return file and line of the program's code that runs the forward operator."""
        return self.kind.source

    @property
    def inputs(self) -> Tensors:
        """Return the shapes and dtypes of what it was given."""
        return self.kind.inputs

    @property
    def outputs(self) -> Tensors:
        """Return the shapes and dtypes of what it gave."""
        return self.kind.outputs
