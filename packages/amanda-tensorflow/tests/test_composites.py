"""Composites: tools of a vocabulary that has one operator for several nodes see that one.

The vocabulary here has a ``Gate`` for what TensorFlow computes as ``x * sigmoid(y)``.
"""

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.driving import Composite, Selection
from amanda.testing.packages import install
from amanda.testing.probes import Watch
from gates import Renamed, Tool
from tensorflow.compat import v1

X = np.array([-1.5, -0.2, 0.3, 2.0], np.float32)
Y = np.array([0.5, -1.0, 2.0, 0.1], np.float32)
UP = np.array([1.0, 2.0, -1.0, 3.0], np.float32)


class Gates:
    """A context map that finds gates, and leaves all other operators as they are."""

    def select(self, subscription, driver):
        types = subscription.types()
        native = None if types is None else types | {"gate"}
        return Selection(subscription, subscription.view, types, native)

    def translate(self, execution, driver):
        type = execution.operator.type
        return Renamed("Gate" if type == "gate" else type)

    def composites(self, graph, driver):
        found = []
        for name in graph.operators():
            if graph.type(name) != "Mul":
                continue
            data, gate = graph.inputs(name)
            if graph.type(gate[0]) == "Sigmoid":
                inputs = list(dict.fromkeys([data, *graph.inputs(gate[0])]))
                names = ["data", "gate"][: len(inputs)]
                found.append(Composite("gate", [gate[0], name], inputs, names, {}))
        return found


GATES = Gates()


@pytest.fixture(autouse=True)
def _installed(tmp_path, monkeypatch):
    """The map is announced as a package does it."""
    announced = f"[amanda.context_maps]\ntensorflow:gates = {__name__}:GATES\n"
    install(tmp_path, "gates", entry_points=announced)
    monkeypatch.syspath_prepend(tmp_path)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def swish(x):
    return x * sigmoid(x)


def swish_slope(x):
    return sigmoid(x) * (1 + x * (1 - sigmoid(x)))


def run(program, *tools, arguments=(X,)):
    """Results and gradients of a program under tools, computed in one function."""

    @tf.function
    def step(*arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            result = program(*arguments)
        return result, tape.gradient(result, arguments, tf.constant(UP))

    with amanda.apply(*tools):
        result, gradients = step(*map(tf.constant, arguments))
    return result.numpy(), [gradient.numpy() for gradient in gradients]


def gated(x, y):
    return x * tf.sigmoid(y)


def own_gate(x):
    return x * tf.sigmoid(x)


def doubled(*tensors):
    return [2 * t for t in tensors]


def test_a_tool_of_the_vocabulary_sees_one_operator_and_others_see_the_parts():
    one, native = Tool(), Tool(namespace=None, ops=["Mul"])
    run(own_gate, one, native)
    assert one.seen == ["Gate"]
    assert native.seen == ["Sigmoid", "Mul"]


def test_its_operator_has_the_scope_of_the_result_and_an_id_of_its_own():
    ids = []
    tool = Watch(lambda ctx: ids.append((ctx.op.id, ctx.op.scope)), namespace="gates")

    def program(x):
        with tf.name_scope("layer"):
            return own_gate(x)

    run(program, tool)
    assert ids == [("layer/Mul/gate", "layer")]


@pytest.mark.parametrize("pure", [False, True])
def test_routines_before_give_all_parts_what_they_return(pure):
    tool = Tool(insert_before_op=(doubled, {"pure": pure}))
    result, (gradient,) = run(own_gate, tool)
    np.testing.assert_allclose(result, swish(2 * X), rtol=1e-6)
    np.testing.assert_allclose(gradient, UP * swish_slope(2 * X), rtol=1e-6)


def test_routines_before_replace_one_of_two_inputs():
    tool = Tool(insert_before_op=(doubled, {"inputs": [1]}))
    result, (of_x, of_y) = run(gated, tool, arguments=(X, Y))
    gate = sigmoid(2 * Y)
    np.testing.assert_allclose(result, X * gate, rtol=1e-6)
    np.testing.assert_allclose(of_x, UP * gate, rtol=1e-6)
    np.testing.assert_allclose(of_y, UP * X * gate * (1 - gate), rtol=1e-6)


def test_what_is_put_before_is_for_the_parts_alone():
    def program(x):
        return own_gate(x) + x

    result, _ = run(program, Tool(insert_before_op=(doubled, {})))
    np.testing.assert_allclose(result, swish(2 * X) + X, rtol=1e-6)


@pytest.mark.parametrize("pure", [False, True])
def test_routines_after_give_the_rest_what_they_return(pure):
    tool = Tool(insert_after_op=(doubled, {"pure": pure}))
    result, (gradient,) = run(lambda x: tf.exp(own_gate(x)), tool)
    np.testing.assert_allclose(result, np.exp(2 * swish(X)), rtol=1e-5)
    np.testing.assert_allclose(gradient, UP * np.exp(2 * swish(X)) * swish_slope(X), rtol=1e-5)


@pytest.mark.parametrize("pure", [False, True])
def test_a_replacement_is_for_the_whole_and_keeps_its_gradient(pure):
    tool = Tool(replace_op=(lambda x: x + 1, {"pure": pure}))
    result, (gradient,) = run(own_gate, tool)
    np.testing.assert_allclose(result, X + 1, rtol=1e-6)
    np.testing.assert_allclose(gradient, UP * swish_slope(X), rtol=1e-6)


def test_a_replacement_of_what_another_tool_looks_into_is_refused():
    native = Tool(namespace=None, ops=["Sigmoid"], insert_after_op=(doubled, {}))
    with pytest.raises(amanda.UnsupportedError, match=r"cannot be replaced while Tool instruments"):
        run(own_gate, native, Tool(replace_op=(lambda x: x + 1, {})))


def test_both_kinds_of_tools_insert_together():
    native = Tool(namespace=None, ops=["Sigmoid"], insert_before_op=(lambda x: x + 1, {}))
    result, (gradient,) = run(own_gate, Tool(insert_before_op=(doubled, {})), native)
    gate = sigmoid(2 * X + 1)
    np.testing.assert_allclose(result, 2 * X * gate, rtol=1e-6)
    np.testing.assert_allclose(gradient, UP * (gate + 2 * X * gate * (1 - gate)), rtol=1e-6)


def test_native_routines_at_the_result_come_before_those_after_the_whole():
    native = Tool(namespace=None, ops=["Mul"], insert_after_op=(lambda y: y + 1, {}))
    result, _ = run(own_gate, Tool(insert_after_op=(doubled, {})), native)
    np.testing.assert_allclose(result, 2 * (swish(X) + 1), rtol=1e-6)


def test_its_gradient_is_that_of_the_whole():
    found = []

    def note(*gradients) -> None:
        found.extend(g.numpy() for g in gradients)

    run(lambda x: own_gate(x) + x, Tool(gradient=(note, {})))
    np.testing.assert_allclose(found, [UP * swish_slope(X)], rtol=1e-6)


@pytest.mark.parametrize("pure", [False, True])
def test_routines_on_its_gradient_replace_the_sum_of_what_its_parts_compute(pure):
    tool = Tool(gradient=(doubled, {"pure": pure}))
    _, (gradient,) = run(lambda x: own_gate(x) + x, tool)
    np.testing.assert_allclose(gradient, UP * (2 * swish_slope(X) + 1), rtol=1e-6)


def test_gradients_of_several_inputs_are_replaced_on_their_own():
    tool = Tool(gradient=(doubled, {"inputs": [1]}))
    _, (of_x, of_y) = run(gated, tool, arguments=(X, Y))
    gate = sigmoid(Y)
    np.testing.assert_allclose(of_x, UP * gate, rtol=1e-5)
    np.testing.assert_allclose(of_y, 2 * UP * X * gate * (1 - gate), rtol=1e-5)


def test_gradients_for_other_inputs_each_time_are_refused():
    @tf.function
    def step(x, y):
        with tf.GradientTape() as of_x, tf.GradientTape() as of_y:
            of_x.watch(x)
            of_y.watch(y)
            result = gated(x, y)
        return of_x.gradient(result, x), of_y.gradient(result, y)

    with (
        amanda.apply(Tool(gradient=(doubled, {}))),
        pytest.raises(amanda.UnsupportedError, match=r"'Mul(#\d+)?/gate' .*is taken several times"),
    ):
        step(tf.constant(X), tf.constant(Y))


def test_looking_changes_no_bit():
    def program(x):
        return own_gate(tf.sin(x)) + tf.exp(x) * own_gate(x)

    def same(*tensors):
        return tensors

    rng = np.random.default_rng(0)
    x = rng.standard_normal(4).astype(np.float32)
    plain = run(program, arguments=(x,))
    looked = run(
        program,
        Tool(insert_before_op=(same, {}), insert_after_op=(same, {}), gradient=(same, {})),
        Tool(namespace=None, ops=["Sigmoid", "Mul"], insert_after_op=(same, {})),
        arguments=(x,),
    )
    np.testing.assert_array_equal(looked[0], plain[0])
    np.testing.assert_array_equal(looked[1], plain[1])


def test_a_backward_function_of_its_own_has_the_gradient_of_the_whole():
    found = []

    def note(*gradients) -> None:
        found.extend(g.numpy() for g in gradients)

    call = tf.function(own_gate)
    x = tf.constant(X)
    tool = Tool(insert_before_op=(doubled, {}), gradient=(note, {}))
    with amanda.apply(tool), tf.GradientTape() as tape:
        tape.watch(x)
        result = call(x)
    with amanda.apply(tool):
        gradient = tape.gradient(result, x, tf.constant(UP))
    np.testing.assert_allclose(result, swish(2 * X), rtol=1e-6)
    np.testing.assert_allclose(gradient, UP * swish_slope(2 * X), rtol=1e-6)


def test_routines_see_the_order_of_the_program():
    order = []

    def noting(what):
        def note(*tensors) -> None:
            order.append(what)

        return note

    run(
        own_gate,
        Tool(
            insert_before_op=(noting("before"), {}),
            insert_after_op=(noting("after"), {}),
            gradient=(noting("gradient"), {}),
        ),
        Tool(namespace=None, ops=["Sigmoid"], insert_before_op=(noting("inside"), {})),
    )
    assert order == ["before", "inside", "after", "gradient"]


def test_a_session_runs_what_is_inserted_around_it():
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [4])
        y = own_gate(x)
        (gradient,) = tf.gradients(y, x, tf.constant(UP))
        with amanda.apply(Tool(insert_before_op=(doubled, {}), insert_after_op=(doubled, {}))):
            found = session.run([y, gradient], {x: X})
    np.testing.assert_allclose(found[0], 2 * swish(2 * X), rtol=1e-6)
    np.testing.assert_allclose(found[1], UP * swish_slope(2 * X), rtol=1e-6)


def test_operators_of_a_called_function_have_the_scope_that_it_is_called_in():
    scopes = []

    @tf.function
    def inner(x):
        with tf.name_scope("part"):
            return tf.sin(x)

    def program(x):
        with tf.name_scope("layer"):
            return tf.cos(inner(x))

    run(program, Watch(lambda ctx: scopes.append(ctx.op.scope), ["Sin", "Cos"]))
    assert sorted(scopes) == ["layer", "layer/part"]
