"""What all these tests rest on, also one that runs alone."""

import importlib
import os
import sys

# In the process of the tests Keras runs on TensorFlow, whatever it is told to elsewhere.
os.environ["KERAS_BACKEND"] = "tensorflow"


def pytest_collection_finish():
    """The driver notes what TensorFlow forgets, before any test builds a graph."""
    if "tensorflow" in sys.modules:
        importlib.import_module("amanda_tensorflow")
