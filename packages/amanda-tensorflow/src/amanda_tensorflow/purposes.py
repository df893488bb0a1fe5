"""An operator's purpose is told by the names that TensorFlow gives it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from amanda_tensorflow.graph.node_types import OPT_IN

if TYPE_CHECKING:
    from amanda import Operator

# Operators that take what a pipeline has made.
_OF_DATA = frozenset(("IteratorGetNext", "IteratorGetNextSync", "IteratorGetNextAsOptional"))
# Operators that are the step of an optimizer.
_UPDATE = re.compile("(Resource)?(Sparse)?Apply[A-Z]")


def purpose(operator: Operator) -> str:
    """Tell whether an operator is of a model, its initialization, its data or its optimizer."""
    *scopes, name = operator.name.split("/")
    if operator.type in _OF_DATA:
        return "data"
    if "Initializer" in scopes or (scopes and name == "Assign"):
        return "initialization"
    is_update = operator.opt_in and operator.type not in OPT_IN
    return "optimizer" if is_update or _UPDATE.match(operator.type) else "model"
