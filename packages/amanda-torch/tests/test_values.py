"""Values of tensors as arrays, and which input of an operator flows through it."""

import amanda
import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from amanda.testing.probes import Watch
from amanda_torch import driver
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode


class Shown(TorchDispatchMode):
    """Lists the operators that a mode of the program is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.shown.append(str(function))
        return function(*args, **kwargs or {})


def arrays(tensor: torch.Tensor) -> list[np.ndarray]:
    """What a routine before an operator on a tensor has of it as arrays."""
    found = []
    analyze = lambda ctx: ctx.insert_before_op(lambda t: found.append(ctx.numpy(t)))  # noqa: E731
    with amanda.apply(Watch(analyze, "clone")):
        tensor.clone()
    return found


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.bfloat16, np.float32),
        (torch.float8_e4m3fn, np.float32),
        (torch.float8_e5m2, np.float32),
        (torch.float16, np.float16),
        (torch.float64, np.float64),
        (torch.complex64, np.complex64),
        (torch.int8, np.int8),
        (torch.bool, np.bool_),
    ],
)
def test_a_type_that_numpy_lacks_is_one_that_has_all_its_values(dtype, expected) -> None:
    values = [0.0, 1.0, 1.5] if dtype.is_floating_point or dtype.is_complex else [0, 1, 1]
    (array,) = arrays(torch.tensor(values).to(dtype))
    assert array.dtype == expected
    assert array.tolist() == np.array(values).astype(expected).tolist()


def test_a_tensor_that_needs_a_gradient_has_an_array() -> None:
    (array,) = arrays(torch.ones(2, requires_grad=True))
    assert array.tolist() == [1, 1]


def test_an_array_is_not_written_to_with_the_tensor() -> None:
    tensor = torch.ones(2)
    (array,) = arrays(tensor)
    tensor.zero_()
    assert array.tolist() == [1, 1]


def test_a_tensor_without_elements_to_show_says_so() -> None:
    with pytest.raises(amanda.RoutineError, match="ValueUnavailableError: NumPy cannot hold it"):
        arrays(torch.ones(2, device="meta"))


def test_what_is_read_of_a_tensor_leaves_its_memory_as_free_to_be_resized_as_it_was() -> None:
    tensor = torch.arange(4.0)
    (array,) = arrays(tensor)
    tensor.untyped_storage().resize_(0)
    assert array.tolist() == [0, 1, 2, 3]


def test_what_is_read_of_a_tensor_is_a_copy_that_nobody_sees() -> None:
    tensor, seen = torch.arange(4.0).view(2, 2).t(), []
    tool = amanda.Tool()
    tool.add_inst_for_op(lambda ctx: seen.append(ctx.op.type))
    with Shown() as mode, amanda.apply(tool):
        array = driver.value(tensor)
    assert "aten.clone.default" not in mode.shown
    assert not seen
    tensor.zero_()
    assert array.tolist() == [[0, 2], [1, 3]]


def test_a_tensor_that_stands_for_others_has_no_array_and_a_way_out() -> None:
    with pytest.raises(amanda.RoutineError, match=r"it is a TwoTensor, .*compute with it in a rou"):
        arrays(TwoTensor(torch.ones(2), torch.ones(2)))


X = torch.randn(2, 3, 4, 4)
WEIGHT = torch.nn.Parameter(torch.randn(3))


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda: torch.nn.Conv2d(3, 2, 1)(X), {"conv2d": 0}),
        (lambda: torch.nn.BatchNorm2d(3)(X), {"batch_norm": 0}),
        (lambda: torch.nn.LSTM(4, 3)(X[0]), {"lstm": 0}),
        (lambda: torch.nn.Embedding(5, 3)(torch.tensor([1])), {"embedding": None}),
        (lambda: X.softmax(1), {"softmax": 0}),
        (lambda: X + X.abs(), {"add": None}),
        (lambda: X * 2, {"mul": 0}),
        (lambda: X * torch.tensor(2.0), {"mul": 0}),
        (lambda: F.prelu(X, WEIGHT), {"prelu": 0}),
        (lambda: X.where(X > 0, WEIGHT[0]), {"where": 1}),
        (lambda: X @ X, {"matmul": None}),
        (lambda: torch.addmm(WEIGHT, X[0, 0], torch.ones(4, 3)), {"addmm": None}),
        (lambda: X.to(torch.bfloat16).abs(), {"abs": 0}),
        (lambda: X.to(torch.complex64).neg(), {"neg": 0}),
        (lambda: torch.arange(3).neg(), {"neg": None}),
    ],
)
def test_what_flows_through_an_operator(run, expected) -> None:
    found = {}
    with amanda.apply(
        Watch(lambda ctx: found.setdefault(ctx.op.type, ctx.activation), list(expected))
    ):
        run()
    assert found == expected
