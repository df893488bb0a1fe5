"""What JAX has beyond the suite: loops, derivatives of derivatives, batching, threads."""

import threading

import amanda
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from amanda.testing.probes import Insert
from amanda_jax import instrument

with_and_without_jit = pytest.mark.parametrize(
    "transform", [lambda fun: fun, jax.jit], ids=["eager", "jit"]
)


def loop(x):
    return jax.lax.fori_loop(0, 4, lambda i, y: jnp.tanh(y), x)


@with_and_without_jit
def test_an_operator_in_a_loop_is_one_that_is_executed_in_each_turn(transform):
    ran = []
    tool = Insert("insert_before_op", "tanh", lambda x: ran.append(True))
    with amanda.apply(tool):
        result = transform(loop)(jnp.float32(0.5))
    assert len(tool.analyzed) == 1
    assert len(ran) == 4
    assert result == loop(jnp.float32(0.5))


@with_and_without_jit
def test_a_routine_that_fails_in_a_loop_is_named(transform):
    def fail(x):
        raise ZeroDivisionError("by hand")

    tool = Insert("insert_before_op", "tanh", fail)
    with amanda.apply(tool), pytest.raises(amanda.RoutineError, match="by hand"):
        transform(loop)(jnp.float32(0.5))
    assert np.isfinite(transform(loop)(jnp.float32(0.5)))


@with_and_without_jit
@pytest.mark.parametrize("insertion", ["insert_before_op", "insert_on_grad_outputs"])
def test_a_tool_that_looks_changes_no_derivative_of_a_derivative(transform, insertion):
    second = jax.grad(jax.grad(lambda x: jnp.tanh(x * x)))
    expected, seen = second(jnp.float32(0.5)), []
    with amanda.apply(Insert(insertion, "tanh", lambda t: seen.append(True))):
        result = transform(second)(jnp.float32(0.5))
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert seen


def test_a_derivative_of_a_substituted_gradient_passes_straight_through():
    """The gradient of x**3 times y is that of y**3: what stands for y has the derivative of y."""

    def first(y):
        return jax.vjp(lambda x: x**3, jnp.float32(2))[1](y)[0]

    with amanda.apply(Insert("insert_on_grad_outputs", "integer_pow", lambda g: g**3)):
        value, derivative = jax.value_and_grad(first)(jnp.float32(5))
    assert (value, derivative) == (12 * 5**3, 12)


@with_and_without_jit
def test_an_operator_without_tensors(transform):
    with amanda.apply(Insert("insert_after_op", "iota", lambda t: t + 1)):
        result = transform(lambda: jax.lax.iota(jnp.int32, 3))()
    np.testing.assert_array_equal(result, [1, 2, 3])


def test_a_host_routine_under_vmap_is_refused_and_a_pure_one_runs():
    def double(x):
        return x * 2

    x = jnp.arange(3.0)
    expected = jnp.tanh(2 * x)
    host = Insert("insert_before_op", "tanh", double)
    with amanda.apply(host), pytest.raises(amanda.UnsupportedError, match="pure=True"):
        jax.vmap(jnp.tanh)(x)
    with amanda.apply(Insert("insert_before_op", "tanh", double, pure=True)):
        np.testing.assert_array_equal(jax.vmap(jnp.tanh)(x), expected)


def test_what_another_thread_invalidates_is_traced_anew():
    tool = Insert("insert_before_op", "tanh", lambda x: x * 2)
    jitted = jax.jit(lambda x: jnp.tanh(x))
    with amanda.apply(tool):
        jitted(jnp.float32(1))
        jitted(jnp.float32(1))
        assert len(tool.analyzed) == 1
        thread = threading.Thread(target=tool.invalidate)
        thread.start()
        thread.join()
        jitted(jnp.float32(1))
    assert len(tool.analyzed) == 2


@with_and_without_jit
def test_a_cast_or_a_view_of_a_parameter_is_one(transform):
    found = []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: found.append(ctx.parameters), ops=["dot_general"])

    @transform
    @instrument
    def model(weight, x):
        return x.astype(jnp.bfloat16) @ weight.astype(jnp.bfloat16).T

    with amanda.apply(tool):
        model(jnp.ones((2, 3)), jnp.ones((4, 3)))
    assert found == [[1]]


def test_two_models_of_the_same_code_share_no_operator():
    ids = []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: ids.append(ctx.op.id), ops=["tanh"])
    models = [instrument(lambda parameters, x: jnp.tanh(x)) for _ in range(2)]
    with amanda.apply(tool):
        for _ in range(2):
            for model in models:
                model({}, jnp.float32(1))
    assert len(set(ids)) == len(ids) == 2


@with_and_without_jit
def test_functions_of_the_library_give_the_same_under_a_tool_that_looks_at_all(transform):
    def program(seed):
        first, second = jax.random.split(jax.random.key(seed))
        x = jax.random.normal(first, (4, 3)) * jax.random.uniform(second, (4, 3))
        y = jnp.where(x > 0, x, jnp.cumsum(x, axis=0)).sort(axis=0)
        return jax.nn.softmax(y), jnp.linalg.norm(x), jax.scipy.special.logsumexp(y), jnp.argmax(x)

    expected = transform(program)(3)
    types = []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: types.append(ctx.op.type))
    with amanda.apply(tool):
        found = transform(program)(3)
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.weak_type) == (other.dtype, other.weak_type)
        np.testing.assert_array_equal(one, other)
    assert {"select_n", "cumsum", "sort"} <= set(types)
