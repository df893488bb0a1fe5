"""S1 to S8, once for each way in which TensorFlow runs a graph."""

from adapters import FunctionAdapter, ReferenceVariablesAdapter, SessionAdapter, StepAdapter
from amanda.testing import Conformance


class TestFunctionUnderATape(Conformance):
    adapter = FunctionAdapter()


class TestFunctionThatHoldsTheTape(Conformance):
    adapter = StepAdapter()


class TestSessionWithResourceVariables(Conformance):
    adapter = SessionAdapter()


class TestSessionWithReferenceVariables(Conformance):
    adapter = ReferenceVariablesAdapter()
