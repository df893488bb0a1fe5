"""These tests of S6 look at where tools are active."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import amanda
from amanda.testing.cases import case
from amanda.testing.models import OnPerceptron, X, perceptron
from amanda.testing.probes import INSERTIONS, REPLACING, Executions, InsertAt, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda.testing.adapter import Array, Model


def in_a_thread(call: Callable[[], object]) -> None:
    """Run something in another thread and wait for it, raising what it raised."""
    failures: list[BaseException] = []

    def target() -> None:
        try:
            call()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


class Scopes(OnPerceptron):
    """S6, tools are active in scopes and nowhere else: ``docs/semantics.md#s6-scopes``."""

    def count(self, model: Model, executions: Executions) -> int:
        """Count the executions that are noted in one forward of a model."""
        before = len(executions.ids)
        model.forward({"x": X})
        return len(executions.ids) - before

    def sigmoids(self, executions: Executions) -> amanda.Tool:
        """Return a tool that notes the sigmoids, of which a perceptron has one."""
        return executions.tool([self.adapter.types["sigmoid"]])

    @pytest.mark.parametrize("view", ["forward", "backward", "gradient"])
    def test_a_glob_restricts_a_tool_to_scopes_of_the_model(self, view: str) -> None:
        model = self.perceptron()
        matmul = self.adapter.types["matmul"]
        scopes: dict[str, str] = {}
        layers: list[str] = []

        def analyze(ctx: amanda.OpContext) -> None:
            scopes[self.adapter.layer(ctx.op)] = ctx.op.scope

        with amanda.apply(Watch(analyze, matmul)):
            model.gradients(["w1", "w2"], {"x": X})
        for types in (None, matmul):
            with case(types):
                layers.clear()
                restricted = Watch(
                    lambda ctx: layers.append(self.adapter.layer(ctx.op)),
                    types,
                    scopes=[f"{scopes['head'][:-1]}?"],
                    backward=view == "backward",
                    gradient=view == "gradient",
                )
                with amanda.apply(restricted):
                    model.gradients(["w1", "w2"], {"x": X})
                assert set(layers) == {"head"}

    def test_tools_work_inside_alone(self) -> None:
        executions, model = Executions(), self.perceptron()
        assert self.count(model, executions) == 0
        with amanda.apply(self.sigmoids(executions)):
            assert self.count(model, executions) == 1
        assert self.count(model, executions) == 0

    def test_a_model_built_inside_is_free_outside(self) -> None:
        executions = Executions()
        with amanda.apply(self.sigmoids(executions)):
            model = self.perceptron()
            assert self.count(model, executions) == 1
        assert self.count(model, executions) == 0

    def test_scopes_nest_and_restore(self) -> None:
        outer, inner, model = Executions(), Executions(), self.perceptron()
        with amanda.apply(self.sigmoids(outer)):
            with amanda.apply(self.sigmoids(inner)):
                model.forward({"x": X})
            assert (len(outer.ids), len(inner.ids)) == (1, 1)
            model.forward({"x": X})
            assert (len(outer.ids), len(inner.ids)) == (2, 1)

    def test_a_tool_applied_twice_works_once(self) -> None:
        executions, model = Executions(), self.perceptron()
        tool = self.sigmoids(executions)
        with amanda.apply(tool, tool), amanda.apply(tool):
            assert self.count(model, executions) == 1

    def test_a_scope_is_restored_after_an_exception(self) -> None:
        outer, inner, model = Executions(), Executions(), self.perceptron()
        with amanda.apply(self.sigmoids(outer)):
            with pytest.raises(ZeroDivisionError), amanda.apply(self.sigmoids(inner)):
                raise ZeroDivisionError
            model.forward({"x": X})
        model.forward({"x": X})
        assert (len(outer.ids), len(inner.ids)) == (1, 0)

    def test_disabled_and_enabled(self) -> None:
        executions, model = Executions(), self.perceptron()
        with amanda.apply(self.sigmoids(executions)):
            assert amanda.is_enabled()
            with amanda.disabled():
                assert not amanda.is_enabled()
                assert self.count(model, executions) == 0
                with amanda.enabled():
                    assert self.count(model, executions) == 1
                assert self.count(model, executions) == 0
            assert self.count(model, executions) == 1

    def test_a_scope_within_a_disabled_block_stays_disabled(self) -> None:
        executions, model = Executions(), self.perceptron()
        with amanda.disabled(), amanda.apply(self.sigmoids(executions)):
            assert self.count(model, executions) == 0
            with amanda.enabled():
                assert self.count(model, executions) == 1

    def test_operators_inside_routines_are_not_instrumented(self) -> None:
        executions = Executions()
        kinds = ("multiply", "add", "sigmoid")
        types = [self.adapter.types[kind] for kind in kinds]

        def busy(tensor: Any) -> Any:
            return (tensor * tensor + tensor) * 1.0

        busy_before = InsertAt(self.adapter, "insert_before_op", busy, "sigmoid")
        busy_after = InsertAt(self.adapter, "insert_after_op", busy, "sigmoid")
        busy_backward = InsertAt(self.adapter, "insert_on_grad_inputs", busy, "sigmoid")
        model = self.perceptron()
        with amanda.apply(busy_before, executions.tool(types), busy_after, busy_backward):
            model.gradients(["w1"], {"x": X})
        assert len(executions.ids) == 1

    def test_operators_inside_pure_routines_are_not_instrumented(self) -> None:
        executions = Executions()
        types = [self.adapter.types[kind] for kind in ("multiply", "sigmoid")]
        double = InsertAt(self.adapter, "insert_before_op", lambda h: h * h, "sigmoid", pure=True)
        with amanda.apply(double, executions.tool(types)):
            self.perceptron().forward({"x": X})
        assert len(executions.ids) == 1

    def test_a_replacement_is_not_instrumented(self) -> None:
        executions = Executions()
        types = [self.adapter.types[kind] for kind in ("multiply", "sigmoid")]
        square = InsertAt(self.adapter, "replace_op", lambda h: h * h, "sigmoid")
        with amanda.apply(executions.tool(types), square):
            self.perceptron().forward({"x": X})
        assert len(executions.ids) == 1

    @staticmethod
    def opening(run: Callable[[], object], tool: amanda.Tool) -> Callable[..., Any]:
        """Return a routine that runs something in a scope of its own, at its first execution."""
        ran: list[bool] = []

        def opens(*tensors: Any) -> Any:
            if not ran:
                ran.append(True)
                with amanda.apply(tool):
                    run()
            return tensors

        return opens

    @pytest.mark.parametrize("insertion", INSERTIONS + REPLACING)
    def test_a_scope_that_a_routine_opens_has_its_tools_and_only_they(self, insertion: str) -> None:
        around, within = Executions(), Executions()
        model, other = self.perceptron(), perceptron(self.adapter)
        opens = self.opening(lambda: other.forward({"x": X}), self.sigmoids(within))
        with amanda.apply(
            self.sigmoids(around), InsertAt(self.adapter, insertion, opens, "sigmoid")
        ):
            for _ in range(2):
                model.gradients(["w1"], {"x": X})
        assert (len(around.ids), len(within.ids)) == (2, 1)
        assert self.count(other, within) == 0

    def test_a_scope_that_an_analysis_routine_opens_has_its_tools_and_only_they(self) -> None:
        around, within = Executions(), Executions()
        model, other = self.perceptron(), perceptron(self.adapter)
        opens = self.opening(lambda: other.forward({"x": X}), self.sigmoids(within))
        with amanda.apply(self.sigmoids(around), Watch(opens, [self.adapter.types["sigmoid"]])):
            for _ in range(2):
                model.forward({"x": X})
        assert (len(around.ids), len(within.ids)) == (2, 1)

    def test_the_model_at_hand_run_in_a_routine(self) -> None:
        """Activation patching runs its clean prompt so."""
        outputs: list[Array] = []
        model = self.perceptron()
        clean = model.forward({"x": -X})
        double = InsertAt(self.adapter, "insert_after_op", lambda y: y * 2, "sigmoid")
        with amanda.apply(double):
            doubled = model.forward({"x": -X})

        def patch(*_: Any) -> None:
            if not outputs:
                outputs.append(model.forward({"x": -X}))
                with amanda.apply(double):
                    outputs.append(model.forward({"x": -X}))
                outputs.append(model.forward({"x": -X}))

        with amanda.apply(InsertAt(self.adapter, "insert_before_op", patch, "sigmoid")):
            model.forward({"x": X})
        np.testing.assert_array_equal(outputs, [clean, doubled, clean])

    def test_operators_have_the_same_ids_in_a_scope_of_a_routine(self) -> None:
        around, within = Executions(), Executions()
        model = self.perceptron()
        opens = self.opening(lambda: model.forward({"x": X}), self.sigmoids(within))
        with amanda.apply(
            self.sigmoids(around), InsertAt(self.adapter, "insert_before_op", opens, "sigmoid")
        ):
            model.forward({"x": X})
        assert len(within.ids) == 1
        assert within.ids == around.ids

    def test_gradients_in_a_scope_of_a_routine(self) -> None:
        found = []
        model, other = self.perceptron(), perceptron(self.adapter)
        double = InsertAt(self.adapter, "insert_on_grad_outputs", lambda g: g * 2, "sigmoid")
        with amanda.apply(double):
            expected = other.gradients(["w1"], {"x": X})["w1"]
        opens = self.opening(lambda: found.append(other.gradients(["w1"], {"x": X})["w1"]), double)
        plain = model.gradients(["w1"], {"x": X})["w1"]
        with amanda.apply(InsertAt(self.adapter, "insert_before_op", opens, "sigmoid")):
            gradient = model.gradients(["w1"], {"x": X})["w1"]
        np.testing.assert_array_equal(found, [expected])
        np.testing.assert_array_equal(gradient, plain)

    def test_scopes_of_routines_nest(self) -> None:
        around, within, innermost = Executions(), Executions(), Executions()
        models = [self.perceptron() for _ in range(3)]
        third = self.opening(lambda: models[2].forward({"x": X}), self.sigmoids(innermost))
        second = InsertAt(self.adapter, "insert_before_op", third, "sigmoid")

        def run() -> None:
            with amanda.apply(self.sigmoids(within)):
                models[1].forward({"x": X})

        first = InsertAt(self.adapter, "insert_before_op", self.opening(run, second), "sigmoid")
        with amanda.apply(self.sigmoids(around), first):
            for _ in range(2):
                models[0].forward({"x": X})
        assert [len(e.ids) for e in (around, within, innermost)] == [2, 1, 1]

    def test_disabled_and_enabled_in_a_routine(self) -> None:
        around, within = Executions(), Executions()
        model, other, enabled = self.perceptron(), perceptron(self.adapter), []

        def routine(*_: Any) -> None:
            with amanda.disabled():
                enabled.append(amanda.is_enabled())
                with amanda.apply(self.sigmoids(within)):
                    other.forward({"x": X})
                    with amanda.enabled():
                        other.forward({"x": X})
            enabled.append(amanda.is_enabled())
            with amanda.enabled():
                other.forward({"x": X})

        with amanda.apply(
            InsertAt(self.adapter, "insert_before_op", routine, "sigmoid"), self.sigmoids(around)
        ):
            for _ in range(2):
                model.forward({"x": X})
        assert enabled == [False, True] * 2
        assert (len(around.ids), len(within.ids)) == (2, 2)

    def test_an_exception_in_a_scope_of_a_routine(self) -> None:
        around, within = Executions(), Executions()
        model, other = self.perceptron(), perceptron(self.adapter)

        def fail() -> None:
            raise ZeroDivisionError

        opens = self.opening(fail, self.sigmoids(within))
        with amanda.apply(
            InsertAt(self.adapter, "insert_before_op", opens, "sigmoid"), self.sigmoids(around)
        ):
            with pytest.raises(amanda.RoutineError, match="ZeroDivisionError"):
                model.forward({"x": X})
            assert self.count(model, around) == 1
            assert self.count(other, within) == 0
        assert self.count(model, around) == 0

    def test_another_thread_is_not_covered(self) -> None:
        executions, model = Executions(), self.perceptron()
        with amanda.apply(self.sigmoids(executions)):
            in_a_thread(lambda: model.forward({"x": X}))
            assert executions.ids == []
            assert self.count(model, executions) == 1

    def test_two_threads_have_their_own_tools(self) -> None:
        both_inside = threading.Barrier(2, timeout=300)
        counts = {}
        failures: list[BaseException] = []

        def work(times: int) -> None:
            executions, model = Executions(), perceptron(self.adapter)
            try:
                with amanda.apply(self.sigmoids(executions)):
                    both_inside.wait()
                    for _ in range(times):
                        model.forward({"x": X})
                    both_inside.wait()
                counts[times] = len(executions.ids)
            except BaseException as failure:
                both_inside.abort()
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(times,)) for times in (2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert counts == {2: 2, 3: 3}

    def test_a_gradient_is_covered_with_its_forward(self) -> None:
        seen = []
        tool = InsertAt(
            self.adapter, "insert_on_grad_outputs", lambda g: seen.append(True), "sigmoid"
        )
        model = self.perceptron()
        with amanda.apply(tool):
            model.gradients(["w1"], {"x": X})
        model.gradients(["w1"], {"x": X})
        assert seen == [True]

    def test_after_the_last_scope_results_are_as_before(self) -> None:
        model = self.perceptron()
        before = model.gradients(["x", "w1", "w2"], {"x": X})
        output = model.forward({"x": X})
        doubling = [
            InsertAt(self.adapter, insertion, lambda t: t * 2, "sigmoid")
            for insertion in ("insert_before_op", "insert_after_op", "insert_on_grad_outputs")
        ]
        with amanda.apply(*doubling):
            during = model.gradients(["x", "w1", "w2"], {"x": X})
        for name, gradient in during.items():
            assert gradient.tobytes() != before[name].tobytes()
        after = model.gradients(["x", "w1", "w2"], {"x": X})
        assert {name: a.tobytes() for name, a in after.items()} == {
            name: b.tobytes() for name, b in before.items()
        }
        np.testing.assert_array_equal(model.forward({"x": X}), output)
