"""S7 for operators of many kinds: what is only looked at gives the same bits.

Results, gradients, the random state and the arguments are compared with those of plain PyTorch,
with tools that look at all operators forward, backward and at their gradients as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Observe
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Callable


def spd(n: int) -> Tensor:
    """A symmetric positive definite matrix."""
    a = torch.randn(n, n)
    return a @ a.t() + n * torch.eye(n)


def numbers(*shapes: tuple[int, ...], **options: Any) -> Callable[[], list[Tensor]]:
    return lambda: [torch.randn(*shape, **options) for shape in shapes]


# A case is what is run, and what makes its arguments.
CASES: dict[str, tuple[Callable[..., Any], Callable[[], list[Tensor]]]] = {
    # convolutions, pooling, and moving patches around
    "conv1d": (lambda x, w: functional.conv1d(x, w, dilation=2), numbers((2, 3, 9), (4, 3, 3))),
    "conv2d grouped": (
        lambda x, w, b: functional.conv2d(x, w, b, groups=2, padding="same"),
        numbers((2, 4, 6, 6), (4, 2, 3, 3), (4,)),
    ),
    "conv3d": (functional.conv3d, numbers((1, 2, 4, 4, 4), (3, 2, 2, 2, 2))),
    "conv_transpose2d": (
        lambda x, w: functional.conv_transpose2d(x, w, stride=2, output_padding=1),
        numbers((1, 2, 4, 4), (2, 3, 3, 3)),
    ),
    "fold and unfold": (
        lambda x: functional.fold(functional.unfold(x, 3, padding=1).sin(), (5, 5), 3, padding=1),
        numbers((2, 2, 5, 5)),
    ),
    "unfold a dimension": (lambda x: x.unfold(1, 3, 2).sin(), numbers((2, 8))),
    "max_pool2d with indices": (
        lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2),
        numbers((1, 2, 4, 4)),
    ),
    "avg_pool2d": (lambda x: functional.avg_pool2d(x, 3, 2, 1), numbers((1, 2, 6, 6))),
    "adaptive_avg_pool2d": (
        lambda x: functional.adaptive_avg_pool2d(x, (2, 3)),
        numbers((1, 2, 5, 7)),
    ),
    "lp_pool2d": (lambda x: functional.lp_pool2d(x.abs(), 2, 2), numbers((1, 2, 4, 4))),
    "interpolate": (
        lambda x: [
            functional.interpolate(x, scale_factor=2, mode=mode)
            for mode in ("nearest", "bilinear", "bicubic", "area")
        ],
        numbers((1, 2, 4, 4)),
    ),
    "grid_sample": (
        lambda x, theta: functional.grid_sample(
            x, functional.affine_grid(theta, [1, 2, 4, 4], align_corners=False), align_corners=False
        ),
        numbers((1, 2, 4, 4), (1, 2, 3)),
    ),
    "pixel_shuffle": (lambda x: functional.pixel_shuffle(x, 2), numbers((1, 4, 3, 3))),
    "pad": (
        lambda x: [
            functional.pad(x, (1, 2), mode)
            for mode in ("constant", "reflect", "replicate", "circular")
        ],
        numbers((1, 2, 5)),
    ),
    # normalization, activation, attention, recurrent networks
    "norms": (
        lambda x: [
            functional.group_norm(x, 2),
            functional.instance_norm(x),
            functional.local_response_norm(x, 2),
            functional.layer_norm(x, (5,)),
            functional.normalize(x),
        ],
        numbers((2, 4, 5)),
    ),
    "rms_norm": (lambda x, w: functional.rms_norm(x, (5,), w), numbers((2, 5), (5,))),
    "diff": (lambda x: x.diff(), numbers((3, 4))),
    "activations": (
        lambda x: [
            f(x)
            for f in (
                functional.gelu,
                functional.mish,
                functional.hardswish,
                functional.softplus,
                functional.elu,
                functional.logsigmoid,
                functional.softshrink,
                functional.tanhshrink,
                functional.glu,
                functional.celu,
                functional.selu,
                functional.hardsigmoid,
            )
        ],
        numbers((3, 4)),
    ),
    "prelu": (functional.prelu, numbers((3, 4), (4,))),
    "softmax": (
        lambda x: [x.softmax(0), x.log_softmax(1), functional.softmin(x, 0), x.logsumexp(1)],
        numbers((3, 4)),
    ),
    "attention": (
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        numbers((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)),
    ),
    "lstm": (lambda x: nn.LSTM(4, 3, 2, bidirectional=True)(x), numbers((5, 2, 4))),
    "gru cell": (lambda x, h: nn.GRUCell(4, 3)(x, h), numbers((2, 4), (2, 3))),
    "embedding_bag": (
        lambda w: functional.embedding_bag(torch.tensor([1, 2, 4, 0]), w, torch.tensor([0, 2])),
        numbers((5, 3)),
    ),
    # losses and distances
    "ctc_loss": (
        lambda x: functional.ctc_loss(
            x.log_softmax(-1), torch.tensor([[1, 2], [2, 1]]), (6, 6), (2, 2)
        ),
        numbers((6, 2, 4)),
    ),
    "cross_entropy": (
        lambda x: functional.cross_entropy(x, torch.tensor([1, 0, 3]), label_smoothing=0.1),
        numbers((3, 4)),
    ),
    "cdist": (lambda a, b: [torch.cdist(a, b), torch.cdist(a, b, p=1)], numbers((3, 4), (5, 4))),
    "pdist": (functional.pdist, numbers((4, 3))),
    # linear algebra and transforms
    "einsum": (
        lambda a, b: [torch.einsum("bij,bjk->bik", a, b), torch.einsum("bij->bji", a)],
        numbers((2, 3, 4), (2, 4, 5)),
    ),
    "products": (
        lambda a, b: [a @ b, torch.outer(a[0], b[0]), torch.kron(a, b), torch.tensordot(a, b, 1)],
        numbers((3, 3), (3, 3)),
    ),
    "addmm and baddbmm": (
        lambda c, a, b: [torch.addmm(c, a[0], b[0]), torch.baddbmm(c, a, b, beta=0.5)],
        numbers((2, 2), (3, 2, 4), (3, 4, 2)),
    ),
    "svd": (lambda a: torch.linalg.svdvals(a), numbers((4, 3))),
    "solve": (lambda a, b: torch.linalg.solve(a, b), lambda: [spd(4), torch.randn(4, 2)]),
    "qr": (lambda a: list(torch.linalg.qr(a)), numbers((4, 3))),
    "cholesky": (lambda a: torch.linalg.cholesky(a @ a.t() + torch.eye(3)), numbers((3, 5))),
    "eigh": (lambda a: torch.linalg.eigvalsh(a + a.t()), numbers((4, 4))),
    "det and inv": (lambda a: [torch.linalg.slogdet(a)[1], torch.linalg.inv(a)], lambda: [spd(3)]),
    "matrix_exp": (torch.linalg.matrix_exp, numbers((3, 3))),
    "fft": (
        lambda x: [
            torch.fft.rfft(x).abs(),
            torch.fft.irfft(torch.fft.rfft(x)),
            torch.fft.fft2(x).real,
        ],
        numbers((4, 8)),
    ),
    "stft": (
        lambda x: torch.stft(x, 8, return_complex=True, window=torch.hann_window(8)).abs(),
        numbers((2, 32)),
    ),
    "complex": (
        lambda a, b: [(a * b.conj()).abs(), torch.view_as_real(a), a.real, a.imag.sin(), a.angle()],
        numbers((3, 4), (3, 4), dtype=torch.complex64),
    ),
    # indices
    "gather and scatter": (
        lambda x: [
            x.gather(1, torch.tensor([[0, 2], [1, 1]])),
            x.scatter(1, torch.tensor([[0], [2]]), 5.0),
            x.scatter_add(0, torch.tensor([[0, 1, 0]]), x[:1]),
            x.scatter_reduce(1, torch.tensor([[0, 0, 1], [1, 1, 1]]), x.sin(), "mean"),
        ],
        numbers((2, 3)),
    ),
    "indexing": (
        lambda x: [x[1:, None], x[..., 0], x[[0, 2]], x[x > 0], x[:, torch.tensor([1, 0])], x[::2]],
        numbers((3, 4)),
    ),
    "index_put_": (
        lambda x, y: (x * 1).index_put_((torch.tensor([0, 1, 0]),), y, accumulate=True),
        numbers((3, 4), (3, 4)),
    ),
    "setitem": (lambda x, y: _setitem(x * 1, y), numbers((3, 4), (4,))),
    "index operators": (
        lambda x: [
            x.index_select(0, torch.tensor([1, 1])),
            x.index_add(0, torch.tensor([0, 2]), x[:2]),
            x.index_fill(1, torch.tensor([0]), 3.0),
            x.masked_fill(x > 0, 0.0),
            x.masked_select(x > 0),
            x.take(torch.tensor([0, 5])),
            torch.where(x > 0, x, -x),
        ],
        numbers((3, 4)),
    ),
    "sorting": (
        lambda x: [*x.sort(1), x.argsort(0), *x.topk(2), *x.kthvalue(2), *x.median(1), *x.mode()],
        numbers((3, 4)),
    ),
    "sizes that depend on the data": (
        lambda x: [
            x.nonzero(),
            *(x > 0).unique(return_counts=True),
            x.detach().round().unique_consecutive(),
        ],
        numbers((3, 4)),
    ),
    # reductions and scans
    "reductions": (
        lambda x: [
            x.sum(0),
            x.mean(),
            x.prod(1),
            x.std(0),
            x.var(),
            x.norm(dim=1),
            x.amax(0),
            x.min(),
            *x.max(1),
            x.argmax(),
            *torch.aminmax(x),
            x.all(),
            torch.linalg.vector_norm(x, 3),
        ],
        numbers((3, 4)),
    ),
    "scans": (
        lambda x: [
            x.cumsum(0),
            x.cumprod(1),
            *x.cummax(0),
            x.logcumsumexp(1),
            torch.trapezoid(x),
        ],
        numbers((3, 4)),
    ),
    # views and copies
    "views": (
        lambda x: [
            x.t(),
            x.permute(1, 0),
            x.view(2, 6),
            x.reshape(-1),
            x.flatten(),
            x.unsqueeze(0),
            x.squeeze(),
            x.expand(2, 3, 4),
            x.narrow(0, 1, 2),
            x.diagonal(),
            x.contiguous(),
            x.movedim(0, 1),
            x.swapaxes(0, 1),
            x.to(torch.float32),
            x.view_as(x),
            x.unflatten(1, (2, 2)),
            x.as_strided((2, 2), (1, 2)),
            x.detach(),
            x[:],
            *x.split(2),
            *x.chunk(2),
            *x.unbind(),
        ],
        numbers((3, 4)),
    ),
    "copies": (
        lambda x: [
            x.clone(),
            x.repeat(2, 1),
            x.repeat_interleave(2, 0),
            x.roll(1, 0),
            x.flip(1),
            x.tile(2),
            x.tril(),
            torch.rot90(x),
            torch.stack([x, x]),
            torch.cat([x, x]),
            torch.block_diag(x, x),
            x.double(),
            x.half().float(),
            torch.atleast_3d(x),
            *torch.meshgrid(x[0], x[1], indexing="ij"),
        ],
        numbers((3, 4)),
    ),
    "arithmetic": (
        lambda x, y: [
            x + y,
            2 - x,
            x / y,
            x.detach() // y.detach(),
            x % y,
            x**2,
            y.abs() ** x,
            -x,
            x.lerp(y, 0.3),
            x.addcmul(x, y),
            torch.hypot(x, y),
            torch.atan2(x, y),
            torch.fmod(x, y),
            x.clamp(max=y),
            torch.heaviside(x.detach(), y.detach()),
            x == y,
            x > 0,
            (x > 0) & (y > 0),
            torch.logaddexp(x, y),
            torch.xlogy(x, y.abs()),
            x.copysign(y),
        ],
        numbers((3, 4), (3, 4)),
    ),
    "elementwise": (
        lambda x: [
            x.sin(),
            x.exp(),
            x.abs().log(),
            x.abs().sqrt(),
            x.erf(),
            x.tanh(),
            x.floor(),
            x.sign(),
            x.sinc(),
            x.lgamma(),
            x.digamma(),
            x.expm1(),
            x.rsqrt(),
            x.square(),
            x.frac(),
            torch.special.i0(x),
            torch.nan_to_num(x),
            x.sigmoid(),
            x.logit(0.1),
            x.deg2rad(),
        ],
        numbers((3, 4)),
    ),
    "in place": (
        lambda x, y: [
            (x * 1).add_(y).mul_(2).relu_(),
            (x * 1).sigmoid_(),
            (x * 1).copy_(y),
            (x * 1).unsqueeze_(0).transpose_(0, 1),
            (x * 1).fill_(2.0),
            (x * 1).clamp_(min=0.1).add_(1).sqrt_(),
            (x * 1).neg_().masked_fill_(x > 0, 1.0),
            _part_in_place(x * 1),
        ],
        numbers((3, 4), (3, 4)),
    ),
    "foreach": (
        lambda x, y: [*torch._foreach_add([x, y], 1.0), *torch._foreach_mul([x, y], [y, x])],
        numbers((3, 4), (3, 4)),
    ),
    # random numbers
    "dropout": (
        lambda x: [
            functional.dropout(x, 0.4),
            functional.dropout(x, training=False),
            functional.alpha_dropout(x, 0.3),
            functional.feature_alpha_dropout(x),
            functional.dropout1d(x, 0.5),
            functional.rrelu(x, training=True),
            functional.dropout(x * 1, 0.2, inplace=True),
            functional.gumbel_softmax(x),
        ],
        numbers((3, 4)),
    ),
    "random numbers": (
        lambda x: [
            torch.randn(3),
            torch.rand_like(x),
            torch.randint(5, (3,)),
            torch.randperm(4),
            x.sigmoid().bernoulli(),
            x.softmax(-1).multinomial(2),
            torch.normal(x, 1.0),
            torch.empty(3).normal_(),
            torch.empty(3).uniform_(),
            torch.empty(3).exponential_(),
            torch.poisson(x.abs()),
            torch.empty(3).bernoulli_(0.5),
        ],
        numbers((3, 4)),
    ),
}


CASES |= {
    loss.__name__: (loss, numbers((3, 4), (3, 4)))
    for loss in (
        functional.mse_loss,
        functional.l1_loss,
        functional.smooth_l1_loss,
        functional.huber_loss,
        functional.kl_div,
        functional.poisson_nll_loss,
        functional.binary_cross_entropy_with_logits,
        functional.cosine_similarity,
        functional.pairwise_distance,
    )
}


def _setitem(x: Tensor, y: Tensor) -> Tensor:
    x[1] = y
    x[:, 0] = 2.0
    x[x > 1] *= 2
    return x


def _part_in_place(x: Tensor) -> Tensor:
    x[0].mul_(2)
    x[:, 1:3].add_(x[:, 3:])
    return x


def bits(tensor: Tensor) -> tuple[Any, ...]:
    """All that can be told apart of a tensor."""
    value = tensor.detach().resolve_conj().resolve_neg()
    return (
        tensor.shape,
        tensor.dtype,
        tensor.stride(),
        tensor.requires_grad,
        tensor.is_leaf,
        value.numpy().tobytes(),
    )


def run_once(run: Callable[..., Any], make: Callable[[], list[Tensor]], *tools: amanda.Tool) -> Any:
    """Bits of the results, the gradients, the arguments and the random state."""
    torch.manual_seed(1)
    args = [t.requires_grad_() for t in make()]
    with amanda.apply(*tools):
        outputs = [t for t in tree_leaves(run(*args)) if isinstance(t, Tensor)]
        recorded = [t for t in outputs if t.requires_grad]
        grads = [torch.randn_like(t) for t in recorded]
        found = torch.autograd.grad(recorded, args, grads, allow_unused=True) if recorded else []
    return (
        [bits(t) for t in outputs],
        [None if g is None else bits(g) for g in found],
        [bits(t) for t in args],
        torch.get_rng_state().numpy().tobytes(),
    )


@pytest.mark.parametrize(("run", "make"), CASES.values(), ids=CASES)
@pytest.mark.filterwarnings("ignore")
def test_observed_bits_are_the_same(
    run: Callable[..., Any], make: Callable[[], list[Tensor]]
) -> None:
    plain = run_once(run, make)
    assert run_once(run, make) == plain
    assert run_once(run, make, Observe()) == plain
    assert run_once(run, make) == plain
