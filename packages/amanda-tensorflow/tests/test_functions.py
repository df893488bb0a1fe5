"""tf.function in all its ways of being called."""

import gc
import logging

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Count, Insert, after, before, replace, scale
from straight_through import assert_close, doubled_tanh, mask_and_double, masked_matmul
from tensorflow.python.eager import context

X = np.array([[1, 2], [3, 4]], np.float32)
W = np.array([[1, -1], [2, 1]], np.float32)


class TestArguments:
    def test_positional_keyword_and_composite(self):
        @tf.function
        def f(x, *more, scale=1.0, options=None):
            y = tf.matmul(x, options["w"]) * scale
            return {"y": y, "more": [tf.nn.relu(m) for m in more]}

        with amanda.apply(scale("MatMul", 2)):
            result = f(
                tf.constant(X), tf.constant([-1.0]), scale=3.0, options={"w": tf.constant(W)}
            )
        np.testing.assert_allclose(result["y"], 6 * X @ W)
        np.testing.assert_array_equal(result["more"][0], [0])

    def test_ragged_and_sparse_tensors(self):
        @tf.function
        def f(ragged, sparse):
            return tf.nn.relu(ragged.flat_values), tf.sparse.map_values(tf.nn.relu, sparse)

        with amanda.apply(scale("Relu", 2)):
            flat, sparse = f(
                tf.ragged.constant([[1.0, -2.0], [3.0]]),
                tf.SparseTensor([[1]], tf.constant([4.0]), [3]),
            )
        np.testing.assert_array_equal(flat, [2, 0, 6])
        np.testing.assert_array_equal(sparse.values, [8])

    def test_captured_tensors_and_variables(self):
        w, b = tf.Variable(W), tf.constant([1.0, 2.0])
        f = tf.function(lambda x: tf.matmul(x, w) + b)
        seen = {}
        tool = amanda.Tool()
        tool.add_inst_for_op(
            lambda ctx: seen.update({ctx.op.type: ctx.value(1)}), ops=["MatMul", "AddV2"]
        )
        with amanda.apply(tool):
            f(tf.constant(X))
        np.testing.assert_array_equal(seen["MatMul"], W)
        np.testing.assert_array_equal(seen["AddV2"], [1, 2])

    def test_a_concrete_function(self):
        f = tf.function(lambda x: tf.matmul(x, W)).get_concrete_function(tf.TensorSpec([None, 2]))
        with amanda.apply(scale("MatMul", 2)):
            np.testing.assert_allclose(f(tf.constant(X)), 2 * X @ W)

    def test_a_method_of_a_module(self):
        class Model(tf.Module):
            def __init__(self):
                super().__init__("model")
                self.w = tf.Variable(W)

            @tf.function
            def __call__(self, x):
                return tf.matmul(x, self.w)

        one, other = Model(), Model()
        count = Count("MatMul")
        with amanda.apply(count):
            one(tf.constant(X))
            other(tf.constant(X))
        assert sorted(count.counts) == ["MatMul", "MatMul#2"]

    def test_no_outputs_at_all(self):
        v = tf.Variable(1.0)

        @tf.function
        def f():
            v.assign_add(1.0)

        count = Count("AssignAddVariableOp")
        with amanda.apply(count):
            assert f() is None
        assert list(count.counts.values()) == [1]
        assert v.numpy() == 2


class TestIdentity:
    def test_retracing_does_not_change_ids(self):
        @tf.function
        def f(x, double=False):
            with tf.name_scope("layer"):
                y = tf.matmul(x, W)
            return y * 2 if double else y

        count = Count("MatMul")
        with amanda.apply(count):
            f(tf.constant(X))
            f(tf.constant(X[:1]))
            f(tf.constant(X), double=True)
        assert count.counts == {"layer/MatMul": 3}

    def test_an_operator_seen_by_two_functions_of_one_model(self):
        w = tf.Variable(W)

        def layer(x):
            with tf.name_scope("layer"):
                return tf.matmul(x, w)

        predict, evaluate = tf.function(layer), tf.function(lambda x: tf.reduce_sum(layer(x)))
        count = Count("MatMul")
        with amanda.apply(count):
            predict(tf.constant(X))
            evaluate(tf.constant(X))
        assert count.counts == {"layer/MatMul": 2}

    def test_an_operator_has_its_node(self):
        f = tf.function(lambda x: tf.matmul(x, W, transpose_b=True, name="product"))
        seen = []
        tool = amanda.Tool()
        tool.add_inst_for_op(lambda ctx: seen.append(ctx.op), ops=["MatMul"])
        with amanda.apply(tool):
            f(tf.constant(X))
        (operator,) = seen
        assert operator.type == "MatMul"
        assert operator.name == "product"
        assert operator.node_def.attr["transpose_b"].b


class TestOperators:
    def test_several_outputs_and_replacement(self):
        f = tf.function(lambda x: tf.linalg.qr(x))
        tool = replace("Qr", lambda x: (x * 2, x * 3))
        with amanda.apply(tool):
            q, r = f(tf.constant(X))
        np.testing.assert_array_equal(q, X * 2)
        np.testing.assert_array_equal(r, X * 3)

    def test_only_control_edges(self):
        @tf.function
        def f(x):
            with tf.control_dependencies([tf.debugging.assert_greater(x, -100.0)]):
                return tf.identity(x)

        count = Count("Assert")
        with amanda.apply(count):
            np.testing.assert_array_equal(f(tf.constant(X)), X)
        assert sum(count.counts.values()) <= 1

    def test_strings_and_integers(self):
        f = tf.function(lambda s: tf.strings.length(tf.strings.upper(s)))
        tool = after("StringUpper", lambda s: tf.strings.join([s, s]))
        with amanda.apply(tool):
            assert f(tf.constant("abc")).numpy() == 6


class TestGradients:
    @pytest.mark.parametrize("around", [True, False], ids=["tape around", "tape inside"])
    @pytest.mark.parametrize("index", [0, 1])
    def test_an_operator_that_takes_a_tensor_twice(self, around, index):
        product = tf.function(lambda x: tf.matmul(x, x))

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.matmul(x, x)
            return tape.gradient(y, x)

        x = tf.constant(X)
        tool = before("MatMul", lambda x: x * 3, inputs=[index])
        with amanda.apply(tool):
            if around:
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = product(x)
                actual = tape.gradient(y, x)
            else:
                actual = step(x)
        a, b = (3 * X, X) if index == 0 else (X, 3 * X)
        ones = np.ones((2, 2), np.float32)
        np.testing.assert_allclose(actual, ones @ b.T + a.T @ ones)

    def test_two_operators_of_one_scope_are_told_apart(self):
        @tf.function
        def f(x):
            with tf.GradientTape() as tape, tf.name_scope("scope"):
                tape.watch(x)
                a = tf.reshape(x, [4, 1])
                b = tf.reshape(a * a, [1, 4])
                y = tf.reduce_sum(b * [[1.0, 2.0, 3.0, 4.0]])
            return tape.gradient(y, x)

        shapes = {}

        def note(gradient, id):
            shapes[id] = tuple(gradient.shape)

        tool = amanda.Tool()
        tool.add_inst_for_op(
            lambda ctx: ctx.insert_before_backward_op(note, grad_outputs=[0], id=ctx.op.id),
            backward=True,
            ops=["Reshape"],
        )
        x = tf.constant(X)
        plain = f(x)
        with amanda.apply(tool):
            np.testing.assert_array_equal(f(x), plain)
        assert shapes["scope/Reshape"] == (4, 1)
        assert shapes["scope/Reshape#2"] == (1, 4)

    def test_a_custom_gradient_stays_as_it_is(self):
        @tf.custom_gradient
        def clipped(x):
            return tf.nn.relu(x), lambda dy: tf.clip_by_value(dy, -1.0, 1.0)

        x = tf.constant([2.0, -1.0])
        around = tf.function(lambda x: clipped(x) * 5.0)

        @tf.function
        def inside(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = clipped(x) * 5.0
            return tape.gradient(y, x)

        count = Count("Relu")
        with amanda.apply(count):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = around(x)
            np.testing.assert_array_equal(tape.gradient(y, x), [1, 1])
            np.testing.assert_array_equal(inside(x), [1, 1])
        assert sum(count.counts.values()) == 2

    def test_jacobians(self):
        w = tf.Variable(W)
        f = tf.function(lambda x: tf.tanh(tf.matmul(x, w)))
        x = tf.constant(X[:1] / 10)

        def jacobian():
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = f(x)
            return tape.jacobian(y, x)

        plain = jacobian()
        with amanda.apply(Count(["MatMul", "Tanh"])):
            np.testing.assert_allclose(jacobian(), plain, rtol=1e-6)

    def test_jacobians_with_a_substituted_weight(self):
        w, x = tf.Variable(W), tf.constant(X[:1] / 10)

        def jacobian(f, **options):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = f(x)
            return tape.jacobian(y, [x, w], **options)

        expected = jacobian(
            lambda x: doubled_tanh(masked_matmul(x, w)), experimental_use_pfor=False
        )
        f = tf.function(lambda x: tf.tanh(tf.matmul(x, w)))
        with amanda.apply(*mask_and_double(pure=False)):
            assert_close(jacobian(f, experimental_use_pfor=False), expected)
            assert_close(jacobian(f), expected)

    def test_the_gradient_of_a_gradient_with_a_substituted_weight(self):
        """For y = x * w, with w doubled, and the gradient x * 2 * y of the sum of y * y by w."""
        f = tf.function(lambda x, w: tf.reduce_sum(tf.square(x * w)))
        x, w = tf.constant([3.0, -1.0]), tf.constant([0.5, 2.0])
        tapes = tf.GradientTape(persistent=True), tf.GradientTape()
        with amanda.apply(before("Mul", lambda w: w * 2, inputs=[1])):
            with tapes[0], tapes[1]:
                for tape in tapes:
                    tape.watch([x, w])
                y = f(x, w)
                dw = tapes[1].gradient(y, w)
            found = tapes[0].gradient(dw, [x, w])
        assert_close(found, [2 * (2 * x * w) + x * 2 * (2 * w), 2 * x * x])

    def test_a_persistent_tape_that_is_asked_after_the_scope(self):
        f = tf.function(lambda x: tf.tanh(x))
        x = tf.constant([0.5])
        with amanda.apply(scale("Tanh", 2)), tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
        expected = 1 - np.tanh(0.5) ** 2
        for _ in range(2):
            np.testing.assert_allclose(tape.gradient(y, x), [expected], rtol=1e-6)

    def test_forward_mode(self):
        f = tf.function(lambda x: tf.tanh(x))
        x = tf.constant([0.5])
        with (
            amanda.apply(Count("Tanh")),
            tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator,
        ):
            y = f(x)
        np.testing.assert_allclose(accumulator.jvp(y), [1 - np.tanh(0.5) ** 2], rtol=1e-6)

    def test_sparse_gradients_of_embeddings(self):
        table = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2))

        @tf.function
        def step(indices):
            with tf.GradientTape() as tape:
                y = tf.reduce_sum(tf.gather(table, indices) ** 2)
            return tape.gradient(y, table)

        tool = Insert("insert_on_grad_outputs", "ResourceGather", lambda g: g * 10)
        with amanda.apply(tool):
            gradient = step(tf.constant([1, 3]))
        np.testing.assert_array_equal(gradient.values, 20 * table.numpy()[[1, 3]])


class TestXLA:
    def test_pure_routines_stay_compiled(self):
        f = tf.function(lambda x: tf.matmul(x, W), jit_compile=True)
        with amanda.apply(scale("MatMul", 2, pure=True)):
            np.testing.assert_allclose(f(tf.constant(X)), 2 * X @ W)

    def test_host_routines_take_it_off_with_a_note(self, caplog):
        f = tf.function(lambda x: tf.matmul(x, W), jit_compile=True)
        with caplog.at_level(logging.WARNING), amanda.apply(scale("MatMul", 2)):
            np.testing.assert_allclose(f(tf.constant(X)), 2 * X @ W)
            f(tf.constant(X))
        notes = [r for r in caplog.records if "without XLA" in r.message]
        assert len(notes) == 1

    def test_a_compiled_function_inside_another(self):
        inner = tf.function(lambda x: tf.matmul(x, W), jit_compile=True)
        outer = tf.function(lambda x: inner(inner(x)))
        for pure in (False, True):
            with amanda.apply(scale("MatMul", 2, pure=pure)):
                np.testing.assert_allclose(outer(tf.constant(X)), 4 * X @ W @ W)


class TestLargeArrays:
    def test_a_mask_of_four_megabytes_is_captured(self):
        mask = np.ones((1024, 1024), np.float32)
        mask[0] = 0
        w = tf.Variable(tf.ones((1024, 1024)))
        f = tf.function(lambda x: tf.matmul(x, w))
        tool = before("MatMul", lambda w: w * mask, inputs=[1], pure=True)
        with amanda.apply(tool):
            result = f(tf.ones((1, 1024)))
            names = [n for n in context.context().list_function_names() if "amanda" in n]
            sizes = [context.context().get_function_def(name).ByteSize() for name in names]
        np.testing.assert_array_equal(result, np.full((1, 1024), 1023))
        assert names
        assert max(sizes) < 100_000

    def test_in_a_session_too(self):
        mask = np.zeros((1024, 1024), np.float32)
        with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
            x = tf.compat.v1.placeholder(tf.float32, (1, 1024))
            y = tf.matmul(x, tf.ones((1024, 1024)))
            tool = before("MatMul", lambda w: w * mask, inputs=[1], pure=True)
            with amanda.apply(tool):
                assert not session.run(y, {x: np.ones((1, 1024))}).any()
            definitions = [function.definition for function in graph._functions.values()]
            assert max(d.ByteSize() for d in definitions) < 100_000


class TestScopes:
    def test_a_hundred_scopes_leave_nothing(self):
        f = tf.function(lambda x: tf.matmul(x, W))
        tool = scale("MatMul", 2)

        def run():
            with amanda.apply(tool):
                f(tf.constant(X))

        run()
        gc.collect()  # functions of other tests
        before = len(context.context().list_function_names())
        for _ in range(100):
            run()
        assert len(context.context().list_function_names()) == before

    def test_tools_that_decide_differently_every_time_do_not_pile_up(self):
        f = tf.function(lambda x: tf.matmul(x, W))
        counts = []
        for factor in range(40):
            with amanda.apply(scale("MatMul", float(factor), pure=True)):
                np.testing.assert_allclose(f(tf.constant(X)), factor * X @ W)
            if factor in (20, 39):
                gc.collect()
                counts.append(len(context.context().list_function_names()))
        assert counts[0] == counts[1]

    def test_a_function_traced_before_the_scope_and_one_traced_inside(self):
        before = tf.function(lambda x: tf.matmul(x, W))
        before(tf.constant(X))
        inside = tf.function(lambda x: tf.matmul(x, W))
        with amanda.apply(scale("MatMul", 2)):
            np.testing.assert_allclose(before(tf.constant(X)), 2 * X @ W)
            np.testing.assert_allclose(inside(tf.constant(X)), 2 * X @ W)
        np.testing.assert_allclose(inside(tf.constant(X)), X @ W)


class TestSavedModels:
    def test_a_module_saved_and_loaded(self, tmp_path):
        module = tf.Module()
        module.w = tf.Variable(W)
        module.f = tf.function(
            lambda x: tf.tanh(tf.matmul(x, module.w)), input_signature=[tf.TensorSpec([None, 2])]
        )
        tf.saved_model.save(module, tmp_path)
        loaded = tf.saved_model.load(tmp_path)
        x = tf.constant(X / 10)
        seen = []
        tool = amanda.Tool()
        tool.add_inst_for_op(lambda ctx: seen.append(ctx.value(1)), ops=["MatMul"])
        with amanda.apply(tool, scale("MatMul", 2)):
            np.testing.assert_allclose(loaded.f(x), np.tanh(2 * X / 10 @ W), rtol=1e-6)
        np.testing.assert_array_equal(seen, [W])

    def test_gradients_through_it(self, tmp_path):
        module = tf.Module()
        module.w = tf.Variable(W)
        module.f = tf.function(
            lambda x: tf.tanh(tf.matmul(x, module.w)), input_signature=[tf.TensorSpec([None, 2])]
        )
        tf.saved_model.save(module, tmp_path)
        loaded = tf.saved_model.load(tmp_path)
        x = tf.constant(X / 10)
        with amanda.apply(scale("Tanh", 2)), tf.GradientTape() as tape:
            tape.watch(x)
            y = loaded.f(x)
        t = np.tanh(X / 10 @ W)
        np.testing.assert_allclose(y, 2 * t, rtol=1e-6)
        np.testing.assert_allclose(tape.gradient(y, x), (1 - t * t) @ W.T, rtol=1e-5)


REPLICAS = """
import amanda, amanda_tensorflow
import tensorflow as tf
from amanda.testing.probes import Count, Record, Watch, after

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
x = tf.constant([[3.0]])
multiply = tf.function(lambda x: tf.matmul(x, x))

def replica():
    first = multiply(x)
    tf.distribute.get_replica_context().merge_call(lambda strategy: None)
    return first + multiply(x)

def run():
    return [value.numpy().item() for value in strategy.run(replica).values]

with amanda.apply(after("MatMul", lambda y: y.numpy() * 10)):
    under = run()
    with amanda.disabled():
        disabled = run()
print("eager", under, disabled, run())

with strategy.scope():
    w = tf.Variable([[2.0]])
runs = []

@tf.function
def step(x):
    def replica(x):
        with tf.GradientTape() as tape:
            y = tf.matmul(x, w)
        gradient = tape.gradient(y, w)
        w.assign_sub(tf.distribute.get_replica_context().all_reduce("sum", gradient))
        return y
    return strategy.reduce("sum", strategy.run(replica, args=(x,)), axis=None)

with amanda.apply(after("MatMul", lambda y: runs.append(y.numpy().item()) or y * 10)):
    print("function", step(x).numpy().item(), runs, w.numpy().item())
count = Count()
with amanda.apply(count):
    print("all", step(x).numpy().item(), sum(count.counts.values()) > 10)

@tf.function
def reduced(x):
    def replica(x):
        with tf.GradientTape() as tape:
            y = tf.tanh(tf.matmul(x, w))
            y = tf.sigmoid(tf.distribute.get_replica_context().all_reduce("sum", y) * w)
        return tape.gradient(y, w)
    return strategy.reduce("sum", strategy.run(replica, args=(x,)), axis=None)

w.assign([[0.5]])
x = tf.constant([[1.0]])
seen, gradients = Record(["Tanh", "Sigmoid"]), Watch(str, ["Tanh", "Sigmoid"], gradient=True)
with amanda.apply(after("MatMul", lambda y: y * 2, pure=True), seen, gradients):
    gradient = reduced(x).numpy().item()
print("reduced", round(gradient, 4), sorted(seen.ran), sorted(gradients.analyzed))
"""


@pytest.fixture(scope="module")
def replicas(interpreter):
    """What is printed in a process with two logical devices, by the kind of program."""
    printed = interpreter.run("-c", REPLICAS, check=True).stdout
    return dict(line.split(maxsplit=1) for line in printed.splitlines())


def test_replicas_of_an_eager_strategy_run_under_the_tools_of_who_starts_them(replicas):
    assert replicas["eager"] == "[180.0, 180.0] [18.0, 18.0] [18.0, 18.0]"


def test_two_replicas_on_two_logical_devices(replicas):
    assert replicas["function"] == "120.0 [6.0, 6.0] -4.0"


def test_replicas_that_wait_for_one_another_are_not_kept_in_the_order_of_the_program(replicas):
    assert replicas["all"] == "-24.0 True"


def test_what_a_replica_builds_while_another_one_waits_is_forward_code_all_the_same(replicas):
    operators = ["Sigmoid", "Tanh", "replica_1/Sigmoid", "replica_1/Tanh"]
    y = np.tanh(2 * 0.5)  # each of the two replicas gives one
    slope = 1 / (1 + np.exp(-2 * y * 0.5))
    slope *= 1 - slope
    # of the product by the weight; and of the sum, whose gradient is the sum of both replicas'
    gradient = 2 * (slope * 2 * y + 2 * slope * 0.5 * (1 - y * y))
    assert replicas["reduced"] == f"{gradient:.4f} {operators} {operators}"
