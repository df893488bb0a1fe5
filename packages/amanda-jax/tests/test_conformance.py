"""The driver does all that a driver must, with jit and without."""

from amanda.testing import Asking, Conformance
from jax_adapter import JaxAdapter, JittedAdapter


class TestJax(Conformance, Asking):
    adapter = JaxAdapter()


class TestJitted(Conformance, Asking):
    adapter = JittedAdapter()
