"""Operators that TensorFlow runs one by one are noticed here; tools see graphs alone."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from amanda_tensorflow.graph.node_types import OPT_IN
from amanda_tensorflow.thread import active
from amanda_tensorflow.unseen import OF_MODELS

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from amanda.driving import Engine

    from amanda_tensorflow.unseen import Met, Unseen

# These make and arrange data for a graph, and tell nothing of a program that runs none.
_ARRANGING = (
    *("Cast", "Concat", "ExpandDims", "Fill", "GatherV2", "Pack", "RandomUniform", "Range"),
    *("RandomStandardNormal", "Reshape", "Shape", "Slice", "StatelessRandom", "StridedSlice"),
    *("Squeeze", "Transpose", "TruncatedNormal", "Unpack", "Zeros", "Ones"),
)
# Operators that these modules run on the side are no part of a model.
_ON_THE_SIDE = (
    *("keras.src.backend.tensorflow.trainer", "keras.src.backend.common.variables"),
    *("keras.src.callbacks", "keras.src.initializers", "keras.src.metrics", "keras.src.optimizers"),
    *("keras.src.random", "keras.src.saving", "keras.src.trainers", "keras.src.dtype_policies"),
    *("tensorflow.python.checkpoint", "tensorflow.python.data", "tensorflow.python.saved_model"),
    "tensorflow.python.training",
)


class EagerOperators:
    """This notices operators that no graph holds.

    Args:
        unseen: is told of them.
    """

    def __init__(self, unseen: Unseen) -> None:
        self._unseen = unseen

    def begins(self, engine: Engine) -> None:
        """Begin with tools that become active, and warn if tf.functions are run eagerly."""
        met = self._unseen.met_by(engine)
        if tf.config.functions_run_eagerly() and not met.told_of_eager:
            met.told_of_eager = True
            self._unseen.tell(
                "tools see nothing of tf.functions, since tf.config.run_functions_eagerly(True) "
                "keeps them from becoming graphs; set it to False"
            )

    def ends(self, engine: Engine) -> None:
        """End with tools that were active; if they saw no graph, warn of what ran eagerly."""
        met = self._unseen.met_by(engine)
        if met.eager is not None and not met.told_of_eager and not met.graphs:
            self._tell(met, met.eager)

    def noticing_operators(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``TFE_Py_FastPathExecute``, which runs an operator eagerly."""

        @functools.wraps(execute)
        def noticing(runtime: Any, operator: str, *args: Any) -> Any:
            engine = active.engine
            if engine is not None:
                self._notice(operator, engine)
            return execute(runtime, operator, *args)

        return noticing

    def noticing_models(self, make_function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``TensorFlowTrainer.make_train_function`` and the like, which run a model."""

        @functools.wraps(make_function)
        def noticing(model: Any, *args: Any, **kwargs: Any) -> Any:
            if model.run_eagerly and active.engine is not None:
                self._unseen.tell(
                    f"tools see nothing of model {model.name!r}, since run_eagerly=True keeps it "
                    "from becoming a graph; compile it with run_eagerly=False"
                )
            return make_function(model, *args, **kwargs)

        return noticing

    def _notice(self, operator: str, engine: Engine) -> None:
        met = self._unseen.met_by(engine)
        in_layers = engine.needs_modules and operator.startswith(OF_MODELS)
        wanted = in_layers or engine.wants(operator)
        if met.told_of_eager or operator in OPT_IN or not wanted:
            return
        if _is_on_the_side():
            return
        if operator.startswith(OF_MODELS) or engine.wanted is not None:
            self._tell(met, operator)
        elif not operator.startswith(_ARRANGING) and met.eager is None:
            met.eager = operator

    def _tell(self, met: Met, operator: str) -> None:
        met.told_of_eager = True
        self._unseen.tell(
            f"tools see TensorFlow's graphs, and nothing of {operator} and other operators that "
            "run eagerly; call them in a tf.function, and a Keras model by its predict, evaluate "
            "or fit"
        )


def _is_on_the_side() -> bool:
    caller: FrameType | None = sys._getframe(2)
    while caller is not None:
        if caller.f_globals.get("__name__", "").startswith(_ON_THE_SIDE):
            return True
        caller = caller.f_back
    return False
