"""S1 to S8, once for each kind of variable that a session of TensorFlow has.

Apart from those of functions, since processes take the tests by their files.
"""

from adapters import ReferenceVariablesAdapter, SessionAdapter
from amanda.testing import Conformance


class TestSessionWithResourceVariables(Conformance):
    adapter = SessionAdapter()


class TestSessionWithReferenceVariables(Conformance):
    adapter = ReferenceVariablesAdapter()
