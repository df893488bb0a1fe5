"""The tables that are there, and how a user adds to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_tools.flops import tensorflow, torch
from amanda_tools.flops.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from amanda_tools.flops.table import Formula, Forward

TABLES: dict[str, Table] = {"torch": torch.TABLE, "tensorflow": tensorflow.TABLE}


def formula(
    *types: str, operands: Collection[int] = (), vocabulary: str = "torch"
) -> Callable[[Forward], Formula]:
    """Decorate a formula for some operator types; it takes the place of an earlier one.

    Tools that are made afterwards use it.

    Args:
        *types: operator types, e.g. ``mylib::project``.
        operands: the inputs that it multiplies, if the operator is a contraction. Its FLOPs are
            then two for each multiply-add, and the gradient of each operand takes as many again
            unless the formula's ``gradient`` says otherwise.
        vocabulary: the one that the types are of.

    Example::

        @formula("mylib::gelu")
        def gelu(inputs, outputs, attrs):
            return 8 * prod(outputs[0])

        @gelu.gradient
        def gelu_gradient(inputs, outputs, attrs, flows):
            return 11 * prod(outputs[0]) * flows[0]
    """
    return TABLES.setdefault(vocabulary, Table()).formula(*types, operands=operands)
