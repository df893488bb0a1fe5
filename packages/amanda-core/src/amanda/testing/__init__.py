"""The conformance suite: what must hold on every backend, as pytest classes.

A driver's author writes an :class:`Adapter`, which builds a few small models in the backend, and
subclasses the suite in a test module::

    from amanda.testing import Adapter, Conformance

    class TestMyBackend(Conformance):
        adapter = MyAdapter()

:class:`Conformance` is all that every backend must do. :class:`InPlace` is for backends whose
operators may change a tensor that the program holds, in addition. Needs the extra
``amanda-core[testing]``.
"""

import pkgutil

import pytest

pytest.register_assert_rewrite(
    *(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}."))
)

from amanda.testing.adapter import Adapter, Model  # noqa: E402
from amanda.testing.backward import Backward  # noqa: E402
from amanda.testing.caching import Caching  # noqa: E402
from amanda.testing.contexts import Contexts  # noqa: E402
from amanda.testing.errors import Errors  # noqa: E402
from amanda.testing.gradients import Gradients  # noqa: E402
from amanda.testing.identity import Identity  # noqa: E402
from amanda.testing.in_place import InPlace  # noqa: E402
from amanda.testing.order import Order  # noqa: E402
from amanda.testing.program import Program, Step  # noqa: E402
from amanda.testing.return_values import ReturnValues  # noqa: E402
from amanda.testing.scopes import Scopes  # noqa: E402
from amanda.testing.untouched import Untouched  # noqa: E402

__all__ = [
    "Adapter",
    "Backward",
    "Caching",
    "Conformance",
    "Contexts",
    "Errors",
    "Gradients",
    "Identity",
    "InPlace",
    "Model",
    "Order",
    "Program",
    "ReturnValues",
    "Scopes",
    "Step",
    "Untouched",
]


class Conformance(
    Order, ReturnValues, Gradients, Backward, Identity, Caching, Scopes, Untouched, Errors, Contexts
):
    """S1 to S8 of ``docs/semantics.md``, and what a context shows."""
