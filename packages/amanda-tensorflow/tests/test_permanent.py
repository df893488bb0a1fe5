"""What a tool makes of parameters, written to variables, of functions and of sessions."""

import amanda
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.adapter import numbers
from amanda.testing.probes import before, under

# Their products are exact: the runtime may choose another kernel where a tool is not in between.
X = numbers(2, 3)
W = numbers(4, 3, seed=1)


def halving():
    return before("MatMul", lambda w: w * 0.5, inputs=[1], pure=True)


VIEWS = {
    "transposed": lambda w: tf.transpose(w),
    "sliced": lambda w: tf.transpose(w[1:]),
    "split": lambda w: tf.transpose(tf.split(w, 2)[1]),
    "unstacked": lambda w: tf.transpose(tf.unstack(tf.reshape(w, (2, 2, 3)))[1]),
    "squeezed": lambda w: tf.transpose(tf.squeeze(tf.expand_dims(w, 0), 0)),
    "cast": lambda w: tf.cast(tf.cast(tf.transpose(w), tf.float64), tf.float32),
}


@pytest.mark.parametrize("seen", VIEWS.values(), ids=VIEWS)
def test_a_variable_that_is_given_in_another_form_is_written_where_it_is(seen):
    variable = tf.Variable(W)
    run = tf.function(lambda: tf.matmul(X, seen(variable)))
    tool = halving()
    expected = under(tool, run).numpy()
    tool.make_permanent([variable])
    assert run().numpy().tobytes() == expected.tobytes()
    changed = variable.numpy() != W
    assert changed.any()
    assert (variable.numpy()[changed] == W[changed] * 0.5).all()


def test_a_form_that_depends_on_the_call_is_refused():
    variable = tf.Variable(W)
    run = tf.function(lambda shape: tf.matmul(X, tf.reshape(variable, shape)))
    tool = halving()
    under(tool, lambda: run(tf.constant([3, 4])))
    with pytest.raises(amanda.UnsupportedError, match=r"MatMul.*variable through Reshape"):
        tool.make_permanent([variable])
    assert variable.numpy().tobytes() == W.tobytes()


def test_what_a_lower_type_is_given_is_what_it_can_hold():
    variable = tf.Variable(W.T)
    run = tf.function(lambda: tf.matmul(tf.cast(X, tf.bfloat16), tf.cast(variable, tf.bfloat16)))
    tool = before("MatMul", tf.sign, inputs=[1], pure=True)
    expected = under(tool, run)
    tool.make_permanent([variable])
    assert variable.dtype == tf.float32
    assert variable.numpy().tobytes() == np.sign(W.T).tobytes()
    assert run().numpy().tobytes() == expected.numpy().tobytes()


class Layer(tf.Module):
    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(W.T)

    @tf.function
    def __call__(self):
        return tf.matmul(X, self.weight)


def test_a_module_is_asked_for_its_variables_and_only_those_are_written():
    model, other, tool = Layer(), Layer(), halving()
    expected = under(tool, lambda: (other(), model()))[1].numpy()
    tool.make_permanent(model)
    assert model().numpy().tobytes() == expected.tobytes()
    assert other.weight.numpy().tobytes() == W.T.tobytes()


@pytest.mark.parametrize("use_resource", [True, False])
def test_a_session_needs_no_new_node_of_a_finalized_graph(use_resource):
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        variable = tf.compat.v1.get_variable("w", initializer=W, use_resource=use_resource)
        moment = tf.compat.v1.get_variable("m", initializer=W + 1, use_resource=use_resource)
        output = tf.matmul(X, tf.transpose(variable))
        session.run(tf.compat.v1.global_variables_initializer())
        graph.finalize()
        tool = halving()
        expected = under(tool, lambda: session.run(output))
        tool.make_permanent(session)
        assert session.run(output).tobytes() == expected.tobytes()
        assert session.run(variable).tobytes() == (W * 0.5).tobytes()
        assert session.run(moment).tobytes() == (W + 1).tobytes()


def test_what_is_no_model_is_named():
    tool, model = halving(), Layer()
    under(tool, model)
    with pytest.raises(amanda.AmandaError, match="no parameter of this dict"):
        tool.make_permanent({"weight": model.weight})


def test_what_a_lower_type_is_given_as_it_was_keeps_its_digits():
    held = tf.Variable(W.T + 1 / 3)
    run = tf.function(lambda: tf.matmul(tf.cast(X, tf.float16), tf.cast(held, tf.float16)))
    before_it = held.numpy()
    cut = before("MatMul", lambda w: w * tf.cast(w > 0, w.dtype), inputs=[1])
    expected = under(cut, run)
    cut.make_permanent([held])
    np.testing.assert_array_equal(held.numpy(), np.where(before_it > 0, before_it, 0))
    assert run().numpy().tobytes() == expected.numpy().tobytes()


def test_where_it_is_refused_a_variable_has_the_digits_that_it_had():
    held = tf.Variable(W.T + 1 / 3)
    run = tf.function(lambda: tf.matmul(tf.cast(X, tf.float16), tf.cast(held, tf.float16)))
    tool, before_it = before("MatMul", lambda w: w * 0.5, inputs=[1]), held.numpy()
    tool.add_inst_for_op(lambda ctx: None, ops=["Cast"])
    under(tool, run)
    with pytest.raises(amanda.UnsupportedError, match="cannot hold"):
        tool.make_permanent([held])
    assert held.numpy().tobytes() == before_it.tobytes()


def test_a_routine_may_return_arrays_and_variables_and_the_next_one_is_given_tensors():
    held, kinds = tf.Variable(W.T), []
    run = tf.function(lambda: tf.matmul(X, held))
    tool = before("MatMul", lambda w: w.numpy() * np.float32(2), inputs=[1])
    for routine in (lambda w: kinds.append(tf.is_tensor(w)), lambda w: tf.Variable(w * 2)):
        tool.add_inst_for_op(
            lambda ctx, routine=routine: ctx.insert_before_op(routine, inputs=[1]), ops=["MatMul"]
        )
    tool.add_inst_for_op(
        lambda ctx: ctx.insert_before_op(lambda w: kinds.append(ctx.numpy(w).sum()), inputs=[1]),
        ops=["MatMul"],
    )
    assert under(tool, run).numpy().tobytes() == (X @ W.T * 4).tobytes()
    assert kinds == [True, (W * 4).sum()]
    tool.make_permanent([held])
    assert held.numpy().tobytes() == (W.T * 4).tobytes()


TABLE = tf.Variable(W.T)  # of three rows


@tf.function
def tied():
    table = tf.convert_to_tensor(TABLE)
    return tf.matmul(tf.gather(table, [0, 2]), table, transpose_b=True)


@tf.function
def looked_up_by_handle():
    return tf.matmul(tf.nn.embedding_lookup(TABLE, [0, 2]), TABLE, transpose_b=True)


@tf.function
def multiplied_twice():
    with tf.GradientTape() as tape:
        with tf.name_scope("one"):
            y = tf.matmul(X, TABLE)
        with tf.name_scope("two"):
            y = tf.matmul(y, TABLE, transpose_b=True)
    return tape.gradient(y, TABLE)


@pytest.mark.parametrize(
    ("run", "type", "scopes", "named"),
    [
        (tied, "MatMul", None, r"\(GatherV2\) takes .*MatMul"),
        (tied, "GatherV2", None, r"\(MatMul\) takes .*Gather"),
        (looked_up_by_handle, "MatMul", None, r"\(ResourceGather\) takes .*MatMul"),
        (multiplied_twice, "MatMul", ["one"], r"two/MatMul \(MatMul\) takes .*one"),
    ],
    ids=["product", "lookup", "product_of_what_a_handle_looks_up", "one_of_two_products"],
)
def test_a_variable_that_is_taken_where_the_tool_has_not_looked_stays(run, type, scopes, named):
    tool, held = amanda.Tool(), TABLE.numpy()
    tool.add_inst_for_op(
        lambda ctx: ctx.insert_before_op(lambda w: w * 0.5, inputs=list(ctx.parameters)),
        ops=[type],
        scopes=scopes,
    )
    under(tool, run)
    with pytest.raises(amanda.UnsupportedError, match=named):
        tool.make_permanent([TABLE])
    assert TABLE.numpy().tobytes() == held.tobytes()


def test_a_product_that_a_session_has_not_run_does_not_count():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("w", initializer=W.T)
        trained, evaluated = tf.matmul(X, variable), tf.matmul(X * 2, variable)
        session.run(variable.initializer)
        tool = halving()
        expected = under(tool, lambda: session.run(trained))
        tool.make_permanent(session)
        np.testing.assert_array_equal(session.run(trained), expected)
        np.testing.assert_array_equal(session.run(evaluated), expected * 2)


@tf.function
def multiplied_for_many():
    return tf.vectorized_map(lambda row: tf.tanh(tf.matmul(row[None], TABLE)), X)


@pytest.mark.parametrize("run", [tied, multiplied_for_many])
def test_a_variable_that_all_who_take_it_are_given_changed_is_written(run):
    held, tool = TABLE.numpy(), amanda.Tool()
    tool.add_inst_for_op(
        lambda ctx: ctx.insert_before_op(lambda w: w * 0.5, inputs=list(ctx.parameters)),
        ops=["MatMul", "GatherV2"],
    )
    expected = under(tool, run)
    tool.make_permanent([TABLE])
    assert run().numpy().tobytes() == expected.numpy().tobytes()
    TABLE.assign(held)
