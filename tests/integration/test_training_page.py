"""What "Training with tools" prints, on both backends, held to plain references in PyTorch."""

import keras_process
import numpy as np
import pages
import pytest
import torch

PAGE = "docs/training-with-tools.md"
SHOWN = "".join(block for language, block in pages.blocks(PAGE) if not language)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_the_page_prints_what_it_shows(backend, tmp_path):
    script = tmp_path / "training.py"
    script.write_text(pages.program(PAGE))
    printed = keras_process.run(backend, script)
    assert pages.alike(printed, SHOWN), printed


def straight(exact, substitute):
    """The substitute, whose gradient goes to what it stands for."""
    return exact + (substitute - exact).detach()


class Reference:
    """The page's model and training, written out.

    Args:
        of_weight: what the model computes with in place of a weight, given it and the step.
        activation: what comes after the first layer.
    """

    def __init__(self, of_weight=lambda weight, step: weight, activation=torch.relu):
        rng = np.random.default_rng(0)
        self.x = torch.tensor(rng.standard_normal((64, 8)).astype("float32"))
        self.y = torch.tanh(self.x[:, :3].sum(1, keepdim=True))
        shapes = ((8, 16), (16,), (16, 1), (1,))
        initial = [(rng.standard_normal(s) * 0.5).astype("float32") for s in shapes]
        self.parameters = [torch.tensor(p, requires_grad=True) for p in initial]
        self.of_weight, self.activation = of_weight, activation
        self.norms = []

    def loss(self, step=0):
        kernel, bias, last, offset = self.parameters
        hidden = self.activation(self.x @ self.of_weight(kernel, step) + bias)
        return ((hidden @ self.of_weight(last, step) + offset - self.y) ** 2).mean()

    def trained(self, steps=20):
        for step in range(steps):
            loss = self.loss(step)
            gradients = torch.autograd.grad(loss, self.parameters)
            self.norms.append([float(gradients[i].norm()) for i in (0, 2)])
            with torch.no_grad():
                for parameter, gradient in zip(self.parameters, gradients, strict=True):
                    parameter -= 0.1 * gradient
        return loss.item()


def assert_shown(text):
    """Whether the page shows a line that begins with a text, up to the last digits."""
    assert any(pages.alike(line[: len(text)], text) for line in SHOWN.splitlines()), text


def test_plain():
    assert_shown(f"plain {Reference().trained():.4f}")


def test_quantized_weights_are_learned_straight_through():
    reference = Reference(lambda w, step: straight(w, torch.round(w / 0.25) * 0.25))
    assert_shown(f"quantized {reference.trained():.4f}")
    assert_shown(f"evaluated as trained {reference.loss():.4f}")
    reference.of_weight = lambda w, step: w
    assert_shown(f"evaluated without the tool {reference.loss():.4f}")


def test_weights_beyond_a_limit_get_no_gradient():
    def clipped(weight, step):
        within = weight.clamp(-0.75, 0.75)
        return straight(within, torch.round(within / 0.25) * 0.25)

    assert_shown(f"clipped {Reference(clipped).trained():.4f}")


@pytest.mark.parametrize("frozen", [False, True])
def test_pruned_weights_move_unless_their_gradient_is_masked(frozen):
    masks = {p.shape: p.abs() >= p.detach().abs().quantile(0.5) for p in Reference().parameters}

    def masked(weight, step):
        mask = masks[weight.shape]
        return weight * mask if frozen else straight(weight, weight * mask)

    reference = Reference(masked)
    kernel = reference.parameters[0]
    before = kernel.detach().clone()
    loss = reference.trained()
    moved = (kernel - before).abs()[~masks[kernel.shape]].max().item()
    assert_shown(f"pruned, frozen={frozen}: {loss:.4f}, pruned weights moved by {moved:.3f}")


def cut(x):
    y = torch.relu(x)
    return torch.where(y < y.mean(), torch.zeros_like(y), y)


@pytest.mark.parametrize(
    ("how", "activation"),
    [
        ("insert_after_op", lambda x: straight(torch.relu(x), cut(x))),
        ("replace_op", lambda x: straight(torch.relu(x), cut(x))),
        ("insert_before_op", lambda x: torch.relu(straight(x, cut(x)))),
    ],
)
def test_a_change_is_learned_by_where_it_is_made(how, activation):
    assert_shown(f"{how:16} {Reference(activation=activation).trained():.4f}")


def test_norms_of_gradients():
    reference = Reference()
    reference.trained(3)
    for layer, norms in zip(("hidden", "out"), zip(*reference.norms, strict=True), strict=True):
        assert_shown(" ".join([layer, *(f"{norm:.3f}" for norm in norms)]))


def test_a_threshold_that_rises():
    def pruned(weight, step):
        zero = torch.zeros_like(weight)
        return straight(weight, torch.where(weight.abs() < 0.04 * step, zero, weight))

    assert_shown(f"gradually {Reference(pruned).trained(10):.4f}")


def prune(probabilities):
    return torch.where(probabilities < 0.15, torch.zeros_like(probabilities), probabilities)


def all_of_it(query, key, value):
    return (query @ key.mT / 2).softmax(-1) @ value


def replaced(query, key, value):
    pruned = prune((query @ key.mT / 2).softmax(-1)) @ value
    return straight(all_of_it(query, key, value), pruned)


def changed(query, key, value):
    probabilities = (query @ key.mT / 2).softmax(-1)
    return straight(probabilities, prune(probabilities)) @ value


def attentive(attention):
    """The loss in the last of 20 steps of the page's model with attention."""
    rng = np.random.default_rng(0)
    for shape in ((64, 8), (8, 16), (16,), (16, 1), (1,)):  # drawn before, on the page
        rng.standard_normal(shape)
    x = torch.tensor(rng.standard_normal((16, 6, 8)).astype("float32"))
    y = x[:, :, 0].mean(1, keepdim=True)
    rng = np.random.default_rng(1)
    shapes = [(8, 2, 4), (2, 4)] * 3 + [(2, 4, 8), (8,), (8, 1), (1,)]
    initial = [(0.5 * rng.standard_normal(shape)).astype("float32") for shape in shapes]
    parameters = [torch.tensor(p, requires_grad=True) for p in initial]
    for _ in range(20):
        *projections, out, offset, last, bias = parameters
        heads = [
            torch.einsum("btf,fhd->bhtd", x, kernel) + shift[:, None]
            for kernel, shift in zip(projections[::2], projections[1::2], strict=True)
        ]
        states = torch.einsum("bhtd,hdf->btf", attention(*heads), out) + offset
        loss = ((states.mean(1) @ last + bias - y) ** 2).mean()
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= 0.02 * gradient
    return loss.item()


def test_attention_is_learned_by_how_it_is_pruned():
    plain, whole, parts = map(attentive, (all_of_it, replaced, changed))
    assert len({round(loss, 3) for loss in (plain, whole, parts)}) == 3
    assert_shown(f"attention, fused or not: {plain:.4f} {plain:.4f}")
    assert_shown(f"replaced as a whole: {whole:.4f}")
    assert_shown(f"changed after the Softmax: {parts:.4f}")
