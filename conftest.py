"""What the tests of all packages share."""

from __future__ import annotations

import contextlib
import gc
import random
import sys
import types
from typing import TYPE_CHECKING

import pytest
from amanda.driving import Ids

if TYPE_CHECKING:
    from collections.abc import Generator

# Examples are the same in every run, and a slow machine may take its time over them.
# ``--hypothesis-profile=default`` looks for new ones.
with contextlib.suppress(ImportError):  # which not every session installs
    import hypothesis

    hypothesis.settings.load_profile("ci")


def pytest_collectstart(collector: pytest.Collector) -> None:
    """What a module draws when it is imported does not depend on those before."""
    if isinstance(collector, pytest.Module):
        _draw_from(1)


gc.disable()  # what packages' conftest.py import is collected before all test modules


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have the garbage collector pass over what test modules import.

    A framework's million objects live as long as the process. Without this, every collection,
    those that tests ask for included, would walk them again, which took most of the time; so would
    those while they are imported, which took a quarter of that.
    """
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Set aside what was imported, and what it left."""
    _set_aside()
    if torch := sys.modules.get("torch"):
        _seed_without_stacks(torch)


def _seed_without_stacks(torch: types.ModuleType) -> None:
    """Spare ``torch.manual_seed`` the stack of its caller, as text.

    It writes one for each kind of device that was not used yet, to say in an error where it was
    seeded. Below pytest stacks are deep, and these took ten milliseconds a call.
    """
    for device in (torch.cuda, torch.xpu, torch.mtia):
        device.traceback = types.SimpleNamespace(format_stack=list)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Set aside what tests imported, if that is much: compilers are imported when they are used."""
    if len(sys.modules) > _seen[-1] + 100:
        _set_aside()


_seen = [0]  # how many modules there were at each time


def _set_aside() -> None:
    gc.collect()
    gc.freeze()
    _seen.append(len(sys.modules))


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> None:
    """What several tests share does not depend on which of them is the first."""
    if fixturedef.scope != "function":
        _draw_from(2)


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Every test draws the same numbers, whatever ran before it."""
    _draw_from(0)


def _draw_from(seed: int) -> None:
    """Begin all sequences of numbers that tests draw from."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(seed)  # not those of devices, which takes much longer
    if tensorflow := sys.modules.get("tensorflow"):
        if not _drawn:
            _note_draws()
        if _drawn[0] or sys.modules["tensorflow.python.eager.context"].global_seed() != seed:
            tensorflow.random.set_seed(seed)
            _drawn[0] = False


_drawn: list[bool] = []  # whether TensorFlow drew anything since its seed was set


def _note_draws() -> None:
    """Note when TensorFlow draws, so that its seed is set after that alone.

    With its seed it forgets all kernels and functions that it has prepared: to make them again took
    8 milliseconds a test. Every operator that draws asks for its seed here.
    """
    random_seed = sys.modules["tensorflow.python.framework.random_seed"]
    get_seed = random_seed.get_seed

    def noting(op_seed: int | None) -> object:
        _drawn[0] = True
        return get_seed(op_seed)

    _drawn.append(True)
    random_seed.get_seed = noting  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _free_ids() -> None:
    """Models of other tests may still live, but what they are called is free again."""
    if torch := sys.modules.get("amanda_torch.driver"):
        torch.driver.identity.contexts.numbering.operators = Ids()
    if tensorflow := sys.modules.get("amanda_tensorflow.driver"):
        tensorflow.driver.identities.ids = Ids()
