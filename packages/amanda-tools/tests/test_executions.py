"""Executions: every execution, measured once for all tools that show time."""

import amanda
import pytest
from amanda_tools import Executions


class Listener(amanda.Tool):
    """Keeps all executions."""

    def __init__(self, **subscription):
        super().__init__()
        self.heard = []
        self.depends_on(Executions)
        self.add_inst_for_op(self.analyze, **subscription)
        self.add_inst_for_op(self.analyze, backward=True, **subscription)

    def analyze(self, ctx):
        self.dependency(Executions).observe(ctx, self.heard.append)


class TestTime:
    def test_is_that_of_the_operator(self, toy):
        listener = Listener()
        with amanda.apply(listener):
            toy.forward("a.b/conv", 700)
            toy.now += 50
            toy.forward("a/relu", 20)
        assert [(e.start, e.duration) for e in listener.heard] == [(0, 700), (750, 20)]

    def test_leaves_out_what_measuring_takes(self, toy):
        toy.slowness = 30
        listener = Listener()
        with amanda.apply(listener):
            toy.forward("conv", 700)
            toy.forward("conv", 500)
        assert [e.duration for e in listener.heard] == [700, 500]
        assert listener.dependency(Executions).overhead == 4 * 30

    def test_leaves_out_what_listeners_take(self, toy):
        class Slow(Listener):
            def analyze(self, ctx):
                self.dependency(Executions).observe(ctx, self.dawdle)

            def dawdle(self, execution):
                toy.now += 1000

        listener = Listener()
        with amanda.apply(Slow(), listener):
            toy.forward("conv", 700, inside=[lambda: toy.backward("relu", 10)])
        assert [(e.duration, e.self_time) for e in listener.heard] == [(10, 10), (1710, 700)]

    def test_leaves_out_what_other_tools_do(self, toy):
        class Other(amanda.Tool):
            def __init__(self):
                super().__init__()
                self.add_inst_for_op(self.analyze)

            def analyze(self, ctx):
                ctx.insert_before_op(self.dawdle, inputs=[])
                ctx.insert_after_op(self.dawdle, outputs=[])

            def dawdle(self):
                toy.now += 1000

        listener = Listener()
        with amanda.apply(Other(), listener, Other()):
            toy.forward("conv", 700)
        assert [e.duration for e in listener.heard] == [700]

    def test_of_its_own_leaves_out_operators_inside(self, toy):
        listener = Listener()
        with amanda.apply(listener):
            toy.backward("block", 100, inside=[lambda: toy.forward("conv", 40)] * 2)
        assert [(e.place.id, e.duration, e.self_time) for e in listener.heard] == [
            ("conv", 40, 40),
            ("conv", 40, 40),
            ("blockBackward", 180, 100),
        ]

    def test_is_right_again_after_an_operator_failed(self, toy):
        def fail():
            raise ZeroDivisionError

        listener = Listener()
        with amanda.apply(listener):
            for _ in range(3):
                with pytest.raises(ZeroDivisionError):
                    toy.forward("block", 10, inside=[lambda: toy.forward("conv", 5, inside=[fail])])
            toy.forward("block", 100, inside=[lambda: toy.forward("conv", 40)])
        assert [(e.place.id, e.self_time) for e in listener.heard] == [("conv", 40), ("block", 100)]


class TestWhatIsTold:
    def test_shapes_and_dtypes_at_each_execution(self, toy):
        listener = Listener()
        with amanda.apply(listener):
            toy.forward("conv", 1, shape=(2, 3))
            toy.forward("conv", 1, shape=(4, 3))
        assert [e.inputs.shapes for e in listener.heard] == [[[2, 3]], [[4, 3]]]
        assert [e.outputs.dtypes for e in listener.heard] == [["float32"], ["float32"]]

    def test_gradients_that_do_not_flow_are_none(self, toy):
        listener = Listener()
        with amanda.apply(listener):
            toy.backward("conv", 1)
        (execution,) = listener.heard
        assert execution.inputs == ([[2, 3], None], ["float32", None])

    def test_backward_operators_with_the_forward_operator_they_belong_to(self, toy):
        listener = Listener()
        with amanda.apply(listener):
            toy.forward("a/conv", 1)
            toy.backward("a/conv", 1)
        assert [(e.direction, e.place.id, e.forward.id) for e in listener.heard] == [
            ("forward", "a/conv", "a/conv"),
            ("backward", "a/convBackward", "a/conv"),
        ]

    def test_iteration_counts_the_executions_of_each_operator(self, toy):
        listener = Listener()
        with amanda.apply(listener):
            for id in ("conv", "relu", "conv", "conv"):
                toy.forward(id, 1)
        assert [(e.place.id, e.iteration) for e in listener.heard] == [
            ("conv", 0),
            ("relu", 0),
            ("conv", 1),
            ("conv", 2),
        ]

    def test_to_every_listener_once_also_after_the_cache_was_cleared(self, toy):
        listeners = Listener(), Listener()
        with amanda.apply(*listeners):
            toy.forward("conv", 1)
            amanda.clear_cache()
            toy.forward("conv", 1)
            with amanda.cache_disabled():
                toy.forward("conv", 1)
        assert [[e.iteration for e in listener.heard] for listener in listeners] == [[0, 1, 2]] * 2

    def test_what_like_executions_have_in_common_is_one_object(self, toy):
        listener = Listener()
        with amanda.apply(listener):
            toy.forward("conv", 1, shape=(2, 3))
            toy.forward("conv", 1, shape=(2, 3))
            toy.forward("conv", 1, shape=(4, 3))
            toy.forward("relu", 1, shape=(4, 3))
        first, like, other_shape, other_operator = (e.kind for e in listener.heard)
        assert first is like
        assert (other_shape.place, other_shape.inputs.shapes) == (first.place, [[4, 3]])
        assert other_operator.place.id == "relu"

    def test_what_follows_from_that_is_worked_out_once(self, toy):
        listener, asked = Listener(), []

        def named(kind):
            asked.append(kind)
            return f"{kind.place.id} of {kind.inputs.dtypes}"

        with amanda.apply(listener):
            for _ in range(3):
                toy.forward("conv", 1)
        assert {e.kind.once(named) for e in listener.heard} == {"conv of ['float32']"}
        assert len(asked) == 1

    def test_only_of_operators_that_are_observed(self, toy):
        listener = Listener(ops=["conv"])
        with amanda.apply(listener):
            toy.forward("conv", 1)
            toy.forward("relu", 1)
        assert [e.place.type for e in listener.heard] == ["conv"]

    def test_nothing_after_the_listener_left_while_another_stays(self, toy):
        gone, stays = Listener(), Listener()
        with amanda.apply(stays):
            with amanda.apply(gone):
                toy.forward("conv", 1)
            toy.forward("conv", 1)
        assert (len(gone.heard), len(stays.heard)) == (1, 2)
