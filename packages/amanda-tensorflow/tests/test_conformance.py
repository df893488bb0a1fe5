"""S1 to S8, for all ways in which TensorFlow runs graphs.

In one file, whose tests share the processes in which ids are compared: each takes seconds to start.
"""

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
