"""The errors of Amanda. Every message names what happened, where, and the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

_ErrorT = TypeVar("_ErrorT", bound=type[Exception])


def _public(error: _ErrorT) -> _ErrorT:
    """Have tracebacks name an error as users import it."""
    error.__module__ = "amanda"
    return error


@_public
class AmandaError(Exception):
    """Base class of every error that Amanda raises."""


@_public
class AmandaWarning(UserWarning):
    """Category of every warning of Amanda's: of what tools do not see or do otherwise."""


@_public
class RoutineError(AmandaError):
    """A routine of a tool failed, or returned what cannot be used.

    Attributes:
        tool: name of the tool's class.
        routine: qualified name of the routine.
        operator_id: id of the operator at which it ran.
        point: the execution point, e.g. ``"before_op"``, or ``"analysis"``.
    """

    def __init__(
        self, reason: str, *, tool: str, routine: str, operator_id: str, point: str
    ) -> None:
        super().__init__(f"{tool}: {routine} at {point} of operator {operator_id!r}: {reason}")
        self.tool = tool
        self.routine = routine
        self.operator_id = operator_id
        self.point = point


@_public
class ActionError(AmandaError, ValueError):
    """An analysis routine asked for an insertion that makes no sense for this operator."""


@_public
class UnsupportedError(AmandaError, NotImplementedError):
    """The backend cannot do what was asked; raised when it is planned, before anything runs."""


@_public
class ValueUnavailableError(AmandaError, LookupError):
    """The value is not known at this point of the analysis."""


@_public
class DependencyCycleError(AmandaError, ValueError):
    """Tools depend on each other in a circle.

    Attributes:
        cycle: the names of the tools along it, the first one repeated at the end.
    """

    def __init__(self, cycle: Sequence[str]) -> None:
        super().__init__(f"tools depend on each other in a circle: {' -> '.join(cycle)}")
        self.cycle = tuple(cycle)


@_public
class MissingDriverError(AmandaError, ImportError):
    """No driver is installed for the framework in use."""


@_public
class IncompatibleVersionError(AmandaError, ImportError):
    """A driver lacks something in the installed version of its framework."""


@_public
class MissingContextMapError(AmandaError, ImportError):
    """No context map translates the backend's vocabulary into the one that a tool speaks."""
