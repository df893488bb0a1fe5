"""These tests look at what a driver tells of tensors, parameters and devices."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

import amanda
from amanda.testing.adapter import numbers
from amanda.testing.models import W1, W2, X, perceptron
from amanda.testing.probes import InsertAt, Watch
from amanda.testing.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda.testing.adapter import Adapter

CHOICE = Program("y = choose/select(mask, x, z)")
TRUE = np.ones((2, 3), np.bool_)


class Descriptions:
    """A driver describes tensors, parameters and devices, so that tools need not know them:
    ``docs/semantics.md#what-a-context-shows``.
    """

    adapter: Adapter

    def weights(self, analyze: Callable[[amanda.OpContext], object]) -> None:
        """Have an analysis routine look at the two matrix products of a model, twice."""
        model = perceptron(self.adapter)
        tool = Watch(analyze, [self.adapter.types["matmul"]])
        with amanda.apply(tool):
            model.forward({"x": X})
            tool.invalidate()
            model.forward({"x": X})
        assert len(tool.analyzed) == 4

    def described(self, insertion: str) -> list[amanda.TensorInfo]:
        """Return the descriptions of the tensors that a routine at the sigmoid is given."""
        found: list[amanda.TensorInfo] = []

        def look(ctx: amanda.OpContext) -> None:
            def routine(*tensors: Any) -> None:
                found.extend(ctx.describe(tensor) for tensor in tensors)

            getattr(ctx, insertion)(routine)

        gradient = "on_grad" in insertion
        tool = Watch(look, [self.adapter.types["sigmoid"]], gradient=gradient)
        with amanda.apply(tool):
            perceptron(self.adapter).gradients(["w1", "w2"], {"x": X})
        return found

    def test_of_what_a_routine_is_given_all_is_known(self) -> None:
        for insertion in ("insert_before_op", "insert_after_op", "insert_on_grad_outputs"):
            (info,) = self.described(insertion)
            assert (info.shape, info.dtype, info.nbytes) == ((2, 4), "float32", 2 * 4 * 4)
            assert info.is_dense
            assert info.mapped == ()

    def test_of_what_another_routine_returned(self) -> None:
        found: list[amanda.TensorInfo] = []

        def look(ctx: amanda.OpContext) -> None:
            ctx.insert_before_op(lambda tensor: found.append(ctx.describe(tensor)))

        given = self.adapter.tensor(numbers(2, 4))
        tools = [
            InsertAt(self.adapter, "insert_before_op", lambda tensor: given, "sigmoid"),
            Watch(look, [self.adapter.types["sigmoid"]]),
        ]
        with amanda.apply(*tools):
            perceptron(self.adapter).forward({"x": X})
        (info,) = found
        assert (info.shape, info.dtype, info.nbytes) == ((2, 4), "float32", 32)

    def test_of_what_is_analyzed_what_is_not_known_is_none(self) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            info = ctx.describe(ctx.inputs[0])
            assert info.dtype == "float32"
            assert info.shape is None or len(info.shape) == 2
            known = info.shape is not None and None not in info.shape
            assert not known or info.shape == (2, 4)
            assert info.nbytes == (32 if known else None)
            assert known or not self.adapter.eager

        tool = Watch(analyze, [self.adapter.types["sigmoid"]])
        with amanda.apply(tool):
            perceptron(self.adapter).forward({"x": X})
        assert tool.analyzed

    def test_of_a_mask(self) -> None:
        found: list[amanda.TensorInfo] = []
        tool = Watch(
            lambda ctx: ctx.insert_before_op(
                lambda mask: found.append(ctx.describe(mask)), inputs=[0]
            ),
            [self.adapter.types["select"]],
        )
        with amanda.apply(tool):
            self.adapter.build(CHOICE, {}).forward({"mask": TRUE, "x": X, "z": X})
        (info,) = found
        assert (info.shape, info.dtype, info.nbytes) == ((2, 3), "bool", 6)

    def test_a_device_can_be_waited_for(self) -> None:
        devices: list[str | None] = []

        def analyze(ctx: amanda.OpContext) -> None:
            def routine(tensor: Any) -> None:
                device = ctx.describe(tensor).device
                devices.append(device)
                if device is not None:
                    ctx.driver.synchronize(device)
                    allocated = ctx.driver.allocated(device)
                    assert allocated is None or allocated > 0

            ctx.insert_before_op(routine)

        with amanda.apply(Watch(analyze, [self.adapter.types["sigmoid"]])):
            perceptron(self.adapter).forward({"x": X})
        (device,) = devices
        assert device is None or device

    def test_an_operator_of_a_model_is_there_for_that(self) -> None:
        purposes: list[str] = []
        tool = Watch(lambda ctx: purposes.append(ctx.driver.purpose(ctx.op)))
        model = perceptron(self.adapter)
        with amanda.apply(tool):
            model.forward({"x": X})
        assert set(purposes) == {"model"}

    def test_a_parameter_is_told_from_what_is_none(self) -> None:
        def analyze(ctx: amanda.OpContext) -> None:
            weight = W1 if self.adapter.layer(ctx.op) == "hidden" else W2
            assert ctx.parameter(0) is None
            found = ctx.parameter(1)
            assert found is not None
            assert (found.info.shape, found.info.dtype) == (weight.shape, "float32")
            assert found.info.nbytes == weight.nbytes
            named = ctx.parameter(self.adapter.input_names["matmul"][1])
            assert named is not None
            assert named.source is found.source

        self.weights(analyze)

    def test_a_parameter_has_a_source_of_its_own_that_stays_the_same(self) -> None:
        sources: dict[str, list[object]] = {}

        def analyze(ctx: amanda.OpContext) -> None:
            found = ctx.parameter(1)
            assert found is not None
            assert weakref.ref(found.source)() is found.source
            sources.setdefault(ctx.op.id, []).append(found.source)

        self.weights(analyze)
        (hidden, again), (head, once_more) = sources.values()
        assert hidden is again
        assert head is once_more
        assert hidden is not head
