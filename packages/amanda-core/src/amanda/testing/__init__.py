"""The conformance suite tests what must hold on every backend, as pytest classes.

A driver's author writes an :class:`Adapter`, which builds a few small models in the backend, and
subclasses the suite in a test module::

    from amanda.testing import Adapter, Conformance

    class TestMyBackend(Conformance):
        adapter = MyAdapter()

:class:`Conformance` is all that every backend must do, but for what its framework lacks: those of
its classes that are ``OPTIONAL`` are skipped for the reason that :attr:`Adapter.lacks` gives.
:class:`InPlace` is for backends whose operators may change a tensor that the program holds, in
addition. Needs the extra ``amanda-core[testing]``.
"""

import pkgutil

import pytest

pytest.register_assert_rewrite(
    *(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}."))
)

from amanda.testing.adapter import Adapter, Model  # noqa: E402
from amanda.testing.asking import Asking  # noqa: E402
from amanda.testing.backward import Backward  # noqa: E402
from amanda.testing.beside import Beside  # noqa: E402
from amanda.testing.caching import Caching  # noqa: E402
from amanda.testing.contexts import Contexts  # noqa: E402
from amanda.testing.descriptions import Descriptions  # noqa: E402
from amanda.testing.errors import Errors  # noqa: E402
from amanda.testing.gradients import Gradients  # noqa: E402
from amanda.testing.identity import Identity  # noqa: E402
from amanda.testing.in_place import InPlace  # noqa: E402
from amanda.testing.loops import Loops  # noqa: E402
from amanda.testing.modules import Modules  # noqa: E402
from amanda.testing.order import Order  # noqa: E402
from amanda.testing.permanent import Permanent  # noqa: E402
from amanda.testing.program import Program, Step, run_step  # noqa: E402
from amanda.testing.return_values import ReturnValues  # noqa: E402
from amanda.testing.scopes import Scopes  # noqa: E402
from amanda.testing.second_order import SecondOrder  # noqa: E402
from amanda.testing.untouched import Untouched  # noqa: E402
from amanda.testing.values import Values  # noqa: E402
from amanda.testing.without_tensors import WithoutTensors  # noqa: E402

__all__ = [
    "OPTIONAL",
    "Adapter",
    "Asking",
    "Backward",
    "Beside",
    "Caching",
    "Conformance",
    "Contexts",
    "Descriptions",
    "Errors",
    "Gradients",
    "Identity",
    "InPlace",
    "Loops",
    "Model",
    "Modules",
    "Order",
    "Permanent",
    "Program",
    "ReturnValues",
    "Scopes",
    "SecondOrder",
    "Step",
    "Untouched",
    "Values",
    "WithoutTensors",
    "run_step",
]

# Not every framework has what these are about.
OPTIONAL = frozenset({"Loops", "Modules", "Permanent", "SecondOrder", "WithoutTensors"})


class Conformance(
    Order,
    ReturnValues,
    Gradients,
    SecondOrder,
    Asking,
    Backward,
    Identity,
    Caching,
    Scopes,
    Untouched,
    Errors,
    Contexts,
    Values,
    Loops,
    WithoutTensors,
    Modules,
    Beside,
    Descriptions,
    Permanent,
):
    """A backend that passes this does what ``docs/semantics.md`` promises: S1 to S8, and more."""

    @pytest.fixture(autouse=True)
    def _skip_what_the_framework_lacks(self, request: pytest.FixtureRequest) -> None:
        assert self.adapter.lacks.keys() <= OPTIONAL
        suite = request.function.__qualname__.partition(".")[0]
        if suite in self.adapter.lacks and not getattr(request.function, "runs_always", False):
            pytest.skip(f"{suite}: {self.adapter.lacks[suite]}")
