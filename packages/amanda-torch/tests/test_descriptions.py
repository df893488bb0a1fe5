"""What the driver tells of PyTorch's tensors, parameters and devices."""

from types import SimpleNamespace

import amanda
import pytest
import torch
from amanda import TensorInfo
from amanda_torch import driver
from amanda_torch.tensors.descriptions import _is_accelerator
from torch.nn.utils import parametrizations


def described(operation, type):
    """What is told, during an execution, of the tensors that an operator is given."""
    found = []

    class Describe(amanda.Tool):
        def __init__(self):
            super().__init__()
            self.add_inst_for_op(self.analyze, ops=[type])

        def analyze(self, ctx):
            def describe(*tensors) -> None:
                found.extend(map(ctx.describe, tensors))

            ctx.insert_before_op(describe)

    with amanda.apply(Describe()):
        operation()
    return found


def parameters(operation, type):
    """The parameters that an operator is given."""
    found = []
    tool = amanda.Tool()
    tool.add_inst_for_op(
        lambda ctx: found.extend(map(ctx.parameter, range(len(ctx.inputs)))), ops=[type]
    )
    with amanda.apply(tool):
        operation()
    return found


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.ones(2, 3), TensorInfo((2, 3), "float32", 24, "cpu")),
        (torch.ones(2, 3)[0], TensorInfo((3,), "float32", 12, "cpu")),
        (torch.tensor(True), TensorInfo((), "bool", 1, "cpu")),
        (torch.ones(4, dtype=torch.bfloat16), TensorInfo((4,), "bfloat16", 8, "cpu")),
        (torch.ones(4, dtype=torch.complex64), TensorInfo((4,), "complex64", 32, "cpu")),
        (torch.ones(2, device="meta"), TensorInfo((2,), "float32", 8, "meta")),
        (
            torch.ones(2, requires_grad=True),
            TensorInfo((2,), "float32", 8, "cpu", requires_grad=True),
        ),
        (torch.ones(2, 2).to_mkldnn(), TensorInfo((2, 2), "float32", 16, "cpu")),
        # five of nine elements are stored
        (
            torch.tensor([[1.0, 2, 3], [0, 4, 0], [0, 0, 5]]).to_sparse(),
            TensorInfo((3, 3), "float32", 20, "cpu", is_dense=False),
        ),
        (
            torch.tensor([[1.0, 2, 3], [0, 4, 0], [0, 0, 5]]).to_sparse_csr(),
            TensorInfo((3, 3), "float32", 20, "cpu", is_dense=False),
        ),
        # one row of three is stored as a whole
        (
            torch.tensor([[0.0, 0, 0], [0, 4, 0]]).to_sparse(1),
            TensorInfo((2, 3), "float32", 12, "cpu", is_dense=False),
        ),
        (
            torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]),
            TensorInfo((None, None, None), "float32", 72, "cpu", is_dense=False),
        ),
        (
            torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged),
            TensorInfo((2, None, 3), "float32", 72, "cpu", is_dense=False),
        ),
        (
            torch.nn.parameter.UninitializedParameter(),
            TensorInfo(None, "float32", 0, "cpu", requires_grad=True),
        ),
    ],
)
def test_a_tensor(tensor, expected):
    assert driver.describe(tensor) == expected


def test_within_vmap_the_hidden_dimensions_are_told_apart():
    x = torch.ones(5, 7, 3)
    (info,) = described(lambda: torch.vmap(torch.vmap(torch.exp))(x), "exp")
    assert (info.shape, info.nbytes) == ((3,), 5 * 7 * 3 * 4)
    assert sorted(info.mapped) == [(1, 5), (2, 7)]


def test_within_vmap_a_tensor_that_is_not_mapped_has_none():
    weight = torch.ones(3)
    mapped, whole = described(lambda: torch.vmap(lambda x: x * weight)(torch.ones(5, 3)), "mul")
    assert ([size for _, size in mapped.mapped], whole.mapped) == ([5], ())


@pytest.mark.parametrize(
    ("form", "grad"),
    [
        (lambda weight: weight, True),
        (lambda weight: weight, False),
        (lambda weight: weight.t(), True),
        (lambda weight: weight[:2], False),
        (lambda weight: weight.double(), True),
        (lambda weight: weight.double().t(), True),
    ],
    ids=["itself", "without gradients", "transposed", "sliced", "cast", "cast and transposed"],
)
def test_a_parameter_in_another_form_is_the_parameter(form, grad):
    weight = torch.nn.Parameter(torch.ones(3, 3))
    x = torch.ones(3, 3, dtype=form(weight).dtype)

    def run():
        with torch.set_grad_enabled(grad):
            x @ form(weight).reshape(-1, 3).t()

    first, found = parameters(run, "matmul")
    assert first is None
    assert found.source is weight
    assert found.info == TensorInfo((3, 3), "float32", 36, "cpu", requires_grad=True)


@pytest.mark.parametrize("trainable", [True, False])
def test_whether_a_parameter_is_trained(trainable):
    layer = torch.nn.Linear(2, 3).requires_grad_(trainable)
    none, weight, bias = parameters(lambda: layer(torch.ones(1, 2)), "linear")
    assert none is None
    assert (weight.source, bias.source) == (layer.weight, layer.bias)
    assert (weight.trainable, bias.trainable) == (trainable, trainable)


@pytest.mark.parametrize("norm", [parametrizations.spectral_norm, torch.nn.utils.spectral_norm])
def test_what_computes_a_parameter_is_told_from_the_work_of_a_layer(norm):
    computes = {}
    tool, layer, x = amanda.Tool(), norm(torch.nn.Linear(2, 3)).eval(), torch.ones(1, 2)
    tool.add_inst_for_op(
        lambda ctx: computes.setdefault(ctx.op.type, ctx.driver.computes_parameter(ctx.op))
    )
    with amanda.apply(tool):
        layer(x)
    assert computes.pop("linear") is False
    assert computes["mv"]
    assert all(computes.values())


class TestPurpose:
    """What operators are there for, by the code that runs them."""

    @staticmethod
    def of(run):
        found = {}
        tool = amanda.Tool()
        tool.add_inst_for_op(
            lambda ctx: found.setdefault(ctx.driver.purpose(ctx.op), set()).add(ctx.op.type),
            opt_in=True,
        )
        with amanda.apply(tool):
            run()
        return found

    def test_a_module_is_made_and_given_values(self):
        def make():
            layer = torch.nn.Linear(2, 3).double()
            layer.load_state_dict(layer.state_dict())
            torch.nn.init.zeros_(layer.bias)

        assert self.of(make).keys() == {"initialization"}

    def test_a_module_that_is_made_in_a_model_s_own_way(self):
        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.ones(3) * 2)

        assert self.of(Scaled) == {"initialization": {"ones", "mul"}}

    def test_a_model_that_is_called_while_another_one_is_made(self):
        layer = torch.nn.Linear(2, 3)
        x = torch.ones(1, 2)

        class Fitted(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.size = layer(x).shape

        assert self.of(Fitted) == {"model": {"linear"}}

    def test_data_are_loaded(self):
        class Doubled(torch.utils.data.Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                return torch.full((2,), 2.0).mul(2)

        found = self.of(lambda: list(torch.utils.data.DataLoader(Doubled(), batch_size=2)))
        assert found.keys() == {"data"}
        assert found["data"] >= {"full", "mul", "stack"}

    def test_an_optimizer_takes_a_step(self):
        weight = torch.nn.Parameter(torch.ones(3))
        weight.grad = torch.ones(3)
        optimizer = torch.optim.Adam([weight])
        assert self.of(optimizer.step).keys() == {"optimizer"}

    def test_all_else_is_the_model(self):
        x = torch.ones(2)
        assert self.of(lambda: x.relu().sum()) == {"model": {"relu", "sum"}}


def test_the_modules_around_an_operator_have_paths_and_classes():
    found = []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: found.append(ctx.driver.modules(ctx.op)), ops=["relu"])
    model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.ReLU()))
    x = torch.ones(2)
    with amanda.apply(tool):
        model(x)
        x.relu()
    assert found == [[("", "Sequential"), ("0", "Sequential"), ("0.0", "ReLU")], []]


def test_the_model_of_an_operator_is_the_outermost_module_that_has_state():
    found = []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: found.append(ctx.driver.model(ctx.op)), ops=["relu"])
    one, other = (torch.nn.Sequential(torch.nn.ReLU()) for _ in range(2))
    x = torch.ones(2)
    with amanda.apply(tool):
        one(x)
        other(x)
        torch.nn.ReLU()(x)
        x.relu()
    assert found == [one, other, None, None]


@pytest.fixture
def accelerator(monkeypatch):
    """An accelerator of two devices, since there is none here; the devices waited for."""
    waited = []
    made_up = torch.device("cuda")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: made_up)
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    module = SimpleNamespace(memory_allocated=lambda device: 100 + torch.device(device).index)
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    _is_accelerator.cache_clear()
    yield waited
    _is_accelerator.cache_clear()


def test_an_accelerator_is_waited_for_and_tells_its_memory(accelerator):
    driver.synchronize("cuda:1")
    assert accelerator == ["cuda:1"]
    assert driver.allocated("cuda:1") == 101


def test_the_host_is_not(accelerator):
    driver.synchronize("cpu")
    assert accelerator == []
    assert driver.allocated("cpu") is None
