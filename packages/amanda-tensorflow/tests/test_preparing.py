"""What is not done again, or not at all, while graphs are built and prepared."""

import gc

import amanda
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops, registry


@pytest.fixture
def collects():
    """Whether Python collects cycles, as the program has it."""
    yield gc.isenabled()
    gc.enable()


def analyses(function, ops):
    """What a tool that records what it looks at was shown of a function, and whether cycles were
    collected meanwhile."""
    seen = []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: seen.append((ctx.op, ctx.attrs, gc.isenabled())), ops=ops)
    with amanda.apply(tool):
        function(tf.constant([[1.0, 2.0]]))
    return seen


class TestCycles:
    def test_are_collected_once_a_function_is_prepared(self, collects):
        assert collects
        ((_, _, meanwhile),) = analyses(tf.function(tf.tanh), ["Tanh"])
        assert not meanwhile
        assert gc.isenabled()

    def test_are_collected_after_an_error_too(self, collects):
        def fail(ctx):
            raise ValueError("no")

        tool = amanda.Tool()
        tool.add_inst_for_op(fail, ops=["Tanh"])
        with amanda.apply(tool), pytest.raises(amanda.RoutineError, match="no"):
            tf.function(tf.tanh)(tf.constant(1.0))
        assert gc.isenabled()

    def test_are_left_alone_where_the_program_collects_none(self, collects):
        gc.disable()
        analyses(tf.function(tf.tanh), ["Tanh"])
        assert not gc.isenabled()


class TestPlumbing:
    def test_is_shown_to_tools_that_name_it_alone(self):
        function = tf.function(lambda x: tf.tanh(x + tf.constant([[3.0, 4.0]])))
        everything = [op.type for op, _, _ in analyses(function, None)]
        assert everything == ["AddV2", "Tanh"]
        ((op, attrs, _),) = analyses(function, ["Const"])
        assert op.type == "Const"
        assert attrs["value"].tolist() == [[3.0, 4.0]]


class TestRegistries:
    def test_that_of_gradient_functions_takes_more_of_them(self):
        @tf.RegisterGradient("AmandaTestThrice")
        def thrice(op, grad):
            return 3 * grad

        graph = tf.Graph()
        with graph.as_default(), graph.gradient_override_map({"Tanh": "AmandaTestThrice"}):
            x = tf.compat.v1.placeholder(tf.float32, ())
            (found,) = tf.gradients(tf.tanh(x), x)
            with tf.compat.v1.Session() as session:
                assert session.run(found, {x: 2.0}) == 3.0

    def test_all_others_are_as_tensorflow_has_them(self):
        assert type(ops.gradient_registry) is not registry.Registry
        assert type(ops._stats_registry) is registry.Registry
        assert registry.Registry.lookup.__module__ == registry.__name__


class TestCopies:
    """A gradient that an operator hands on as it is becomes a tensor of its own."""

    def test_are_what_identity_makes(self):
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, (2, None), "x")
            tf.gradients(x + x, x, tf.identity(x, "theirs"))
            theirs = graph.get_operation_by_name("theirs").node_def
            copies = [op for op in graph.get_operations() if op.type == "Identity"]
            assert len(copies) > 1
            for op in copies:
                assert op.outputs[0].shape.as_list() == [2, None]
                assert op.get_attr("T") == tf.float32
                assert op.node_def.attr.keys() - {"_class"} == theirs.attr.keys()

    def test_have_gradients_where_a_tape_looks_on(self):
        @tf.function
        def second(x):
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    y = tf.reduce_sum((x + x) ** 3)
                first = inner.gradient(y, x)
            return outer.gradient(first, x)

        # y = 8 x^3, so its second derivative is 48 x
        assert second(tf.constant([1.0, 2.0])).numpy().tolist() == [48.0, 96.0]
