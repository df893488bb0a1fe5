"""What all these tests rest on, also one that runs alone."""

import importlib
import os
import sys

import pytest
from together import Together

# In the process of the tests Keras runs on TensorFlow, whatever it is told to elsewhere.
os.environ["KERAS_BACKEND"] = "tensorflow"


def pytest_collection_finish():
    """The driver notes what TensorFlow forgets, before any test builds a graph."""
    if "tensorflow" in sys.modules:
        importlib.import_module("amanda_tensorflow")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Have Keras imported once on each of its backends, not by each process of the tests."""
    return Together(config, log, "import keras_process")
