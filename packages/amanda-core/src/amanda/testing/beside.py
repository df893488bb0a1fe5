"""These tests of S6 and S8 put a driver of another framework beside the one that is tested."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import amanda
from amanda.driving import Action, Operator, Point, Selection
from amanda.testing.adapter import assert_close
from amanda.testing.models import W1, W2, OnPerceptron, X, sigmoid
from amanda.testing.packages import install
from amanda.testing.probes import InsertAt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from amanda.driving import Composite, Execution, Subscription
    from amanda.testing.adapter import Array


class Elsewhere(amanda.Driver):
    """This is the driver of another framework, in which nothing runs.

    ``engines`` counts how often it was told that tools are active.
    """

    backend = vocabulary = "elsewhere"
    xp = None
    engines = 0

    def activate(self, engine: object) -> None:
        """Count the engines."""
        self.engines += engine is not None

    def value(self, tensor: Any) -> Any:
        """Fail, since no tensor of this backend exists."""
        raise AssertionError("it has no tensors")

    def incompatible_reason(self, original: Any, substitute: Any) -> str | None:
        """Fail, since no tensor of this backend exists."""
        raise AssertionError("it has no tensors")

    def describe(self, tensor: Any) -> amanda.TensorInfo:
        """Fail, since no tensor of this backend exists."""
        raise AssertionError("it has no tensors")

    def variable(self, initial: Any, execution: object) -> Any:
        """Fail, since no operator of this backend exists."""
        raise AssertionError("it has no operators")


class Words:
    """This context map calls the operators of a backend by the kinds of steps that they are."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types

    def select(self, subscription: Subscription, driver: object) -> Selection:
        """Select the backend's types that are the kinds of a subscription."""
        kinds = subscription.types()
        assert kinds is not None
        types = frozenset(self._types[kind] for kind in kinds)
        return Selection(subscription, subscription.view, kinds, types)

    def translate(self, execution: Execution, driver: object) -> Any:
        """Translate an operator by its type alone: all else stays as it is."""
        kinds = [kind for kind, type in self._types.items() if type == execution.operator.type]
        return SimpleNamespace(types=kinds, analysis=lambda native: native)

    def composites(self, graph: object, driver: object) -> Sequence[Composite]:
        """Find no composites."""
        return ()

    def functions(self) -> Mapping[str, str]:
        """List no functions."""
        return {}

    def is_one(self, execution: Execution, driver: object) -> bool:
        """Tell that no call of a function is an operator."""
        return False


context_map: Words  # of the test that runs, as its entry points announce it


class Portable(amanda.Tool):
    """This tool doubles what sigmoids are given, in a vocabulary that no backend has of its own."""

    def __init__(self, words: str) -> None:
        super().__init__(namespace=words)
        self.add_inst_for_op(lambda ctx: ctx.insert_before_op(lambda h: h * 2), ops=["sigmoid"])


class Beside(OnPerceptron):
    """S6, a driver and its tools are undisturbed by others: ``docs/semantics.md#s6-scopes``."""

    @pytest.fixture
    def elsewhere(self) -> Iterator[Elsewhere]:
        """Register a driver of another framework for the time of a test."""
        driver = Elsewhere()
        amanda.register_driver(driver)
        yield driver
        amanda.unregister_driver(driver)

    def output_beside(self, *tools: amanda.Tool) -> Array:
        """Return the perceptron's output under these tools, without warnings of what they miss."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* sees nothing of ", amanda.AmandaWarning)
            return self.output(*tools)

    @pytest.fixture
    def translated(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[..., Portable]:
        """Return what makes a tool whose vocabulary has maps from these vocabularies alone."""

        def portable(*vocabularies: str) -> Portable:
            words = f"{type(self.adapter).__name__} to {' and '.join(vocabularies) or 'nobody'}"
            maps = [f"{vocabulary}:{words} = {__name__}:context_map" for vocabulary in vocabularies]
            maps.append(f"a backend that is not here:{words} = {__name__}:context_map")
            install(tmp_path, "words", entry_points="\n".join(["[amanda.context_maps]", *maps]))
            monkeypatch.syspath_prepend(tmp_path)
            here = Words(self.adapter.types)
            monkeypatch.setattr(sys.modules[__name__], "context_map", here, raising=False)
            return Portable(words)

        return portable

    def test_a_tool_of_this_backend_says_nothing_to_another_one(self, elsewhere: Elsewhere) -> None:
        executed: list[str] = []
        tool = amanda.Tool(namespace=self.adapter.vocabulary)
        tool.add_inst_for_op(
            lambda ctx: ctx.insert_before_op(lambda *_: executed.append(ctx.op.type)),
            ops=[self.adapter.types["sigmoid"]],
        )
        model = self.perceptron()
        plain = model.forward({"x": X})
        with warnings.catch_warnings():
            warnings.simplefilter("error", amanda.AmandaWarning)
            with amanda.apply(tool):
                found = model.forward({"x": X})
        assert elsewhere.engines == 0
        assert executed == [self.adapter.types["sigmoid"]]
        assert found.tobytes() == plain.tobytes()

    def test_a_portable_tool_works_here_though_nothing_translates_the_other_one(
        self, elsewhere: Elsewhere, translated: Callable[..., Portable]
    ) -> None:
        tool = translated(self.adapter.vocabulary)
        assert_close(self.output_beside(tool), sigmoid(2 * X @ W1) @ W2)
        assert elsewhere.engines == 0

    def test_a_portable_tool_leaves_this_backend_alone_if_nothing_translates_it(
        self, elsewhere: Elsewhere, translated: Callable[..., Portable]
    ) -> None:
        plain = self.perceptron().forward({"x": X})
        np.testing.assert_array_equal(self.output_beside(translated("elsewhere")), plain)
        assert elsewhere.engines > 0

    def test_a_portable_tool_works_on_both(
        self, elsewhere: Elsewhere, translated: Callable[..., Portable]
    ) -> None:
        tool = translated(self.adapter.vocabulary, "elsewhere")
        assert_close(self.output_beside(tool), sigmoid(2 * X @ W1) @ W2)
        assert elsewhere.engines > 0

    def test_a_portable_tool_and_a_native_one_work_in_their_order(
        self, elsewhere: Elsewhere, translated: Callable[..., Portable]
    ) -> None:
        tool = translated(self.adapter.vocabulary)
        native = InsertAt(self.adapter, "insert_before_op", lambda h: h + 1, "sigmoid")
        assert_close(self.output_beside(tool, native), sigmoid(2 * X @ W1 + 1) @ W2)
        assert_close(self.output_beside(native, tool), sigmoid(2 * (X @ W1 + 1)) @ W2)

    def test_a_portable_tool_that_nothing_translates_for_either_is_refused(
        self, elsewhere: Elsewhere, translated: Callable[..., Portable]
    ) -> None:
        with pytest.raises(amanda.MissingContextMapError, match="Portable"):
            self.output_beside(translated())

    def test_after_a_scope_in_a_routine_of_the_other_one_operators_are_seen_as_before(self) -> None:
        tool = InsertAt(self.adapter, "insert_before_op", lambda h: h * 2, "sigmoid")
        model = self.perceptron()

        def routine() -> None:
            with amanda.apply(amanda.Tool()):
                model.forward({"x": X})

        operator = Operator(id="op", type="op", name="op", scope="", backend="elsewhere")
        with amanda.apply(tool):
            Action(Point.BEFORE_OP, routine, tool).call([], operator)
            assert_close(model.forward({"x": X}), sigmoid(2 * X @ W1) @ W2)

    def test_a_driver_that_fails_is_left_out(self, elsewhere: Elsewhere) -> None:
        def fail(engine: object) -> None:
            raise KeyError("lost")

        elsewhere.activate = fail  # type: ignore[method-assign]
        tool = InsertAt(self.adapter, "insert_before_op", lambda h: h * 2, "sigmoid")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", amanda.AmandaWarning)
            found = self.output_beside(tool)
        assert_close(found, sigmoid(2 * X @ W1) @ W2)
