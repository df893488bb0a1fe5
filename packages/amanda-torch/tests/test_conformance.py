"""The PyTorch driver does all that a driver must."""

from amanda.testing import Conformance, InPlace
from torch_adapter import TorchAdapter


class TestTorch(Conformance, InPlace):
    adapter = TorchAdapter()
