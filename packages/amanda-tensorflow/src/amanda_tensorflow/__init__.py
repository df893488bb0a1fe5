"""This is the Amanda driver for TensorFlow graphs, of sessions and of tf.function."""

from amanda_tensorflow.driver import TensorFlowDriver, driver
from amanda_tensorflow.patches import install

__all__ = ["TensorFlowDriver", "driver"]

install()  # graphs that are built from now on are noted
