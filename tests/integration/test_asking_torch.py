"""Portable tools that need the forward side, held to plain references in PyTorch."""

import amanda
import pytest
import torch
from amanda.testing.probes import host_and_pure
from asking_tools import PHI, ChannelGate, ClippedBinary, Doubling, LearnedStep, W, X
from torch.nn import functional


def gradients(weight, gate=None):
    """Of a loss of a convolution, whose output may be scaled: the output, for x and for w."""
    x, w = torch.tensor(X, requires_grad=True), torch.tensor(W, requires_grad=True)
    y = functional.conv2d(x, weight(w))
    if gate is not None:
        y = y * gate(x)
    (y**2).sum().backward()
    return y.detach(), x.grad, w.grad


def under(tool, times=2):
    with amanda.apply(tool):
        for _ in range(times):
            found = gradients(lambda w: w)
    return found


@host_and_pure
def test_a_clipped_straight_through_estimator(pure):
    def binary(w):
        passed = w.clamp(-1, 1)
        return passed + (w.sign() - passed).detach()

    torch.testing.assert_close(under(ClippedBinary(pure)), gradients(binary))


def test_the_step_size_of_lsq_has_its_gradient():
    step = torch.tensor(0.4, requires_grad=True)

    def quantized(w):
        clipped = (w / step).clamp(-4, 3)
        return (clipped + (clipped.round() - clipped).detach()) * step

    plain = gradients(quantized)
    tool = LearnedStep(0.4, bits=3)
    torch.testing.assert_close(under(tool), plain)
    assert tool.gradients == [pytest.approx(step.grad.item(), rel=1e-5)] * 2


@host_and_pure
def test_the_channel_gate_of_fbs(pure):
    def gate(x):
        saliency = x.detach().abs().mean((2, 3)) @ torch.tensor(PHI)
        kept = saliency * 2 > saliency.amax(1, keepdim=True)
        return torch.where(kept, saliency, 0)[:, :, None, None]

    torch.testing.assert_close(under(ChannelGate(PHI, pure)), gradients(lambda w: w, gate))


@host_and_pure
def test_a_replacement_runs_the_operator_in_its_layout(pure):
    x, w = torch.tensor(X), torch.tensor(W)
    with amanda.apply(Doubling(pure)):
        found = functional.conv2d(x, w)
    torch.testing.assert_close(found, functional.conv2d(x, w * 2) + 1)
