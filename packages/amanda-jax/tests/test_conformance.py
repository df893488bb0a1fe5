"""The driver does all that a driver must, with jit and without."""

from amanda.testing import Conformance
from jax_adapter import JaxAdapter, JittedAdapter


class TestJax(Conformance):
    adapter = JaxAdapter()


class TestJitted(Conformance):
    adapter = JittedAdapter()
