"""What JAX has beyond the suite: higher powers of gradients, batching, its own library."""

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


def test_a_derivative_of_a_substituted_gradient_passes_straight_through():
    """The gradient of x**3 times y is that of y**3: what stands for y has the derivative of y."""

    def first(y):
        return jax.vjp(lambda x: x**3, jnp.float32(2))[1](y)[0]

    with amanda.apply(Insert("insert_on_grad_outputs", "integer_pow", lambda g: g**3)):
        value, derivative = jax.value_and_grad(first)(jnp.float32(5))
    assert (value, derivative) == (12 * 5**3, 12)


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
