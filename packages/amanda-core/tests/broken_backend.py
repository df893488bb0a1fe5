"""The NumPy framework with drivers that do not do what they must, for the suite to find out.

Not collected; ``test_broken_backend.py`` runs it, with the kind of driver in the environment:

* ``idle`` does nothing at all;
* ``deaf`` asks the analysis routines, and runs none of the routines that they insert;
* ``lacking`` does all, but its adapter says that it runs no loops.
"""

import os

import amanda
import hypothesis
from amanda.driving import Engine
from amanda.testing import Conformance
from numpy_backend import driver as working
from numpy_backend.adapter import NumpyAdapter

CI = hypothesis.settings.get_profile("ci")
# That an example fails is what is asked here, not which one is the smallest.
hypothesis.settings.register_profile("unshrunk", CI, phases=[hypothesis.Phase.generate])
hypothesis.settings.load_profile("unshrunk")


class IdleDriver(working.NumpyDriver):
    def activate(self, engine):
        pass

    def resume(self, suspended, engine):
        pass


if os.environ["AMANDA_TEST_DRIVER"] == "idle":
    amanda.unregister_driver(working.driver)
    amanda.register_driver(IdleDriver())
elif os.environ["AMANDA_TEST_DRIVER"] == "deaf":
    Engine.run = lambda self, actions, tensors, operator, like=None, **_: (
        tensors if like is None else like
    )


class BrokenAdapter(NumpyAdapter):
    """In this module, so that another process that imports it has the driver too."""

    if os.environ["AMANDA_TEST_DRIVER"] == "lacking":
        lacks = {**NumpyAdapter.lacks, "Loops": "it runs no loops"}


class TestBroken(Conformance):
    adapter = BrokenAdapter()
