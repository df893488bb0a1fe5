"""Modules as operators: which calls are seen, what of them is shown, and when."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from typing import Any, NamedTuple

import amanda
import pytest
import torch
import torch.utils.checkpoint
from amanda.testing.modules import AtModules, inserting
from amanda.testing.probes import Record, under
from plain_models import perceptron
from torch import Tensor, nn

X = torch.randn(4, 3)


def looking(**selected: Any) -> AtModules:
    """A tool that looks at modules at all points, and notes at which."""

    def analyze(ctx: amanda.OpContext) -> None:
        def note(*tensors: Tensor, at: str, id: str = ctx.op.id) -> None:
            ran.append(f"{at} {id}")

        ctx.insert_before_op(note, at="before")
        ctx.insert_after_op(note, at="after")
        ctx.insert_on_grad_outputs(note, at="out")
        ctx.insert_on_grad_inputs(note, at="in")

    ran: list[str] = []
    tool = AtModules(analyze, **selected)
    tool.ran = ran  # type: ignore[attr-defined]
    return tool


def train(model: nn.Module, *tools: amanda.Tool) -> list[Tensor]:
    """The output and the gradients of its square for the input and the parameters."""
    leaves = [X.clone().requires_grad_(), *model.parameters()]
    model.zero_grad()
    with amanda.apply(*tools):
        output = model(leaves[0])
        output.square().sum().backward()
    return [output.detach(), *(leaf.grad for leaf in leaves)]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    assert all(map(torch.equal, found, expected))


class Block(nn.Module):
    """A linear layer beside which its input goes on, as in residual networks."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x).tanh() * x


class Blocks(nn.Module):
    """Two blocks, each in a checkpoint if one is asked for."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=self.reentrant)
        return x


# What is shown


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


@dataclasses.dataclass(frozen=True)
class Output:
    state: Tensor
    cache: tuple[Tensor, ...]
    count: int


class Trees(nn.Module):
    def forward(self, x: Tensor, /, pair: Pair, *rest: Any, scale: float, **options: Any) -> Output:
        return Output(x * scale, (pair.left, rest[1] + options["shift"]), 3)


def test_inputs_outputs_and_attributes_are_named_by_where_they_are() -> None:
    found: dict[str, Any] = {}

    def note(ctx: amanda.OpContext) -> None:
        found["in"], found["out"] = list(ctx.input_names), list(ctx.output_names)
        found["attrs"] = dict(ctx.attrs)
        assert torch.equal(ctx.input("pair")[1], X[1])
        assert ctx.activation is None
        assert ctx.parameters == []

    tool = AtModules(note, require_outputs=True)
    with amanda.apply(tool):
        Trees()(X, Pair(X[0], X[1]), None, X[2], scale=2.0, shift=X[3], training=True)
    assert found["in"] == ["x", "pair.left", "pair.right", "rest.1", "shift"]
    assert found["attrs"] == {"rest.0": None, "scale": 2.0, "training": True}
    assert found["out"] == ["state", "cache.0", "cache.1"]


def test_substitutes_are_packed_as_what_they_replace() -> None:
    before = inserting("insert_before_op", torch.zeros_like, "Trees", inputs=["pair.left"])
    after = AtModules(
        lambda ctx: ctx.insert_after_op(lambda state: state + 1, outputs=["state"]),
        require_outputs=True,
    )
    pair = Pair(X[0], X[1])
    for _ in range(2):
        with amanda.apply(before, after):
            found = Trees()(X, pair, None, X[2], scale=1.0, shift=X[3])
        assert type(found) is Output
        assert torch.equal(found.state, X + 1)
        assert torch.equal(found.cache[0], torch.zeros(3))
        assert found.count == 3
        assert pair.left is not found.cache[0]


def test_what_only_is_looked_at_is_passed_on_as_it_is() -> None:
    class Same(nn.Module):
        def forward(self, state: dict[str, Any]) -> dict[str, Any]:
            return state

    state: dict[str, Any] = {"x": X, "all": [X]}
    state["self"] = state
    with amanda.apply(looking()):
        assert Same()(state) is state


def test_a_packed_sequence_and_the_state_of_a_recurrent_layer_are_trees() -> None:
    names: list[Any] = []
    tool = AtModules(
        lambda ctx: names.append((ctx.input_names, ctx.output_names)), require_outputs=True
    )
    packed = nn.utils.rnn.pack_sequence([X, X[:2]])
    with amanda.apply(tool):
        nn.GRU(3, 2)(packed)
    ends = ["data", "batch_sizes"]
    assert names == [
        ([f"input.{end}" for end in ends], [*(f"output.0.{end}" for end in ends), "output.1"])
    ]


# Which calls are seen


def test_each_turn_of_a_loop_is_another_operator() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(2):
                x = self.block(x)
            return self.block(x)

    model, tool = Loop(), AtModules(types=["Block"])
    with amanda.apply(tool):
        for _ in range(2):
            model(X)
    ids = [operator.id for operator in tool.analyzed]
    assert ids == ["block/Block", "block/Block#2", "block/Block#3"]


@pytest.mark.parametrize(
    "wrap",
    [nn.DataParallel, torch.compile, torch.optim.swa_utils.AveragedModel, lambda model: model],
)
def test_what_wraps_a_model_stands_for_it(wrap: Any) -> None:
    tool = looking(modules=["", "blocks.0"])
    train(wrap(Blocks()), tool)
    seen = [(operator.type, operator.scope) for operator in tool.analyzed]
    assert seen == [("Blocks", ""), ("Block", "blocks.0")]


def test_a_model_that_is_compiled_in_place_is_seen() -> None:
    model, tool = Blocks(), AtModules(types=["Blocks"])
    model.compile()
    assert_same([under(tool, lambda: model(X))], [model._call_impl(X)])
    assert len(tool.analyzed) == 1


def test_a_lazy_module_is_of_the_class_that_it_becomes() -> None:
    tool = AtModules()
    with amanda.apply(tool):
        nn.LazyLinear(2)(X)
    assert [operator.type for operator in tool.analyzed] == ["Linear"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_a_checkpoint_runs_again_is_the_same_operator(reentrant: bool) -> None:
    model, tool = Blocks(reentrant), looking(types=["Block"])
    plain = train(model)
    for _ in range(2):
        assert_same(train(model, tool), plain)
    assert len({operator.id for operator in tool.analyzed}) == 2
    ran: list[str] = tool.ran  # type: ignore[attr-defined]
    for at in ("out", "in"):
        assert ran.count(f"{at} blocks.0/Block") == 2
    assert ran.count("before blocks.0/Block") == 4


def test_modules_that_a_routine_calls_are_none_of_the_program() -> None:
    inner = Block()
    tool = inserting("insert_before_op", lambda x: inner(x), "Linear")
    beside = AtModules()
    with amanda.apply(tool, beside):
        nn.Linear(3, 3)(X)
    assert [operator.type for operator in beside.analyzed] == ["Linear"]


@pytest.mark.filterwarnings("ignore:`torch.jit.*` is deprecated")
def test_of_torchscript_the_module_that_is_called_is_seen_and_those_in_it_are_named() -> None:
    model, names = perceptron(), []
    scripted, tool = torch.jit.script(model), AtModules(lambda ctx: names.extend(ctx.input_names))
    with amanda.apply(tool), pytest.warns(amanda.AmandaWarning, match="no tool sees that: 0, 1, 2"):
        found = scripted(X)
    assert torch.equal(found, model(X))
    assert [operator.type for operator in tool.analyzed] == ["Sequential"]
    assert names == ["input"]


def test_what_traces_a_model_is_shown_to_nobody() -> None:
    model, tool = Blocks().eval(), AtModules()
    with amanda.apply(tool):
        graph = torch.fx.symbolic_trace(model)
        program = torch.export.export(model, (X,)).module()
    assert tool.analyzed == []
    assert_same([graph(X), program(X)], [model(X)] * 2)


def test_modules_that_nobody_selects_are_named() -> None:
    tool = AtModules(modules=["blocks.0", "block.1"], types=["Block", "block"])
    with pytest.warns(amanda.AmandaWarning, match=r"never called.*'block.1'.*'block'.*'Block'"):
        under(tool, lambda: Blocks()(X))
    assert [operator.scope for operator in tool.analyzed] == ["blocks.0"]


def test_globs_of_operators_and_of_modules_stand_side_by_side() -> None:
    operators, modules = amanda.Tool(), AtModules(modules=["blocks.0"])
    seen: list[str] = []
    operators.add_inst_for_op(lambda ctx: seen.append(ctx.op.scope), scopes=["blocks.1.linear"])
    under([operators, modules], lambda: Blocks()(X))
    assert seen == ["blocks.1.linear"]
    assert [operator.scope for operator in modules.analyzed] == ["blocks.0"]


def test_portable_tools_see_modules_as_the_backend_has_them() -> None:
    class Portable(amanda.Tool):
        def __init__(self) -> None:
            super().__init__(namespace="torch")
            self.types: list[str] = []
            self.add_inst_for_module(lambda ctx: self.types.append(ctx.op.type), types=["Block"])

    tool = Portable()
    under(tool, lambda: Blocks()(X))
    assert tool.types == ["Block", "Block"]


# What the program sees


def test_hooks_of_the_program_are_part_of_a_module() -> None:
    seen: list[Tensor] = []
    block = Block()
    block.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    block.register_forward_hook(lambda module, args, output: output * 3)

    def analyze(ctx: amanda.OpContext) -> None:
        ctx.insert_before_op(lambda x: seen.append(x.clone()))
        ctx.insert_after_op(lambda x: seen.append(x.clone()))

    with amanda.apply(AtModules(analyze, types=["Block"])):
        output = block(X)
    assert_same(seen, [X, output])


def test_backward_hooks_of_the_program_see_what_they_do_without_tools() -> None:
    block, seen = Block(), []
    block.register_full_backward_hook(lambda module, ins, outs: seen.append([*ins, *outs]))
    plain = train(block)
    assert_same(train(block, looking()), plain)
    assert_same(seen[1], seen[0])


def test_the_fast_path_of_attention_stays() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder, x = nn.TransformerEncoder(layer, 2).eval(), torch.randn(2, 4, 8)
    operators, beside = Record(), Record()
    with torch.no_grad():
        plain = under(operators, lambda: encoder(x))
        found = under([beside, looking()], lambda: encoder(x))
    assert torch.equal(found, plain)
    assert beside.types == operators.types


def test_inference_tensors_are_looked_at() -> None:
    tool, model = looking(types=["Block"]), Blocks()
    with torch.inference_mode():
        assert torch.equal(under(tool, lambda: model(X)), model(X))
    assert len(tool.ran) == 4  # type: ignore[attr-defined]


def test_an_error_of_a_module_is_that_of_the_program() -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise KeyError("mine")

    with amanda.apply(looking()), pytest.raises(KeyError, match="mine"):
        Failing()(X)


def test_a_model_is_let_go_of() -> None:
    model, tool = Blocks(), looking()
    gone = weakref.ref(model)
    with amanda.apply(tool):
        train(model)
        del model
        gc.collect()
        assert gone() is None


def test_a_graph_is_let_go_of_with_its_output() -> None:
    model, x = Blocks(), X.clone().requires_grad_()
    gc.disable()
    try:
        with amanda.apply(looking()):
            for _ in range(2):
                output = model(x)
                output.sum().backward()
            node = weakref.ref(output.grad_fn)
            del output
            assert node() is None
    finally:
        gc.enable()
