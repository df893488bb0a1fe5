"""``amanda.tool.apply`` is :func:`amanda.apply`, as in the published system."""

from amanda._scope import apply
from amanda._tool import Tool, in_order

__all__ = ["Tool", "apply", "in_order"]
