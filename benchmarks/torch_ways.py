"""Ways to run PyTorch: under tools of Amanda, and under PyTorch's own means."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from amanda_tools import Flops, Profile
from torch.overrides import TorchFunctionMode
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.empty import Empty
from benchmarks.measuring import around
from benchmarks.tool_ways import traced, under

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring import Way


class FunctionMode(TorchFunctionMode):
    """Does nothing, for every function of PyTorch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class DispatchMode(TorchDispatchMode):
    """Does nothing, for every operator that reaches a kernel."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def nothing(*_: object) -> None:
    pass


def hooked(model: torch.nn.Module, backward: bool = False) -> Way:
    """The way with a hook on every module that does nothing, and on its backward too."""

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        handles = [module.register_forward_hook(nothing) for module in model.modules()]
        if backward:
            handles += [module.register_full_backward_hook(nothing) for module in model.modules()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    return around(block)


def profiled() -> Way:
    """The way under ``torch.profiler``; what it does at its end is not timed."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    return around(lambda: torch.profiler.profile(activities=activities))


NEVER, ONE, FORWARD = "a type that never occurs", "one type", "all forward"
BOTH = "forward and backward"
FUNCTION_MODE, DISPATCH_MODE = "TorchFunctionMode", "TorchDispatchMode"


def amanda_ways(one: str) -> dict[str, Way]:
    """The columns of the issue: from a type that never occurs to ``trace``.

    Args:
        one: the type that matters most in a model, for the way with one type.
    """
    return {
        NEVER: under(lambda: Empty(["conv3d"])),
        ONE: under(lambda: Empty([one])),
        FORWARD: under(Empty),
        BOTH: under(lambda: Empty(backward=True)),
        "`flops`": under(Flops),
        "`profile`": under(Profile),
        "`trace`": traced(),
    }


def torch_ways(model: torch.nn.Module, training: bool) -> dict[str, Way]:
    """PyTorch's own means."""
    hooks = "module hooks, forward and backward" if training else "module hooks"
    return {
        FUNCTION_MODE: around(FunctionMode),
        DISPATCH_MODE: around(DispatchMode),
        "DebugMode": around(DebugMode),
        hooks: hooked(model, backward=training),
        "FlopCounterMode": around(lambda: FlopCounterMode(display=False)),
        "torch.profiler": profiled(),
    }
