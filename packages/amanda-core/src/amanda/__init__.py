"""Amanda instruments deep neural networks, operator by operator, without touching them.

A :class:`Tool` registers analysis routines that look at each operator of a model once and insert
instrumentation routines before, after or instead of it; :func:`apply` makes tools active.
"""

from amanda import driver as driver  # names that were published as modules
from amanda import tool as tool
from amanda._contexts.context import OpContext
from amanda._drivers.discovery import register_driver, unregister_driver
from amanda._drivers.driver import Driver
from amanda._drivers.tensors import Parameter, TensorInfo
from amanda._errors import (
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
from amanda._operators.operator import Operator, Source
from amanda._scopes.scope import apply
from amanda._threads.active import (
    cache_disabled,
    cache_enabled,
    disabled,
    enabled,
    is_cache_enabled,
    is_enabled,
)
from amanda._tools.forgetting import clear_cache
from amanda._tools.tool import Tool

__version__ = "0.1.0"

__all__ = ["OpContext", "Operator", "Parameter", "Source", "TensorInfo", "Tool"]
__all__ += ["apply", "cache_disabled", "cache_enabled", "clear_cache"]
__all__ += ["disabled", "enabled", "is_cache_enabled", "is_enabled"]
__all__ += ["Driver", "register_driver", "unregister_driver"]
__all__ += ["ActionError", "AmandaError", "AmandaWarning", "DependencyCycleError"]
__all__ += ["IncompatibleVersionError", "MissingContextMapError", "MissingDriverError"]
__all__ += ["RoutineError", "UnsupportedError", "ValueUnavailableError"]
