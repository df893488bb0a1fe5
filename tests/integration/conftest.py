"""Keras runs on TensorFlow in the process of the tests, whatever it is told to elsewhere."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"  # before anything imports it
