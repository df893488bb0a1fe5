"""Says so when TensorFlow runs operators one by one: tools see graphs."""

from __future__ import annotations

import functools
import sys
import warnings
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from amanda_tensorflow.driver import TensorFlowDriver

_ENTRANCES = ("make_train_function", "make_test_function", "make_predict_function")


class EagerModels:
    """Notices Keras models with ``run_eagerly=True``, and functions that do not become graphs."""

    def __init__(self, driver: TensorFlowDriver) -> None:
        self._driver = driver

    def patches(self) -> list[tuple[Any, str, Any, Any]]:
        """What to exchange in Keras while tools are in force."""
        if tf.config.functions_run_eagerly():
            warnings.warn(
                "tools see nothing of tf.functions, since tf.config.run_functions_eagerly(True) "
                "keeps them from becoming graphs; set it to False",
                stacklevel=2,
            )
        trainers = sys.modules.get("keras.src.backend.tensorflow.trainer")
        if trainers is None:
            return []
        owner = trainers.TensorFlowTrainer
        return [
            (owner, name, getattr(owner, name), self._noticing(owner, name)) for name in _ENTRANCES
        ]

    def _noticing(self, owner: Any, name: str) -> Any:
        original = getattr(owner, name)

        @functools.wraps(original)
        def noticing(model: Any, *args: Any, **kwargs: Any) -> Any:
            if model.run_eagerly and self._driver.engine() is not None:
                warnings.warn(
                    f"tools see nothing of model {model.name!r}, since run_eagerly=True keeps it "
                    "from becoming a graph; compile it with run_eagerly=False",
                    stacklevel=2,
                )
            return original(model, *args, **kwargs)

        return noticing
