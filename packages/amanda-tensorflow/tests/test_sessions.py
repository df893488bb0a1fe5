"""Session.run and its kin, in graphs of version 1."""

import collections
import os
import textwrap

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import FORWARD, Count, Insert, after, before, replace, same, scale

v1 = tf.compat.v1
X = np.array([[1, 2], [3, 4]], np.float32)
W = np.array([[1, -1], [2, 1]], np.float32)


@pytest.fixture(params=[True, False], ids=["resource", "reference"])
def use_resource(request):
    return request.param


class Linear:
    """A graph: y = x @ w, a loss, and a training step."""

    def __init__(self, use_resource=True):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.x = v1.placeholder(tf.float32, (None, 2), name="x")
            self.w = v1.get_variable("w", initializer=W, use_resource=use_resource)
            with v1.name_scope("layer"):
                self.y = tf.matmul(self.x, self.w, name="y")
            self.z = self.y + 1
            self.loss = tf.reduce_sum(self.z * self.z)
            self.step = v1.train.GradientDescentOptimizer(0.01).minimize(self.loss)
            self.init = v1.global_variables_initializer()
        self.session = v1.Session(graph=self.graph)
        self.session.run(self.init)


@pytest.fixture
def linear(use_resource):
    model = Linear(use_resource)
    yield model
    model.session.close()


class TestFetches:
    def test_every_structure_that_run_takes(self, linear):
        point = collections.namedtuple("point", "y z")
        y = 2 * X @ W
        with amanda.apply(scale("MatMul", 2)):
            run = lambda fetches: linear.session.run(fetches, {linear.x: X})  # noqa: E731
            np.testing.assert_allclose(run(linear.y), y)
            np.testing.assert_allclose(run("layer/y:0"), y)
            np.testing.assert_allclose(run([linear.y, [linear.z]])[1][0], y + 1)
            np.testing.assert_allclose(run({"a": linear.y, "b": (linear.z,)})["b"][0], y + 1)
            np.testing.assert_allclose(run(point(linear.y, linear.z)).z, y + 1)
            assert run(linear.y.op) is None
            assert run([]) == []
            nothing, again = run([linear.graph.get_operation_by_name("layer/y"), linear.y])
            assert nothing is None
            np.testing.assert_allclose(again, y)
            np.testing.assert_allclose(run([linear.y, linear.y])[1], y)
            np.testing.assert_allclose(run(linear.w), W)

    def test_a_fetched_sparse_tensor(self):
        with tf.Graph().as_default(), v1.Session() as session:
            values = tf.nn.relu(tf.constant([1.0, 2.0]))
            sparse = tf.SparseTensor([[0], [2]], values, [3])
            with amanda.apply(scale("Relu", 2)):
                np.testing.assert_array_equal(session.run(sparse).values, [2, 4])

    def test_eval_of_tensors(self, linear):
        with linear.session.as_default(), amanda.apply(scale("MatMul", 2)):
            np.testing.assert_allclose(linear.y.eval({linear.x: X}), 2 * X @ W)
            np.testing.assert_allclose(
                linear.loss.eval({linear.x: X}), ((2 * X @ W + 1) ** 2).sum()
            )


class TestFeeds:
    def test_a_fed_result_is_not_computed(self, linear):
        count = Count("MatMul")
        with amanda.apply(count, scale("MatMul", 2)):
            np.testing.assert_allclose(linear.session.run(linear.z, {linear.y: X}), X + 1)
        assert sum(count.counts.values()) == 0

    def test_a_fed_input_is_what_routines_see(self, linear):
        fed = np.ones_like(W)
        seen = []
        tool = before("MatMul", lambda w: seen.append(w.numpy()), inputs=[1])
        weight = linear.y.op.inputs[1]
        with amanda.apply(tool):
            actual = linear.session.run(linear.y, {linear.x: X, weight: fed})
        np.testing.assert_allclose(actual, X @ fed)
        np.testing.assert_array_equal(seen, [fed])


class TestCallables:
    def test_make_callable_inside_and_outside_of_a_scope(self, linear):
        outside = linear.session.make_callable(linear.y, [linear.x])
        with amanda.apply(scale("MatMul", 2)):
            np.testing.assert_allclose(outside(X), 2 * X @ W)
            inside = linear.session.make_callable([linear.y, linear.step], [linear.x])
            np.testing.assert_allclose(inside(X)[0], 2 * X @ W)
        assert outside(X).shape == X.shape

    def test_a_callable_without_feeds(self):
        with tf.Graph().as_default(), v1.Session() as session:
            run = session.make_callable(tf.nn.relu([1.0, -1.0]))
            with amanda.apply(scale("Relu", 3)):
                np.testing.assert_array_equal(run(), [3, 0])
            np.testing.assert_array_equal(run(), [1, 0])

    @pytest.mark.filterwarnings("ignore")
    def test_partial_run_is_refused_and_works_when_disabled(self, linear):
        with amanda.apply(scale("MatMul", 2)):
            with pytest.raises(amanda.UnsupportedError, match=r"partial_run.*Session\.run"):
                linear.session.partial_run_setup([linear.y], [linear.x])
            with amanda.disabled():
                handle = linear.session.partial_run_setup([linear.y], [linear.x])
                actual = linear.session.partial_run(handle, linear.y, {linear.x: X})
        np.testing.assert_allclose(actual, X @ W)


class TestTraining:
    def test_a_scope_in_the_middle_loses_nothing(self, use_resource):
        observed, plain = Linear(use_resource), Linear(use_resource)
        count = Count("MatMul")
        for round in range(4):
            for model in (observed, plain):
                if model is observed and round in (1, 2):
                    with amanda.apply(count):
                        model.session.run(model.step, {model.x: X})
                else:
                    model.session.run(model.step, {model.x: X})
        assert observed.session.run(observed.w).tobytes() == plain.session.run(plain.w).tobytes()
        assert sum(count.counts.values()) == 1  # a scope begins with fresh counts

    def test_a_masked_weight_trains_unmasked(self, linear):
        mask = np.array([[1, 0], [1, 1]], np.float32)
        tool = before("MatMul", lambda w: w * mask, inputs=[1], pure=True)
        with amanda.apply(tool):
            linear.session.run(linear.step, {linear.x: X})
        expected = W - 0.01 * X.T @ (2 * (X @ (W * mask) + 1))
        np.testing.assert_allclose(linear.session.run(linear.w), expected, rtol=1e-6)

    def test_operators_without_outputs_can_be_instrumented(self, linear):
        kind = linear.step.control_inputs[0].type if not linear.step.type else linear.step.type
        updates = [o.type for o in linear.graph.get_operations() if "GradientDescent" in o.type]
        assert kind == "NoOp" or kind in updates
        seen = []
        first = before(updates, lambda *ts: seen.append(("before", len(ts))))
        last = after(updates, lambda *ts: seen.append(("after", len(ts))))
        with amanda.apply(first, last):
            linear.session.run(linear.step, {linear.x: X})
        assert [name for name, _ in seen] == ["before", "after"]
        assert not np.array_equal(linear.session.run(linear.w), W)

    def test_an_update_can_be_replaced(self, linear):
        updates = [o.type for o in linear.graph.get_operations() if "GradientDescent" in o.type]
        seen = []
        if "ResourceApplyGradientDescent" in updates:
            with amanda.apply(replace(updates, lambda *ts: seen.append(True))):
                linear.session.run(linear.step, {linear.x: X})
            assert seen == [True]
            np.testing.assert_array_equal(linear.session.run(linear.w), W)

    def test_opening_a_hundred_times_does_not_grow_the_graph(self, linear):
        tool = scale("MatMul", 2)
        sizes = []
        for _ in range(100):
            with amanda.apply(tool):
                linear.session.run(linear.y, {linear.x: X})
            sizes.append(len(linear.graph.get_operations()))
        assert len(set(sizes)) == 1

    def test_an_exception_leaves_the_variables_alone(self, linear):
        def fails(x):
            raise KeyError("lost")

        tool = before("MatMul", fails, inputs=[0])
        with amanda.apply(tool), pytest.raises(amanda.RoutineError, match=r"fails.*layer/MatMul"):
            linear.session.run(linear.step, {linear.x: X})
        np.testing.assert_array_equal(linear.session.run(linear.w), W)
        linear.session.run(linear.step, {linear.x: X})


class TestSharedState:
    def test_iterators_move_on_once(self):
        with tf.Graph().as_default(), v1.Session() as session:
            element = v1.data.make_one_shot_iterator(tf.data.Dataset.range(6)).get_next()
            y = tf.nn.relu(tf.cast(element, tf.float32))
            values = [session.run(y)]
            with amanda.apply(scale("Relu", 10)):
                values += [session.run(y), session.run(y)]
            values.append(session.run(y))
        assert values == [0, 10, 20, 3]

    def test_lookup_tables(self):
        with tf.Graph().as_default(), v1.Session() as session:
            table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(["a", "b"], [1.0, 2.0]), -1.0
            )
            y = tf.nn.relu(table.lookup(tf.constant(["b", "z", "a"])))
            with amanda.apply(scale("Relu", 2)):
                session.run(v1.tables_initializer())
                np.testing.assert_array_equal(session.run(y), [4, 0, 2])

    @pytest.mark.parametrize("shaped_by_an_operator", [False, True])
    def test_random_streams_stay_as_they_were(self, shaped_by_an_operator):
        def stream(*tools):
            with tf.Graph().as_default(), v1.Session() as session:
                v1.set_random_seed(3)
                x = v1.placeholder(tf.float32, (None,))
                h = tf.nn.relu(x)
                shape = tf.shape(h) if shaped_by_an_operator else tf.shape(x)
                y = tf.nn.relu(h + tf.random.uniform(shape))
                draws = [session.run(y, {x: [0.0, 0.0]})]
                with amanda.apply(*tools):
                    draws += [session.run(y, {x: [0.0, 0.0]}) for _ in range(2)]
                draws.append(session.run(y, {x: [0.0, 0.0]}))
            return np.stack(draws).tobytes()

        assert stream(Count("Relu")) == stream()

    def test_checkpoints_are_as_they_were(self, tmp_path, use_resource):
        def save(name, *tools):
            model = Linear(use_resource)
            with model.graph.as_default(), amanda.apply(*tools):
                model.session.run(model.step, {model.x: X})
                path = v1.train.Saver().save(model.session, os.fspath(tmp_path / name))
            return {file.suffix: file.read_bytes() for file in tmp_path.glob(f"{name}.*")}, path

        plain, _ = save("plain")
        observed, path = save("observed", Count())
        assert observed[".data-00000-of-00001"] == plain[".data-00000-of-00001"]
        with tf.Graph().as_default():
            v1.train.import_meta_graph(path + ".meta")
            names = [op.name for op in v1.get_default_graph().get_operations()]
        assert not [name for name in names if "amanda" in name]

    def test_a_monitored_session_with_a_finalized_graph(self):
        count = Count("MatMul")
        with tf.Graph().as_default():
            v1.train.get_or_create_global_step()
            w = v1.get_variable("w", initializer=W)
            y = tf.matmul(tf.constant(X), w)
            with (
                v1.train.MonitoredTrainingSession() as session,
                amanda.apply(count, scale("MatMul", 2)),
            ):
                np.testing.assert_allclose(session.run(y), 2 * X @ W)
                assert v1.get_default_graph().finalized
        assert list(count.counts.values()) == [1]

    def test_a_callable_defined_function_is_looked_into(self):
        with tf.Graph().as_default(), v1.Session() as session:
            inner = tf.function(lambda x: tf.nn.relu(tf.matmul(x, W)))
            y = inner(inner(tf.constant(X)))
            count = Count(["MatMul", "Relu"])
            with amanda.apply(count, scale("MatMul", 2)):
                actual = session.run(y)
        relu = lambda x: np.maximum(x, 0)  # noqa: E731
        np.testing.assert_allclose(actual, relu(2 * relu(2 * X @ W) @ W))
        assert sum(count.counts.values()) == 4


class TestValues:
    def test_a_weight_behind_read_identity_and_cast(self, use_resource):
        with tf.Graph().as_default(), v1.Session() as session:
            w = v1.get_variable("w", initializer=W.astype(np.float64), use_resource=use_resource)
            y = tf.matmul(tf.constant(X), tf.identity(tf.cast(w, tf.float32)))
            session.run(v1.global_variables_initializer())
            seen = []
            tool = amanda.Tool()
            tool.add_inst_for_op(
                lambda ctx: seen.append((ctx.value(0), ctx.value(1), ctx.weight_index)),
                ops=["MatMul"],
            )
            with amanda.apply(tool):
                session.run(y)
        ((x, weight, index),) = seen
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(weight, W)
        assert weight.dtype == np.float32
        assert index == 1


V1_PROGRAM = """
    import amanda, amanda_tensorflow
    import numpy as np
    import tensorflow.compat.v1 as tf
    tf.disable_v2_behavior()
    X, W = np.ones((3, 2), "f"), np.array([[1, -1], [2, 1]], "f")
    x = tf.placeholder(tf.float32, (None, 2))
    w = tf.get_variable("w", initializer=W)
    y = tf.matmul(x, w)
    step = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(y * y))

    class Scale(amanda.Tool):
        def __init__(self, pure):
            super().__init__()
            self.pure = pure
            self.add_inst_for_op(self.analyze, ops=["MatMul"])

        def analyze(self, ctx):
            self.factor = ctx.variable("factor", np.float32(2))
            ctx.insert_before_op(lambda w: w * self.factor, inputs=[1], pure=self.pure)

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for pure in (False, True):
            tool = Scale(pure)
            with amanda.apply(tool):
                np.testing.assert_allclose(session.run(y, {x: X}), 2 * X @ session.run(w))
                tool.factor.assign(np.float32(4))
                assert tool.factor.numpy() == 4
                np.testing.assert_allclose(session.run(y, {x: X}), 4 * X @ session.run(w))
                session.run(step, {x: X})
        np.testing.assert_allclose(session.run(y, {x: X}), X @ session.run(w))
"""


def test_a_program_of_version_1_that_never_runs_eagerly(interpreter):
    interpreter.run("-c", textwrap.dedent(V1_PROGRAM), check=True)


def test_a_variable_of_version_1_gets_its_first_value_under_tools_that_look_at_everything():
    class LookAtAll(amanda.Tool):
        def __init__(self):
            super().__init__()
            self.seen = {}
            self.add_inst_for_op(self.analyze, opt_in=True)

        def analyze(self, ctx):
            ctx.insert_before_op(self.look, key=("before", ctx.op.type))
            ctx.insert_after_op(self.look, key=("after", ctx.op.type))

        def look(self, *tensors, key):
            self.seen[key] = [None if t is None else t.numpy().tolist() for t in tensors]

    tool = LookAtAll()
    with tf.Graph().as_default(), v1.Session() as session:
        variable = v1.get_variable("v", initializer=[1.0, 2.0], use_resource=False)
        known = v1.is_variable_initialized(variable)
        with amanda.apply(tool):
            assert not session.run(known)
            session.run(variable.initializer)
            assert session.run(known)
            assert session.run(variable.assign_add([1.0, 1.0])).tolist() == [2.0, 3.0]
    assert tool.seen["after", "VariableV2"] == [None]
    assert tool.seen["before", "Assign"] == [None, [1.0, 2.0]]
    assert tool.seen["after", "Assign"] == [[1.0, 2.0]]
    assert tool.seen["before", "AssignAdd"] == [[1.0, 2.0], [1.0, 1.0]]


def test_what_is_exported_of_a_graph_is_to_the_byte_what_it_was_before_tools():
    with tf.Graph().as_default() as graph, v1.Session() as session:
        x = tf.tanh(tf.constant(X), name="x")
        before_tools = graph.as_graph_def().SerializeToString(deterministic=True)
        with amanda.apply(scale("Tanh", 2), scale("Tanh", 3, pure=True)):
            np.testing.assert_allclose(session.run(x), 6 * np.tanh(X), rtol=1e-6)
        with amanda.apply(scale("Tanh", 5)):
            session.run(x)
        assert graph.as_graph_def().SerializeToString(deterministic=True) == before_tools


def test_a_routine_may_return_the_handle_that_it_was_given(use_resource):
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=W, use_resource=use_resource)
        queue = tf.queue.FIFOQueue(1, [tf.float32], shapes=[[2, 2]])
        results = [v1.assign_add(w, W), queue.enqueue(W), queue.size()]
        session.run(w.initializer)
        with amanda.apply(Insert(FORWARD, None, same)):
            np.testing.assert_array_equal(session.run(results[0]), 2 * W)
            session.run(results[1])
            assert session.run(results[2]) == 1
