"""S1 to S8, once for each way in which a function of TensorFlow is differentiated."""

from adapters import FunctionAdapter, StepAdapter
from amanda.testing import Conformance


class TestFunctionUnderATape(Conformance):
    adapter = FunctionAdapter()


class TestFunctionThatHoldsTheTape(Conformance):
    adapter = StepAdapter()
