"""Amanda: instrument deep neural networks, operator by operator, without touching them.

A :class:`Tool` registers analysis routines that look at each operator of a model once and insert
instrumentation routines before, after or instead of it; :func:`apply` puts tools in force.
"""

from amanda.context import OpContext
from amanda.driver import Driver
from amanda.engine import clear_cache
from amanda.errors import (
    ActionError,
    AmandaError,
    AmandaWarning,
    DependencyCycleError,
    IncompatibleVersionError,
    MissingContextMapError,
    MissingDriverError,
    RoutineError,
    UnsupportedError,
    ValueUnavailableError,
)
from amanda.operator import Operator
from amanda.registry import register_driver, unregister_driver
from amanda.scope import (
    apply,
    cache_disabled,
    cache_enabled,
    disabled,
    enabled,
    is_cache_enabled,
    is_enabled,
)
from amanda.tool import Tool

__version__ = "0.1.0"

__all__ = [
    "ActionError",
    "AmandaError",
    "AmandaWarning",
    "DependencyCycleError",
    "Driver",
    "IncompatibleVersionError",
    "MissingContextMapError",
    "MissingDriverError",
    "OpContext",
    "Operator",
    "RoutineError",
    "Tool",
    "UnsupportedError",
    "ValueUnavailableError",
    "apply",
    "cache_disabled",
    "cache_enabled",
    "clear_cache",
    "disabled",
    "enabled",
    "is_cache_enabled",
    "is_enabled",
    "register_driver",
    "unregister_driver",
]
