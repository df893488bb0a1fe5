"""The Amanda driver for TensorFlow graphs: sessions and tf.function."""

from amanda_tensorflow import history, recomputed  # first: they note what is built from now on
from amanda_tensorflow.driver import TensorFlowDriver, driver

__all__ = ["TensorFlowDriver", "driver", "history", "recomputed"]
