"""S1 to S8, once for each way in which TensorFlow runs a graph."""

from adapters import FunctionAdapter, ReferenceVariablesAdapter, SessionAdapter, StepAdapter
from amanda.testing import Asking, Conformance


class TestFunctionUnderATape(Conformance, Asking):
    adapter = FunctionAdapter()


class TestFunctionThatHoldsTheTape(Conformance, Asking):
    adapter = StepAdapter()


class TestSessionWithResourceVariables(Conformance, Asking):
    adapter = SessionAdapter()


class TestSessionWithReferenceVariables(Conformance, Asking):
    adapter = ReferenceVariablesAdapter()
