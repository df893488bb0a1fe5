"""What routines at modules change: results, gradients, and what else a module does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
import transformers
from amanda.testing.modules import AtModules, inserting
from small_transformers import small
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.randn(2, 3)
W = torch.arange(1.0, 7.0).reshape(2, 3)

# Modules that return what they are given, a view of that, or write to it


class Shift(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x[:, 0] = x[:, 1] * 3
        return x


class Negate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.neg_()


class NegateAndView(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.neg_().flatten()


LINKED = {
    "identity": nn.Identity(),
    "dropout": nn.Dropout().eval(),
    "view": nn.Flatten(),
    "views": nn.Sequential(nn.Identity(), nn.Unflatten(1, (3, 1)), nn.Flatten()),
    "in place": Negate(),
    "into a view": Shift(),
    "in place, viewed": NegateAndView(),
}
USES: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "both": lambda module, x: module(x).square().sum() + (x**3).sum(),
    "result written": lambda module, x: module(x).mul_(2).mean() + (x * W).sum(),
    "input written": lambda module, x: module(x).mean() + (x.mul_(2) * W).sum(),
    "result dropped": lambda module, x: (module(x), (x**3).sum())[1],
}


def gradients(
    module: nn.Module, use: Callable[[nn.Module, Tensor], Tensor], *tools: amanda.Tool
) -> list[Tensor]:
    x = X.clone().requires_grad_()
    with amanda.apply(*tools):
        loss = use(module, x * W)
        loss.backward()
    assert x.grad is not None
    return [loss.detach(), x.grad]


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("module", LINKED.values(), ids=LINKED)
@pytest.mark.parametrize("at", ["insert_on_grad_outputs", "insert_on_grad_inputs"])
def test_a_watched_result_stays_linked_to_what_the_module_was_given(
    module: nn.Module, use: Callable[[nn.Module, Tensor], Tensor], at: str
) -> None:
    tool = inserting(at, lambda *grads: None, type(module).__name__)
    for found, plain in zip(
        gradients(module, use, tool), gradients(module, use), strict=True
    ):  # where both are one tensor its gradients are added up in another order
        torch.testing.assert_close(found, plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("module", LINKED.values(), ids=LINKED)
def test_its_gradients_are_seen_and_may_be_replaced(module: nn.Module) -> None:
    def use(module: nn.Module, x: Tensor) -> Tensor:
        return module(x).sum()

    tool = inserting("insert_on_grad_outputs", lambda grad: grad * 2, type(module).__name__)
    doubled, plain = gradients(module, use, tool)[1], gradients(module, use)[1]
    assert torch.equal(doubled, plain * 2)
    tool = inserting("insert_on_grad_inputs", lambda grad: grad * 2, type(module).__name__)
    assert torch.equal(gradients(module, use, tool)[1], plain * 2)


def test_inputs_that_a_module_writes_to_are_kept_as_they_were() -> None:
    seen: list[Tensor] = []
    tool = AtModules(
        lambda ctx: (
            ctx.insert_after_op(lambda y, x: seen.append(x.clone()), with_inputs=[0]),
            ctx.insert_on_grad_inputs(lambda g, x: seen.append(x.clone()), with_inputs=[0]),
        )
    )
    x = X.clone().requires_grad_()
    with amanda.apply(tool):
        nn.ReLU(inplace=True)(x * W).sum().backward()
    assert torch.equal(seen[0], X * W)
    assert torch.equal(seen[1], X * W)


# Outputs that are known


def test_where_outputs_are_known_their_gradients_may_be_changed_at_once() -> None:
    class Parts(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"sine": x.sin(), "cosine": x.cos()}

    tool = AtModules(
        lambda ctx: ctx.insert_on_grad_outputs(
            lambda grad, x: grad * x, outputs=["cosine"], with_inputs=["x"]
        ),
        require_outputs=True,
    )
    model, x = Parts(), X.clone().requires_grad_()
    for _ in range(2):
        with amanda.apply(tool):
            parts = model(x)
            (grad,) = torch.autograd.grad((parts["sine"] + parts["cosine"]).sum(), x)
        torch.testing.assert_close(grad, X.cos() - X.sin() * X)


@pytest.mark.parametrize("looks", [False, True])
def test_analyses_with_and_without_outputs_decide_together(looks: bool) -> None:
    """Also at the first call, when the gradient is watched before the outputs are known."""

    def late(ctx: amanda.OpContext) -> None:
        if not looks:
            ctx.insert_on_grad_outputs(lambda grad, x: grad * x, with_inputs=["input"])

    early = AtModules(lambda ctx: ctx.insert_on_grad_inputs(lambda grad: grad * 3))
    pending = AtModules(late, require_outputs=True)
    for tools in ((early, pending), (pending, early)):
        x = X.clone().requires_grad_()
        with amanda.apply(*tools):
            nn.Tanh()(x).sum().backward()
        expected = 3 * (1 if looks else X) * (1 - X.tanh() ** 2)
        torch.testing.assert_close(x.grad, expected)


@pytest.mark.parametrize("at", ["insert_before_op", "replace_op", "insert_on_grad_inputs"])
def test_what_comes_too_late_is_refused(at: str) -> None:
    tool = AtModules(lambda ctx: getattr(ctx, at)(lambda x: x), require_outputs=True)
    with amanda.apply(tool), pytest.raises(amanda.UnsupportedError, match="second time"):
        nn.Linear(3, 3)(X)


# Looking at gradients


def bert() -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    return small(transformers.BertModel).eval()


def test_looking_at_gradients_changes_no_bit_where_inputs_are_used_several_times() -> None:
    model, tokens = bert(), torch.randint(0, 60, (2, 7))

    def grads(*tools: amanda.Tool) -> dict[str, Tensor]:
        model.zero_grad()
        with amanda.apply(*tools):
            model(tokens).last_hidden_state.square().sum().backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    seen: dict[str, list[Tensor]] = {}

    def look(*grads: Tensor | None, id: str) -> None:
        seen.setdefault(id, []).extend(g.clone() for g in grads if g is not None)

    tool = AtModules(
        lambda ctx: (
            ctx.insert_on_grad_outputs(look, id=ctx.op.id),
            ctx.insert_on_grad_inputs(look, id=f"{ctx.op.id} in"),
        )
    )
    found, plain = grads(tool), grads()
    assert all(torch.equal(found[name], plain[name]) for name in plain)
    hooked: list[Tensor] = []
    layer = model.encoder.layer[1]
    layer.register_full_backward_hook(lambda module, ins, outs: hooked.extend(ins[:1]))
    grads()
    (of_input,) = seen["encoder.layer.1/BertLayer in"]
    assert torch.equal(of_input, hooked[0])


@pytest.mark.parametrize("annotated", [True, False])
def test_in_a_pass_through_a_gradient_routines_see_the_modules_own(annotated: bool) -> None:
    seen: list[Tensor] = []

    def look(grad: Tensor):  # type: ignore[no-untyped-def]
        seen.append(grad.detach().clone())

    look.__annotations__ = {"return": None} if annotated else {}

    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x

    x = X.clone().requires_grad_()
    with amanda.apply(inserting("insert_on_grad_inputs", look, "Square")):
        (grad,) = torch.autograd.grad(Square()(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((grad * W).sum(), x)
    assert torch.equal(second, 2 * W)
    assert torch.equal(seen[0], 2 * X)
    assert len(seen) == 1 or torch.equal(seen[1], 2 * W * 0)


# Replacing


class Counting(nn.Module):
    """Counts its calls, and packs its result."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        self.calls += 1
        return self.linear(x), None


@pytest.mark.parametrize("differentiable", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("original", [False, True])
def test_a_replaced_module_runs_once_and_packs_the_result(
    original: bool, recorded: bool, differentiable: bool
) -> None:
    model = Counting()

    def twice(*args: Any) -> Tensor:
        return args[0](args[1]) * 2 if original else args[0] * 2

    tool = inserting(
        "replace_op", twice, "Counting", original=original, differentiable=differentiable
    )
    with amanda.apply(tool), torch.set_grad_enabled(recorded):
        found, nothing = model(X)
    assert torch.equal(found, model.linear(X) * 2 if original else X * 2)
    assert nothing is None
    assert model.calls == 1


def test_the_original_on_other_inputs_runs_beside_the_one_whose_gradient_stays() -> None:
    model = Counting()
    tool = inserting("replace_op", lambda run, x: run(x + 1), "Counting", original=True)
    x = X.clone().requires_grad_()
    with amanda.apply(tool):
        found, _ = model(x)
        found.sum().backward()
    assert torch.equal(found, model.linear(X + 1))
    assert torch.equal(x.grad, torch.ones(2, 3) @ model.linear.weight)
    assert model.calls == 2


# Language models, held to hooks placed by hand


def gpt2() -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    return small(transformers.GPT2LMHeadModel, eos_token_id=None, pad_token_id=0).eval()


PROMPT = torch.tensor([[5, 17, 3, 42]])


def with_hook(model: Any, layer: int, change: Callable[[Tensor], Tensor], run: Any) -> Any:
    def hook(module: Any, args: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (change(output[0]), *output[1:])
        return change(output)

    handle = model.transformer.h[layer].register_forward_hook(hook)
    with handle:
        return run()


@pytest.mark.parametrize("cached", [True, False])
def test_patching_and_steering_are_those_of_hooks(cached: bool) -> None:
    model = gpt2()
    kept: list[Tensor] = []
    keep = AtModules(
        lambda ctx: ctx.insert_after_op(lambda h: kept.append(h.clone()), outputs=[0]),
        modules=["transformer.h.1"],
    )
    with amanda.apply(keep), torch.no_grad():
        model(PROMPT + 1)
    hooked: list[Tensor] = []
    with torch.no_grad():
        with_hook(model, 1, lambda h: hooked.append(h.clone()) or h, lambda: model(PROMPT + 1))
    assert torch.equal(kept[0], hooked[0])

    def patch(h: Tensor) -> Tensor:
        patched = h.clone()
        patched[:, -1] = kept[0][:, -1]
        return patched

    def steer(h: Tensor) -> Tensor:
        return h + vector

    vector = torch.randn(24)

    def generate() -> Tensor:
        torch.manual_seed(1)
        return model.generate(
            PROMPT, max_new_tokens=8, do_sample=True, use_cache=cached, output_logits=True,
            return_dict_in_generate=True,
        ).logits  # fmt: skip

    for change in (patch, steer):
        tool = AtModules(
            lambda ctx, change=change: ctx.insert_after_op(change, outputs=[0]),  # type: ignore[misc]
            modules=["transformer.h.1"],
        )
        with amanda.apply(tool):
            found = generate()
        expected = with_hook(model, 1, change, generate)
        assert len(found) == len(expected) == 8
        assert all(map(torch.equal, found, expected))
        assert len(tool.analyzed) == 1


def test_attention_is_replaced_by_itself_in_a_generation_with_a_cache() -> None:
    model = gpt2()

    def generate() -> list[int]:
        return model.generate(PROMPT, max_new_tokens=8, do_sample=False)[0].tolist()

    tool = inserting(
        "replace_op", lambda run, h, *rest: run(h, *rest), "GPT2Attention", original=True
    )
    plain = generate()
    with amanda.apply(tool):
        assert generate() == plain
