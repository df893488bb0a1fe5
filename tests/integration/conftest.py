"""What all these tests rest on, also one that runs alone."""

import functools
import importlib
import os
import sys

import pytest
from xdist.scheduler import LoadFileScheduling

# In the process of the tests Keras runs on TensorFlow, whatever it is told to elsewhere.
os.environ["KERAS_BACKEND"] = "tensorflow"


def pytest_collection_finish():
    """The driver notes what TensorFlow forgets, before any test builds a graph."""
    if "tensorflow" in sys.modules:
        importlib.import_module("amanda_tensorflow")


class Together(LoadFileScheduling):
    """Files whose programs are forks of one process on each backend are run by one process, too."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return "keras_process" if _starts_programs(self.config.rootpath / file) else file


@functools.cache
def _starts_programs(file):
    return "import keras_process" in file.read_text("utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Have Keras imported once on each of its backends, not by each process of the tests."""
    return Together(config, log)
