"""S1 to S8, once for each way in which TensorFlow runs a graph."""

import pytest
from adapters import FunctionAdapter, ReferenceVariablesAdapter, SessionAdapter, StepAdapter
from amanda.testing import Conformance
from amanda.testing.probes import host_and_pure

# The backward loop takes what no turn changes from outside, not as the operator was given it.
in_the_backward_loop = pytest.mark.xfail(
    strict=True, reason="a gradient in a loop reads the original of a substituted loop invariant"
)


class Suite(Conformance):
    @in_the_backward_loop
    @host_and_pure
    def test_a_substituted_input_that_all_turns_share_counts_in_each(self, pure):
        super().test_a_substituted_input_that_all_turns_share_counts_in_each(pure)


class TestFunctionUnderATape(Suite):
    adapter = FunctionAdapter()


class TestFunctionThatHoldsTheTape(Suite):
    adapter = StepAdapter()


class TestSessionWithResourceVariables(Suite):
    adapter = SessionAdapter()


class TestSessionWithReferenceVariables(Suite):
    adapter = ReferenceVariablesAdapter()

    @in_the_backward_loop
    @host_and_pure
    def test_a_substituted_weight_counts_in_every_turn(self, pure):
        super().test_a_substituted_weight_counts_in_every_turn(pure)
