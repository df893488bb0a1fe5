"""The NumPy driver does all that a driver must."""

from amanda.testing import Conformance
from numpy_backend.adapter import NumpyAdapter


class TestNumpy(Conformance):
    adapter = NumpyAdapter()
