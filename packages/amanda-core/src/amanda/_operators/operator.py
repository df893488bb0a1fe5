"""An operator is one place in a model that runs many times; an execution is one such run."""

from __future__ import annotations

import copy
import itertools
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from amanda._operators.names import selects

_T = TypeVar("_T")
_serials = itertools.count()


class Source(NamedTuple):
    """A source is a line of the program; ``file`` as Python knows it, ``line`` counted from 1.

    As text it is ``model.py:12``, and ``In[3]:12`` in a cell of a notebook.
    """

    file: str
    line: int

    def __str__(self) -> str:
        return f"{_cell_of(self.file) or self.file}:{self.line}"


def _cell_of(file: str) -> str | None:
    """Name the cell of a notebook by its number, which Python knows as a file that is not there."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    cell = None if shell is None else shell.compile.format_code_name(file)
    return None if cell is None else str(cell[1])


@dataclass(eq=False, repr=False, kw_only=True)
class Operator:
    """An operator is static, made by a driver the first time it meets that place in the model.

    Attributes:
        id: stable and unique string, ``scope/type``, with ``#2`` for a second one.
        type: the operator's type in its backend's vocabulary, e.g. ``conv2d``.
        name: what its framework calls it.
        scope: path of the module or name scope it is in, e.g. ``encoder.layer.0.attention``.
        backend: name of the driver's backend.
        opt_in: only tools that name its type or ask for such see it, e.g. an optimizer's
            update.
        locate: tells :attr:`source`; a driver works that out when it is first asked, or before.
        serial: a number that no other operator of this process ever has; plans are kept under it.
        only_in: for a composite, the one vocabulary whose tools see it; None for all.
        part_in: the vocabularies in which it is a part of a composite, whose tools do not see it.
        is_module: it stands for a call of a module, whose class is the type and whose path is the
            scope.
    """

    id: str
    type: str
    name: str
    scope: str
    backend: str
    opt_in: bool = False
    only_in: str | None = None
    part_in: frozenset[str] = frozenset()
    is_module: bool = False
    locate: Callable[[], Source | None] = lambda: None
    serial: int = field(init=False, default_factory=lambda: next(_serials))

    @property
    def source(self) -> Source | None:
        """Tell file and line of the program's code that runs it, or that made its node of a graph.

        That is the nearest line that leads to it and is in no framework. None where nobody can
        tell, as of what was loaded from a file.
        """
        return self.locate()

    @property
    def named(self) -> str:
        """Return its id and its source, for messages."""
        source = self.source
        return repr(self.id) if source is None else f"{self.id!r} ({source})"

    def within(self, *globs: str) -> bool:
        """Tell whether its scope is selected by one of some globs, as :meth:`Tool.add_inst_for_op`
        takes them."""
        return any(selects(glob, self.scope) for glob in globs)

    def snapshot(self) -> Operator:
        """Make an equal operator for tools to keep; it does not keep alive what is tied to this
        one."""
        return copy.copy(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operator) and self.serial == other.serial

    def __hash__(self) -> int:
        return hash(self.serial)

    @property
    def __name__(self) -> str:
        """Return the bare type, without the namespace of a custom operator."""
        return self.type.rpartition("::")[2]

    def __repr__(self) -> str:
        return f"<Operator {self.id} ({self.backend})>"


class ByOperator(dict[int, _T], Generic[_T]):
    """This dict is keyed by ``operator.serial``, and forgets an operator when it is gone."""

    def __init__(self) -> None:
        super().__init__()
        self._alive: dict[int, weakref.ref[Operator]] = {}

    def of(self, operator: Operator, make: Callable[[], _T]) -> _T:
        """Return what is kept for an operator, which is made where there is nothing yet."""
        if operator.serial not in self:
            self.keep(operator, make())
        return self[operator.serial]

    def keep(self, operator: Operator, value: _T) -> None:
        """Keep ``value`` for as long as ``operator`` lives."""
        serial = operator.serial
        self[serial] = value
        if serial not in self._alive:
            this = weakref.ref(self)

            def forget(_: weakref.ref[Operator]) -> None:
                table = this()
                if table is not None:
                    table.pop(serial, None)
                    table._alive.pop(serial, None)

            self._alive[serial] = weakref.ref(operator, forget)


@dataclass(slots=True, eq=False, repr=False)
class Execution:
    """An execution is shown by a driver for analysis; all tensors are the backend's own.

    ``grad_inputs`` may be a function: it is called if a routine asks, when the backend can only
    tell by computing them.
    """

    operator: Operator
    inputs: Sequence[Any]
    input_names: Sequence[str] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[Any] | None = None
    backward_operator: Operator | None = None
    grad_outputs: Sequence[Any] | None = None
    grad_inputs: Sequence[Any] | Callable[[], Sequence[Any]] | None = None
    output_names: Sequence[str] = ()

    @property
    def runs(self) -> Operator:
        """Return the operator that runs: the backward operator if there is one, else the forward
        one."""
        return self.backward_operator or self.operator
