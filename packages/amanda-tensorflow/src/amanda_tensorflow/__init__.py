"""The Amanda driver for TensorFlow graphs: sessions and tf.function."""

from amanda_tensorflow.driver import TensorFlowDriver, driver
from amanda_tensorflow.patches import install

__all__ = ["TensorFlowDriver", "driver"]

install()  # graphs that are built from now on are noted
