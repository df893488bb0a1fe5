"""An operator's purpose (a model, its parameters, its data) is told by the code that runs it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

from amanda_torch._internals import call_impl
from amanda_torch.frames import first_argument

if TYPE_CHECKING:
    from types import FrameType

# Methods of modules and models that give parameters their values.
_MAKING = frozenset(("__init__", "reset_parameters", "load_state_dict", "_apply", "_init_weights"))
# The same for methods of classes.
_LOADING = frozenset(("from_pretrained",))


# Modules of torch that compute parameters of others, also by modules of the program.
_COMPUTING = frozenset(
    f"torch.nn.utils.{name}"
    for name in ("parametrize", "parametrizations", "spectral_norm", "weight_norm")
)


def computes_parameter() -> bool:
    """Tell whether the operator that is being run is of what computes a parameter of others."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") in _COMPUTING:
            return True
        frame = frame.f_back
    return False


def purpose() -> str:
    """Return what the operator that is being run is there for, by the innermost code that tells."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
        if code is call_impl.__code__:
            return "model"
        if module.startswith("torch.optim."):
            return "optimizer"
        if module.startswith(("torch.utils.data.", "torchvision.transforms.")):
            return "data"
        if module == "torch.nn.init" or code.co_name in _LOADING:
            return "initialization"
        if code.co_name in _MAKING and isinstance(first_argument(frame), torch.nn.Module):
            return "initialization"
        frame = frame.f_back
    return "model"
