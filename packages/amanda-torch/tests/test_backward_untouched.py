"""S7 in the backward pass: tools that look at everything leave results and gradients alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import INSERTIONS, Insert, same
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from watching import GradientWatch, everything

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[[list[Tensor], int, int], Tensor | None]

X = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]]) / 8


def leaf(tensor: Tensor = X) -> Tensor:
    return tensor.clone().requires_grad_()


tools = pytest.mark.parametrize(
    "tools", [everything, lambda: (Insert(INSERTIONS, None, same),)], ids=["observing", "returning"]
)


# Programs that are put together at random

UNARY = [torch.sin, torch.relu, torch.tanh, torch.neg, lambda t: t * 2]
BINARY = [torch.add, torch.mul, lambda a, b: torch.cat([a, b])[1:3], torch.maximum]
VIEWS = [
    lambda t: t.view(3, 2).view(2, 3),
    lambda t: t.T.T,
    lambda t: t[:],
    lambda t: torch.stack(t.unbind()),
    lambda t: torch.cat(t.tensor_split(2)),
    lambda t: torch.cat(t.split(1)),
    lambda t: functional.dropout(t, 0.5, training=False),
    lambda t: t.contiguous(),
    lambda t: t.T.reshape(2, 3),
]
PARTS = [
    lambda t: t,
    lambda t: t[0],
    lambda t: t[:, 1:],
    lambda t: t.view(-1)[1:4],
    lambda t: t.tensor_split(2)[1],
    lambda t: t.T[1],
    lambda t: functional.dropout(t, 0.5, training=False),
]
WRITES = [
    lambda t: t.mul_(3),
    lambda t: t.relu_(),
    lambda t: t.add_(t.detach()),
    lambda t: t.copy_(X.view(-1)[0]),
]


def steps() -> st.SearchStrategy[Step]:
    def unary(f: Any) -> Step:
        return lambda pool, i, j: f(pool[i])

    def binary(f: Any) -> Step:
        return lambda pool, i, j: f(pool[i], pool[j])

    def write(part: Any, f: Any) -> Step:
        def step(pool: list[Tensor], i: int, j: int) -> None:
            f(part(pool[i]))

        return step

    return st.one_of(
        st.sampled_from(UNARY).map(unary),
        st.sampled_from(BINARY).map(binary),
        st.sampled_from(VIEWS).map(unary),
        st.builds(write, st.sampled_from(PARTS), st.sampled_from(WRITES)),
    )


programs = st.lists(st.tuples(steps(), st.integers(0, 9), st.integers(0, 9)), max_size=8)


def run(program: list[tuple[Step, int, int]]) -> tuple[list[Tensor], list[Tensor]]:
    a, b = leaf(), leaf(X + 1)
    pool = [a * 1, b * 1]
    for step, i, j in program:
        result = step(pool, i % len(pool), j % len(pool))
        if result is not None:
            pool.append(result)
    sum(tensor.square().sum() for tensor in pool).backward()
    return [tensor.detach() for tensor in pool], [a.grad, b.grad]


@tools
@settings(deadline=None, max_examples=75)
@given(program=programs)
def test_of_any_program(tools: Callable[[], tuple[amanda.Tool, ...]], program: Any) -> None:
    try:
        values, gradients = run(program)
    except RuntimeError:  # it writes to what its own gradient needs
        with pytest.raises((RuntimeError, amanda.RoutineError)), amanda.apply(*tools()):
            run(program)
        return
    with amanda.apply(*tools()):
        seen_values, seen_gradients = run(program)
    for seen, value in zip(seen_values, values, strict=True):
        assert torch.equal(seen, value)
    torch.testing.assert_close(seen_gradients, gradients, rtol=1e-6, atol=1e-6)


# Programs of kinds of their own


def norms() -> list[Tensor]:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.GroupNorm(2, 4),
        nn.Dropout(0.3, inplace=True),
        nn.Hardswish(inplace=True),
    )
    model(torch.randn(2, 2, 5, 5)).square().mean().backward()
    return [p.grad for p in model.parameters()] + list(model.buffers())


def recurrent() -> list[Tensor]:
    lstm, gru = nn.LSTM(3, 4, 2, bidirectional=True, dropout=0.3), nn.GRU(8, 2)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 2, 3), [5, 3])
    out, (h, _) = lstm(packed)
    y, _ = gru(nn.utils.rnn.pad_packed_sequence(out)[0])
    (y.sum() + h.square().sum()).backward()
    return [p.grad for p in [*lstm.parameters(), *gru.parameters()]]


def attention() -> list[Tensor]:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    x = torch.randn(2, 5, 8, requires_grad=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    layer(x, src_mask=mask).square().sum().backward()
    return [p.grad for p in layer.parameters()] + [x.grad]


def embedding() -> list[Tensor]:
    table = nn.Embedding(10, 3, sparse=True, max_norm=1.0)
    bag = nn.EmbeddingBag(10, 3, mode="sum")
    words = torch.tensor([[1, 2], [1, 5]])
    (table(words).sum() + bag(words).square().sum()).backward()
    return [table.weight.grad.to_dense(), bag.weight.grad, table.weight.detach()]


def complex_numbers() -> list[Tensor]:
    z = torch.randn(4, dtype=torch.cfloat, requires_grad=True)
    y = torch.fft.ifft(torch.fft.fft(z) * z.conj()).abs().sum() + z.imag.square().sum()
    y.backward()
    return [z.grad]


def mixed_precision() -> list[Tensor]:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(X)
        loss = functional.cross_entropy(y, torch.tensor([0, 1]))
    loss.backward()
    return [y.detach(), *(p.grad for p in model.parameters())]


def switched_off() -> list[Tensor]:
    x = leaf()
    with torch.no_grad():
        a = x * 2
        x.mul_(3)
    with torch.inference_mode():
        b = (x * 2).clone()
    (x.detach() * x + a).sum().backward()
    return [a, b.clone(), x.grad, x.detach()]


def assignment() -> list[Tensor]:
    x, y = leaf(), torch.zeros(4, 3)
    y[1:3] = x * 2
    y[0] += x[1]
    y[x.detach().new_tensor([3, 3]).long()] = x.sin()
    y.index_add_(0, torch.tensor([0, 1]), x)
    y.masked_fill_(y > 0.5, 0.25)
    (y * y).sum().backward()
    return [y.detach(), x.grad]


def parametrized() -> list[Tensor]:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    other = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))
    other(layer(X)).square().sum().backward()
    return [p.grad for p in [*layer.parameters(), *other.parameters()]]


def linear_algebra() -> list[Tensor]:
    a = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    spd = a @ a.T + torch.eye(3, dtype=torch.float64)
    u, s, _ = torch.linalg.svd(spd)
    loss = torch.linalg.solve(spd, u).abs().sum() + torch.logdet(spd) + s.prod()
    loss.backward()
    return [a.grad]


@tools
@pytest.mark.parametrize(
    "program",
    [
        norms,
        recurrent,
        attention,
        embedding,
        complex_numbers,
        mixed_precision,
        switched_off,
        assignment,
        parametrized,
        linear_algebra,
    ],
)
def test_of_a_program(program: Callable[[], list[Tensor]], tools: Any) -> None:
    torch.manual_seed(0)
    expected, random = program(), torch.get_rng_state()
    torch.manual_seed(0)
    with amanda.apply(*tools()):
        actual = program()
    assert torch.equal(torch.get_rng_state(), random)
    for one, other in zip(actual, expected, strict=True):
        assert torch.equal(one, other)


def test_a_gradient_of_gradients_has_the_right_value() -> None:
    """All numbers are integers: no order in which they are added makes a difference."""

    def run() -> list[Tensor]:
        torch.manual_seed(0)
        x, w = (torch.randint(-3, 4, (3, 3)).double().requires_grad_() for _ in range(2))
        first, second, third = (x @ w).unbind(0)
        y = torch.nn.functional.dropout(first * second * x + third, 0.5) * (x @ w)
        for part in y.split(2, 1):
            y = y + part.sum() * x
        grads = torch.autograd.grad((y * y).sum(), [x, w], create_graph=True)
        again = torch.autograd.grad(sum((g * g).sum() for g in grads), [x, w])
        return [*grads, *again]

    expected = run()
    assert all(torch.equal(grad, grad.round()) and grad.abs().max() < 2**50 for grad in expected)
    for tools in (everything(), (GradientWatch(),), (GradientWatch(["mul", "unbind"]),)):
        with amanda.apply(*tools):
            found = run()
        assert all(map(torch.equal, found, expected))
