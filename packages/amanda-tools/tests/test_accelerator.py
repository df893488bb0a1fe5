"""What an accelerator tells; there is none here, so PyTorch's answers are made up."""

import pytest
import torch
from amanda_tools.accelerator import accelerator_of


class OnCuda:
    is_cuda = True
    device = torch.device("cuda", 1)


@pytest.fixture
def calls(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: calls.append(device))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100 + device.index)
    return calls


def test_of_a_cuda_tensor_is_its_device(calls):
    accelerator = accelerator_of([torch.ones(2), None, OnCuda()])
    accelerator.synchronize()
    assert calls == [OnCuda.device]
    assert accelerator.allocated() == 101


@pytest.mark.parametrize("tensors", [[], [None], [torch.ones(2), object()]])
def test_of_others_is_none(tensors):
    assert accelerator_of(tensors) is None
