"""Portable tools see the operators of every backend in the vocabulary of ONNX.

``amanda.Tool(namespace="onnx")`` finds the maps here by itself. Import this package to add
operators to them (:func:`register`), or for :class:`MappingTool`.
"""

from amanda import __version__ as __version__

from amanda_contextmap.context_map import ContextMap
from amanda_contextmap.factors import Factor, Whole
from amanda_contextmap.graph import Graph
from amanda_contextmap.installed import lookups, packed, products, wholes
from amanda_contextmap.mapping_tool import MappingTool
from amanda_contextmap.register import register
from amanda_contextmap.rule import Rule, axes, axis, constant, rule
from amanda_contextmap.translation import Translation

__all__ = [
    "ContextMap",
    "Factor",
    "Graph",
    "MappingTool",
    "Rule",
    "Translation",
    "Whole",
    "axes",
    "axis",
    "constant",
    "lookups",
    "packed",
    "products",
    "register",
    "rule",
    "wholes",
]
