"""Operators that take functions, as ``torch.cond`` and ``scan`` do, need care of their own.

They are none for the dispatcher: what their functions run is seen, and they are not operators
themselves. Run eagerly, PyTorch captures such a function with its compiler before it runs it, to
find what it reads from outside. Nothing is seen of that, but all of what is then run.

Their gradient is none of autograd's: PyTorch derives it from the captured function. So what is
inside has no gradient to be watched there, and nothing can be substituted.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import torch
from amanda import AmandaWarning, UnsupportedError
from torch import Tensor

from amanda_torch._internals import ops_module, tree_leaves
from amanda_torch.thread import KEY, intercept, intercepting, local

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from amanda import Operator
    from amanda.driving import Action

_MODULES = ("torch._higher_order_ops.", "torch.nn.attention.flex_attention")
_compute_keyset = ops_module._compute_keyset
_watching: weakref.WeakKeyDictionary[Callable[..., Any], Callable[..., Any]] = (
    weakref.WeakKeyDictionary()
)


def keyset(args: Any, kwargs: Any, keys: Any) -> Any:
    """Return the dispatch keys of an operator that takes functions, without ours."""
    return _compute_keyset(args, kwargs, keys.remove(KEY))


def captures(frame: FrameType) -> bool:
    """Tell whether code is that with which PyTorch captures the function of an operator."""
    return str(frame.f_globals.get("__name__")).startswith(_MODULES)


def captured(
    compile: Callable[..., Any], function: Callable[..., Any], backend: Any, **options: Any
) -> Callable[..., Any]:
    """Return ``torch.compile`` of an operator's function, seen only where it runs."""
    if not callable(backend):
        return compile(function, backend=backend, **options)  # type: ignore[no-any-return]
    compiled = compile(function, backend=_watched(backend), **options)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        thread, on = local.thread, intercepting()
        before, thread.capturing = thread.capturing, on
        intercept(False)
        try:
            with torch.compiler.set_stance("default"):
                return compiled(*args, **kwargs)
        finally:
            thread.capturing = before
            intercept(on)

    return run


def _watched(backend: Callable[..., Any]) -> Callable[..., Any]:
    """Return a backend of the compiler whose programs are seen when they run."""
    if backend not in _watching:

        @functools.wraps(backend)
        def watched(*args: Any, **kwargs: Any) -> Callable[..., Any]:
            program = backend(*args, **kwargs)

            def run(*args: Any) -> Any:
                on = intercepting()
                intercept(local.thread.capturing)
                try:
                    return program(*args)
                finally:
                    intercept(on)

            return run

        _watching[backend] = watched
    return _watching[backend]


def is_derived(cls: type) -> bool:
    """Tell whether a custom Function is the gradient that PyTorch derives for such an operator."""
    return cls.__module__.startswith(_MODULES)


def run_derived(
    cls: type, apply: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run the Function that gives such an operator its gradient."""
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    if not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors)):
        return apply(cls, *args, **kwargs)
    thread = local.thread
    before, thread.derived = thread.derived, cls.__module__.rpartition(".")[2]
    try:
        return apply(cls, *args, **kwargs)
    finally:
        thread.derived = before


def refuse_substitution(actions: Sequence[Action], operator: Operator) -> None:
    """Refuse what routines substitute where a gradient is derived from something else.

    Raises:
        UnsupportedError: the operator runs there.
    """
    derived = local.thread.derived
    if derived is None:
        return
    tools = ", ".join(dict.fromkeys(type(action.tool).__name__ for action in actions))
    raise UnsupportedError(
        f"{operator.named}: {tools} substitutes a tensor within {derived}, whose gradient PyTorch "
        "derives without the substitute; run it under torch.no_grad(), or have the model call "
        f"plain functions instead of {derived}"
    )


def warn_of_gradient(operator: Operator) -> None:
    """Warn that a tool does not see a gradient that it wants."""
    derived = local.thread.derived
    if derived is not None:
        warnings.warn(
            f"{operator.named}: the gradient of what runs within {derived} is computed by PyTorch "
            "as one, and no tool sees that of the operators inside; have the model call plain "
            f"functions instead of {derived} to see it",
            AmandaWarning,
            stacklevel=2,
        )
