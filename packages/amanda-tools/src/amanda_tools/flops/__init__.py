"""FLOPs, multiply-adds, parameters and bytes moved are counted by operator and module."""

from amanda_tools.flops.counter import OperatorFlops
from amanda_tools.flops.registry import formula
from amanda_tools.flops.table import Table
from amanda_tools.flops.tool import Flops, TotalFlops

__all__ = ["Flops", "OperatorFlops", "Table", "TotalFlops", "formula"]
