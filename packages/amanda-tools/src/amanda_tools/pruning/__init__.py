"""These tools prune weights, channels, activations and attention, on all backends by one code."""

from amanda_tools.pruning.activations import ActivationPruning
from amanda_tools.pruning.attention import AttentionPruning
from amanda_tools.pruning.channels import DynamicChannelPruning
from amanda_tools.pruning.layers import PrunedLayer, PrunedValues
from amanda_tools.pruning.magnitude import MagnitudePruning
from amanda_tools.pruning.schedule import Schedule
from amanda_tools.pruning.tile_wise import TileWisePruning
from amanda_tools.pruning.vector_wise import VectorWisePruning
from amanda_tools.pruning.weights import WeightPruning

__all__ = [
    "ActivationPruning",
    "AttentionPruning",
    "DynamicChannelPruning",
    "MagnitudePruning",
    "PrunedLayer",
    "PrunedValues",
    "Schedule",
    "TileWisePruning",
    "VectorWisePruning",
    "WeightPruning",
]
