"""What a tool makes of parameters, written to where a module keeps them."""

import weakref

import amanda
import pytest
import torch
from amanda.testing.probes import before, under
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def made_permanent(model, x, tool, run=None):
    """What the model computes under the tool, and without it once that is permanent."""
    run = run or (lambda: model(x))
    under_tool = under(tool, run).detach().clone()
    tool.make_permanent(model)
    return under_tool, run().detach()


class Own(nn.Module):
    """A function of one weight."""

    def __init__(self, function, *shape):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(*shape))

    def forward(self, x):
        return self.function(x, self.weight)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x @ w.t(),
        lambda x, w: x @ w[1:].t(),
        lambda x, w: x @ w.chunk(2)[1].t(),
        lambda x, w: x @ w.view(2, 2, 3)[1].t(),
        lambda x, w: x @ w.to(torch.float64).to(torch.float32).t(),
        lambda x, w: x @ w.t().contiguous(),
        lambda x, w: x @ w[1:].to(torch.float64).view(3, 3).float().t(),
    ],
    ids=["transposed", "sliced", "chunked", "viewed", "cast", "copied", "copied_part"],
)
def test_a_weight_that_is_given_as_a_view_is_written_where_it_is(function):
    model, tool = Own(function, 4, 3), before("matmul", lambda w: w * 0.5, inputs=[1])
    original = model.weight.detach().clone()
    expected, found = made_permanent(model, torch.randn(2, 3), tool)
    assert torch.equal(found, expected)
    changed = original != model.weight
    assert changed.any()
    assert torch.equal(model.weight[changed], original[changed] * 0.5)


def test_a_parameter_in_another_memory_format_is_written_where_it_is():
    convolution, x = (
        nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last),
        torch.randn(1, 4, 5, 5),
    )
    model = Own(lambda x, w: nn.functional.conv2d(x, w.flatten(1)[:, :36].view(6, 4, 3, 3)), 1)
    model.weight = convolution.weight
    tool = before("conv2d", lambda w: w.round(decimals=1), inputs=[1])
    expected, found = made_permanent(model, x, tool)
    assert torch.equal(found, expected)
    assert model.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x @ w.flip(0).t(),
        lambda x, w: x @ w[:1].expand(3, 3).contiguous(),
        lambda x, w: x @ w.split([1, 2])[1].repeat(2, 1)[:3].contiguous(),
        lambda x, w: x @ torch.cat(w.double().chunk(3)).float(),
        lambda x, w: torch.matmul(x[:, :1], w.chunk(3)[1].double().float()),
    ],
)
def test_what_is_no_view_of_a_parameter_is_refused(function):
    model = Own(function, 3, 3)
    tool = before("matmul", lambda w: w * 0.5, inputs=[1])
    original = model.weight.detach().clone()
    with pytest.raises(amanda.UnsupportedError, match=r"matmul.*(depends on more|a copy of a)"):
        made_permanent(model, torch.randn(2, 3), tool)
    assert torch.equal(model.weight, original)


def test_what_draws_random_numbers_is_refused():
    model = nn.Linear(3, 4)
    original = model.weight.detach().clone()
    tool = before("linear", lambda w: nn.functional.dropout(w, 0.5), inputs=[1])
    with pytest.raises(amanda.UnsupportedError, match=r"lambda.*'linear'.*when it runs again"):
        made_permanent(model, torch.randn(2, 3), tool)
    assert torch.equal(model.weight, original)


def test_what_is_no_number_is_the_same_each_time():
    codes = iter([0x7FC00000, 0x7FC00000, 0x7FC00001])
    model = nn.Linear(1, 1)

    def nan(w):
        return torch.tensor([[next(codes)]], dtype=torch.int32).view(torch.float32)

    made_permanent(model, torch.ones(1, 1), before("linear", nan, inputs=[1]))
    assert model.weight.isnan().all()


def test_type_device_and_what_an_optimizer_keeps_stay():
    model = nn.Linear(3, 4).to(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(2, 3, dtype=torch.bfloat16)
    model(x).sum().backward()
    optimizer.step()
    kept, weight = optimizer.state_dict()["state"], model.weight
    before_it = {k: v.clone() for k, v in kept[0].items()}
    tool = before("linear", lambda w: w.round(), inputs=[1])
    expected, found = made_permanent(model, x, tool)
    assert torch.equal(found, expected)
    assert model.weight is weight
    assert weight.dtype == torch.bfloat16
    assert weight.requires_grad
    assert all(torch.equal(kept[0][k], v) for k, v in before_it.items())


def test_a_checkpoint_needs_no_tool():
    model, fresh = (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)) for _ in "12")
    x, tool = torch.randn(2, 3), before("linear", lambda w: torch.sign(w), inputs=[1])
    expected = under(tool, lambda: model(x))
    assert len(tool.make_permanent(model)) == 2
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x), expected)


def test_a_weight_that_is_cast_holds_what_its_type_can():
    model, x = nn.Linear(3, 4), torch.randn(2, 3)

    def run():
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    expected, found = made_permanent(
        model, x, before("linear", lambda w: torch.sign(w), inputs=[1]), run
    )
    assert torch.equal(found, expected)


def test_a_weight_that_is_given_in_a_lower_type_keeps_the_digits_of_what_stays():
    model = Own(lambda x, w: x @ w[1:].to(torch.float64).to(torch.bfloat16).t(), 4, 3)
    held = model.weight.detach().clone()
    cut = before("matmul", lambda w: w * (w > 0), inputs=[1])
    expected, found = made_permanent(model, torch.ones(2, 3, dtype=torch.bfloat16), cut)
    assert torch.equal(found, expected)
    held[1:] = torch.where(held[1:] > 0, held[1:], 0)
    assert torch.equal(model.weight.detach(), held)


def test_a_weight_that_an_embedding_shares_cannot_be_replaced_for_the_head_alone():
    embedding, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)
    tokens, tool = torch.tensor([[1, 4]]), before("linear", torch.sign, inputs=[1])
    tool.add_inst_for_op(lambda ctx: None, ops=["embedding"])
    original = head.weight.detach().clone()
    under(tool, lambda: model(tokens))
    with pytest.raises(amanda.UnsupportedError, match=r"embedding.*another operator is given it"):
        tool.make_permanent(model)
    assert torch.equal(head.weight, original)


def test_nothing_of_a_model_is_kept_alive():
    model, tool = nn.Linear(3, 4), before("linear", torch.sign, inputs=[1])
    with amanda.apply(tool):
        model(torch.randn(2, 3))
    assert tool.uses
    gone = weakref.ref(model.weight)
    del model
    assert gone() is None
    assert not tool.uses


def test_two_routines_of_one_tool_are_made_permanent_in_their_order():
    model, x = nn.Linear(3, 4), torch.randn(2, 3)
    tool = before("linear", lambda w: w + 1, inputs=[1])
    tool.add_inst_for_op(
        lambda ctx: ctx.insert_before_op(lambda w: w * 2, inputs=["weight"]), ops=["linear"]
    )
    original = model.weight.detach().clone()
    expected, found = made_permanent(model, x, tool)
    assert torch.equal(found, expected)
    assert torch.equal(model.weight, (original + 1) * 2)


def test_sparse_and_quantized_parameters_may_be_looked_at():
    weight = nn.Parameter(torch.eye(3).to_sparse())
    model = Own(lambda x, _: torch.sparse.mm(weight, x), 1)
    model.sparse = weight
    tool = before("_sparse_mm", lambda *tensors: None)
    assert torch.equal(under(tool, lambda: model(torch.ones(3, 2))), torch.ones(3, 2))


def test_linear_is_seen_by_functional_calls_too():
    model = Own(nn.functional.linear, 4, 3)
    expected, found = made_permanent(
        model, torch.randn(2, 3), before("linear", torch.sign, inputs=[1])
    )
    assert torch.equal(found, expected)


class Tied(nn.Module):
    """A head that multiplies with the table of its embedding, by a module of its own or not."""

    def __init__(self, of_its_own):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False) if of_its_own else None
        if self.head is not None:
            self.head.weight = self.embedding.weight

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        if self.head is not None:
            return self.head(hidden)
        return nn.functional.linear(hidden, self.embedding.weight)


@pytest.mark.parametrize(
    ("of_its_own", "seen", "index", "named"),
    [
        (True, "linear", 1, "embedding takes .*head/linear"),
        (False, "linear", 1, "embedding takes .*linear"),
        (True, "embedding", 0, "head takes .*embedding/embedding"),
    ],
    ids=["head", "function", "table"],
)
def test_a_weight_that_is_taken_where_the_tool_has_not_looked_stays(of_its_own, seen, index, named):
    model, tool = Tied(of_its_own), before(seen, torch.sign, inputs=[index])
    held = model.embedding.weight.detach().clone()
    under(tool, lambda: model(torch.tensor([[1, 4]])))
    with pytest.raises(amanda.UnsupportedError, match=named):
        tool.make_permanent(model)
    assert torch.equal(model.embedding.weight, held)


def test_a_weight_that_all_who_hold_it_are_given_changed_is_written():
    model, tokens = Tied(True), torch.tensor([[1, 4]])
    tool = before("linear", torch.sign, inputs=[1])
    tool.add_inst_for_op(
        lambda ctx: ctx.insert_before_op(torch.sign, inputs=["weight"]), ops=["embedding"]
    )
    expected, found = made_permanent(model, tokens, tool)
    assert torch.equal(found, expected)


def test_a_second_name_of_a_weight_is_no_second_use_of_it():
    inner = nn.Linear(3, 3)
    model = Own(lambda x, w: inner(x), 3, 3)
    model.inner, model.weight = inner, inner.weight
    model.listed = nn.ParameterList([inner.weight])
    tool = before("linear", torch.sign, inputs=[1])
    expected, found = made_permanent(model, torch.ones(1, 3), tool)
    assert torch.equal(found, expected)


@pytest.fixture
def _group():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("_group")
def test_shards_of_parameters_are_refused():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    mesh = init_device_mesh("cpu", (1,))
    for part in (model[0], model):
        fully_shard(part, mesh=mesh)
    tool = before("linear", lambda w: w * 2, inputs=["weight"])
    before_it = [p.full_tensor().clone() for p in model.parameters()]
    under(tool, lambda: model(torch.ones(1, 4)))
    with pytest.raises(amanda.UnsupportedError, match=r"shards of its parameters \(fully_shard\)"):
        tool.make_permanent(model)
    for part in (model[0], model):
        part.reshard()
    for parameter, value in zip(model.parameters(), before_it, strict=True):
        assert torch.equal(parameter.full_tensor(), value)
