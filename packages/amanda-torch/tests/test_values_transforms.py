"""Values of tensors within transforms of ``torch.func``, which wrap them."""

import amanda
import pytest
import torch
from amanda.testing.probes import Watch
from torch.func import functionalize, grad, jacrev, jvp, vjp, vmap

X = torch.tensor([1.0, -2.0, 3.0])


class Looking(amanda.Tool):
    """A tool that keeps the values of the input and the output of ``relu``."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[list[float]] = []
        self.given: list[list[float]] = []
        self.add_inst_for_op(self.analyze, ops=["relu"])

    def analyze(self, ctx: amanda.OpContext) -> None:
        self.known.append(ctx.value(0).tolist())
        ctx.insert_after_op(self.look, numpy=ctx.numpy)

    def look(self, y, numpy) -> None:
        self.given.append(numpy(y).tolist())


def loss(x):
    return (torch.relu(x) * 2).sum()


@pytest.mark.parametrize(
    "run",
    [
        grad(loss),
        grad(lambda x: grad(loss)(x).sum() + loss(x.detach())),
        lambda x: vjp(loss, x)[1](torch.ones(())),
        lambda x: jvp(loss, (x,), (torch.ones(3),)),
        jacrev(lambda x: torch.relu(x)),
        functionalize(loss),
        lambda x: grad(functionalize(loss))(x),
    ],
    ids=["grad", "grad of grad", "vjp", "jvp", "jacrev", "functionalize", "nested"],
)
def test_what_a_transform_has_wrapped_has_its_value(run) -> None:
    expected = run(X)
    tool = Looking()
    with amanda.apply(tool):
        found = run(X)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert all(values == X.tolist() for values in tool.known)
    assert all(values == [1.0, 0.0, 3.0] for values in tool.given)
    assert tool.known
    assert tool.given


def test_what_was_written_to_a_view_under_functionalize_is_in_the_value() -> None:
    def program(x):
        x = x * 1
        x[1:].add_(5)
        return torch.relu(x)

    tool = Looking()
    with amanda.apply(tool):
        found = functionalize(program)(X)
    assert tool.known == [[1.0, 3.0, 8.0]]
    assert found.tolist() == [1.0, 3.0, 8.0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64])
def test_types_and_lazy_conjugates_are_as_elsewhere(dtype) -> None:
    values = []

    def look(ctx):
        ctx.insert_before_op(lambda t: values.append(ctx.numpy(t).tolist()))

    def program(x):
        return torch.sin(x.conj() if dtype.is_complex else x).abs().sum()

    x = torch.tensor([1.5, 2.0]).to(dtype) * (1j if dtype.is_complex else 1)
    with amanda.apply(Watch(look, "sin")):
        grad(program)(x)
    assert values == [[-1.5j, -2j] if dtype.is_complex else [1.5, 2.0]]


@pytest.mark.parametrize(
    "run", [vmap(torch.relu), lambda x: grad(lambda t: vmap(loss)(t).sum())(x)]
)
def test_one_of_a_batch_has_none_and_says_the_way_out(run) -> None:
    tool = Looking()
    no_value = pytest.raises(amanda.ValueUnavailableError, match="one of a batch under vmap")
    with no_value as caught, amanda.apply(tool):
        run(torch.ones(2, 3))
    assert "Looking: input 0 of 'relu" in str(caught.value)
    assert "ctx.xp" in str(caught.value)
    assert "without vmap" in str(caught.value)


def test_a_routine_under_vmap_is_told_so_too() -> None:
    analyze = lambda ctx: ctx.insert_after_op(lambda y: ctx.numpy(y))  # noqa: E731
    with (
        pytest.raises(amanda.RoutineError, match="one of a batch under vmap"),
        amanda.apply(Watch(analyze, "relu")),
    ):
        vmap(torch.relu)(torch.ones(2, 3))


def test_what_is_the_same_for_all_of_a_batch_has_its_value_under_vmap() -> None:
    tool = Looking()
    with amanda.apply(tool):
        vmap(lambda x: torch.relu(X) + x)(torch.ones(2, 3))
    assert tool.known == [X.tolist()]
    assert tool.given == [[1.0, 0.0, 3.0]]
