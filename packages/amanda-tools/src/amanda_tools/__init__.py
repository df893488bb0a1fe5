"""Tools for Amanda: where a model's operators, FLOPs and time go, and the ``amanda`` command."""

from amanda_tools.executions import Execution, Executions
from amanda_tools.flops import Flops
from amanda_tools.place import Place
from amanda_tools.profile import Profile
from amanda_tools.report import Column, by_module, by_type, columns_of
from amanda_tools.trace import Trace, read_trace

__version__ = "0.1.0"

__all__ = [
    "Column",
    "Execution",
    "Executions",
    "Flops",
    "Place",
    "Profile",
    "Trace",
    "by_module",
    "by_type",
    "columns_of",
    "read_trace",
]
