"""A graph has the operators of a model, and what flows from one to another."""

from amanda_tools.graph.network import PLUMBING as PLUMBING
from amanda_tools.graph.network import Edge as Edge
from amanda_tools.graph.network import Network as Network
from amanda_tools.graph.network import Node as Node
from amanda_tools.graph.tool import Graph as Graph

__all__ = ["PLUMBING", "Edge", "Graph", "Network", "Node"]
