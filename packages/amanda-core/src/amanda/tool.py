"""``amanda.tool.apply`` is :func:`amanda.apply`, as in the published system."""

from amanda._scopes.scope import apply, in_order
from amanda._tools.tool import Tool

__all__ = ["Tool", "apply", "in_order"]
