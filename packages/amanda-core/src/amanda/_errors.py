"""Amanda's errors are these; every message names what happened, where, and the way out.

AmandaError
├── RoutineError
├── ActionError               also a ValueError
├── UnsupportedError          also a NotImplementedError
├── ValueUnavailableError     also a LookupError
├── DependencyCycleError      also a ValueError
├── MissingDriverError        also an ImportError
├── IncompatibleVersionError  also an ImportError
└── MissingContextMapError    also an ImportError
AmandaWarning
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amanda._operators.operator import Operator


class AmandaError(Exception):
    """Every error that Amanda raises is one of these."""


class AmandaWarning(UserWarning):
    """Every warning of Amanda's is one of these: of what tools do not see or do otherwise."""


class RoutineError(AmandaError):
    """A routine of a tool failed, or returned what cannot be used.

    Attributes:
        tool: name of the tool.
        routine: qualified name of the routine.
        operator_id: id of the operator at which it ran.
        point: the execution point, e.g. ``"before_op"``, or ``"analysis"``.
        source: file and line of the program's code that runs the operator, if that is known.
    """

    def __init__(
        self, reason: str, tool: str, routine: str, operator: Operator, point: str
    ) -> None:
        super().__init__(f"{tool}: {routine} at {point} of operator {operator.named}: {reason}")
        self.tool = tool
        self.routine = routine
        self.operator_id = operator.id
        self.point = point
        self.source = operator.source


class ActionError(AmandaError, ValueError):
    """An analysis routine asked for an insertion that makes no sense for this operator."""


class UnsupportedError(AmandaError, NotImplementedError):
    """The backend cannot do what was asked; raised when it is planned, before anything runs."""


class ValueUnavailableError(AmandaError, LookupError):
    """The value is not known at this point of the analysis."""


class DependencyCycleError(AmandaError, ValueError):
    """Tools depend on each other in a circle.

    Attributes:
        cycle: the names of the tools along it, the first one repeated at the end.
    """

    def __init__(self, cycle: Sequence[str]) -> None:
        super().__init__(f"tools depend on each other in a circle: {' -> '.join(cycle)}")
        self.cycle = tuple(cycle)


class MissingDriverError(AmandaError, ImportError):
    """No driver is installed for the framework in use."""


class IncompatibleVersionError(AmandaError, ImportError):
    """A driver lacks something in the installed version of its framework."""


class MissingContextMapError(AmandaError, ImportError):
    """No context map translates the backend's vocabulary into the one that a tool speaks."""


for _error in (AmandaError, AmandaWarning, *AmandaError.__subclasses__()):
    _error.__module__ = "amanda"  # as users import it, in tracebacks
