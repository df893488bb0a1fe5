"""Says so when TensorFlow runs operators one by one: tools see graphs."""

from __future__ import annotations

import functools
import sys
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from amanda import AmandaWarning

from amanda_tensorflow._internals import pywrap_tfe
from amanda_tensorflow.identity import OPT_IN

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda.driving import Engine

    from amanda_tensorflow.driver import TensorFlowDriver

_ENTRANCES = ("make_train_function", "make_test_function", "make_predict_function")

# What models are made of. Programs do much else eagerly around graphs: data, metrics, losses.
OF_MODELS = (
    *("AvgPool", "BatchMatMul", "BiasAdd", "Conv", "CudnnRNN", "DepthwiseConv", "Einsum", "Elu"),
    *("FusedBatchNorm", "LeakyRelu", "LogSoftmax", "MatMul", "MaxPool", "Relu", "Selu", "Softmax"),
    *("Softplus", "SparseSoftmaxCross", "Sigmoid", "Tanh"),
)
# What makes and arranges data for a graph, and tells nothing of a program that runs none.
_ARRANGING = (
    *("Cast", "Concat", "ExpandDims", "Fill", "GatherV2", "Pack", "RandomUniform", "Range"),
    *("RandomStandardNormal", "Reshape", "Shape", "Slice", "StatelessRandom", "StridedSlice"),
    *("Squeeze", "Transpose", "TruncatedNormal", "Unpack", "Zeros", "Ones"),
)
_NOT_THE_PROGRAM = ("amanda", "amanda_tensorflow", "contextlib", "functools", "keras", "tensorflow")
# Whose operators on the side are no part of a model.
_ON_THE_SIDE = (
    *("keras.src.backend.tensorflow.trainer", "keras.src.backend.common.variables"),
    *("keras.src.callbacks", "keras.src.initializers", "keras.src.metrics", "keras.src.optimizers"),
    *("keras.src.random", "keras.src.saving", "keras.src.trainers", "keras.src.dtype_policies"),
    *("tensorflow.python.checkpoint", "tensorflow.python.data", "tensorflow.python.saved_model"),
    "tensorflow.python.training",
)


class EagerOperators:
    """Notices operators that no graph holds, and says so once in each scope.

    Attributes:
        unseen: why tools saw nothing of them, None as long as there were none.
    """

    def __init__(self, driver: TensorFlowDriver) -> None:
        self._driver = driver
        self._told: weakref.WeakSet[Engine] = weakref.WeakSet()
        self._ran_graphs: weakref.WeakSet[Engine] = weakref.WeakSet()
        self._noticed: weakref.WeakKeyDictionary[Engine, str] = weakref.WeakKeyDictionary()
        self.unseen: str | None = None

    def patches(self) -> list[tuple[Any, str, Any, Any]]:
        """What to exchange in TensorFlow and Keras while tools are in force."""
        if tf.config.functions_run_eagerly():
            self.tell(
                "tools see nothing of tf.functions, since tf.config.run_functions_eagerly(True) "
                "keeps them from becoming graphs; set it to False"
            )
        execute = pywrap_tfe.TFE_Py_FastPathExecute
        patches = [(pywrap_tfe, execute.__name__, execute, self._noticing_operators(execute))]
        trainers = sys.modules.get("keras.src.backend.tensorflow.trainer")
        if trainers is not None:
            owner = trainers.TensorFlowTrainer
            patches += [
                (owner, name, getattr(owner, name), self._noticing_models(getattr(owner, name)))
                for name in _ENTRANCES
            ]
        return patches

    def ran_a_graph(self, engine: Engine) -> None:
        """Tools of this scope have seen a graph."""
        self._ran_graphs.add(engine)

    def left(self, engine: Engine) -> None:
        """A scope has ended: if it ran no graph at all, whatever ran eagerly is worth a word."""
        operator = self._noticed.pop(engine, None)
        if operator is not None and engine not in self._told and engine not in self._ran_graphs:
            self._tell_of(operator, engine)

    def _noticing_operators(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(execute)
        def noticing(runtime: Any, operator: str, *args: Any) -> Any:
            engine = self._driver.engine()
            if engine is not None and engine not in self._told:
                self._notice(operator, engine)
            if engine is not None and operator == "ReduceDataset":
                for graph in (getattr(argument, "graph", None) for argument in args):
                    if graph is not None:
                        self._driver.pipelines.called(graph, engine)
            return execute(runtime, operator, *args)

        return noticing

    def _noticing_models(self, make_function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make_function)
        def noticing(model: Any, *args: Any, **kwargs: Any) -> Any:
            if model.run_eagerly and self._driver.engine() is not None:
                self.tell(
                    f"tools see nothing of model {model.name!r}, since run_eagerly=True keeps it "
                    "from becoming a graph; compile it with run_eagerly=False"
                )
            return make_function(model, *args, **kwargs)

        return noticing

    def _notice(self, operator: str, engine: Engine) -> None:
        if operator in OPT_IN or not engine.wants(operator) or _is_on_the_side():
            return
        if operator.startswith(OF_MODELS) or engine.wanted is not None:
            self._tell_of(operator, engine)
        elif not operator.startswith(_ARRANGING):
            self._noticed.setdefault(engine, operator)

    def _tell_of(self, operator: str, engine: Engine) -> None:
        self._told.add(engine)
        self.tell(
            f"tools see TensorFlow's graphs, and nothing of {operator} and other operators that "
            "run eagerly; call them in a tf.function, and a Keras model by its predict, evaluate "
            "or fit"
        )

    def tell(self, reason: str) -> None:
        """Say why tools see nothing of something that the program does."""
        self.unseen = reason
        warnings.warn(reason, AmandaWarning, stacklevel=_depth_of_program())


def _is_on_the_side() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_ON_THE_SIDE):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _depth_of_program() -> int:
    """Where the program is on the stack, as a warning in the caller counts it."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "").partition(".")[0]
        made = "__autograph_generated" in frame.f_code.co_filename
        if name not in _NOT_THE_PROGRAM and not made:
            return depth
        depth, frame = depth + 1, frame.f_back
    return depth
