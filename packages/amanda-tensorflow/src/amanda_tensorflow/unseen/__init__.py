"""What active tools did not see is said once in each scope."""

from __future__ import annotations

import sys
import warnings
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amanda import AmandaWarning

from amanda_tensorflow.graph.node_types import OPT_IN, STRUCTURE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from amanda.driving import Engine

# What models are made of. Programs do much else around graphs: data, metrics, losses.
OF_MODELS = (
    *("AvgPool", "BatchMatMul", "BiasAdd", "Conv", "CudnnRNN", "DepthwiseConv", "Einsum", "Elu"),
    *("FusedBatchNorm", "LeakyRelu", "LogSoftmax", "MatMul", "MaxPool", "Relu", "Selu", "Softmax"),
    *("Softplus", "SparseSoftmaxCross", "Sigmoid", "Tanh"),
)
_NOT_THE_PROGRAM = ("amanda", "amanda_tensorflow", "contextlib", "functools", "keras", "tensorflow")


@dataclass(slots=True, eq=False)
class Met:
    """This is what the tools of one scope have met.

    Attributes:
        graphs: whether they saw a graph.
        eager: the type of an operator that ran eagerly, and may be of interest to them.
        layers: whether they saw a graph in which layers are called.
        without_layers: the name of a graph of a model in which none is.
        told_of_layers: whether it was said that they see nothing of some layers.
        told_of_gradients: whether it was said that they see nothing of some gradients.
        told_of_eager, told_of_functions: whether it was said that they see nothing of operators
            that run eagerly, and of those in functions that other operators than calls run.
    """

    graphs: bool = False
    eager: str | None = None
    layers: bool = False
    without_layers: str | None = None
    told_of_layers: bool = False
    told_of_gradients: bool = False
    told_of_eager: bool = False
    told_of_functions: bool = False


class Unseen:
    """This tells the program what tools did not see, once in each scope.

    Attributes:
        reason: why, None as long as there was nothing.
    """

    def __init__(self) -> None:
        self._met: weakref.WeakKeyDictionary[Engine, Met] = weakref.WeakKeyDictionary()
        self.reason: str | None = None

    def met_by(self, engine: Engine) -> Met:
        """Return what tools have met so far, for the caller to write to."""
        return self._met.setdefault(engine, Met())

    def tell_of_functions(self, types: Iterable[str], engine: Engine, reason: str) -> None:
        """Say that tools see nothing of functions, if they want an operator of these types.

        Args:
            types: the types of all operators that run there.
            engine: the tools.
            reason: where they run and what to do, to follow ``tools see nothing of MatMul``.
        """
        met = self.met_by(engine)
        for type in () if met.told_of_functions else sorted(types):
            wanted = type.startswith(OF_MODELS) if engine.wanted is None else engine.wants(type)
            if wanted and type not in STRUCTURE and type not in OPT_IN:
                met.told_of_functions = True
                self.tell(f"tools see nothing of {type} and other operators in {reason}")
                return

    def tell(self, reason: str) -> None:
        """Say why tools see nothing of something that the program does."""
        self.reason = reason
        warnings.warn(reason, AmandaWarning, stacklevel=_depth_of_program())


def _depth_of_program() -> int:
    """Find where the program is on the stack, as a warning in the caller counts it."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "").partition(".")[0]
        made = "__autograph_generated" in frame.f_code.co_filename
        if name not in _NOT_THE_PROGRAM and not made:
            return depth
        depth, frame = depth + 1, frame.f_back
    return depth
