"""Where PyTorch differentiates or batches an operator itself, what it computes for that is unseen.

Under the transforms of ``torch.func``, and for gradients in forward mode, the kernels of an
operator call other ones below the place where the program calls it: the formula of its tangent,
or the operator again on the whole batch. Those are none of the program's. What a composite is made
of is the program's, and is called from where the composite is.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from amanda_torch._internals import (
    DispatchKey,
    forward_ad,
    has_kernel,
    transforms_active,
)
from amanda_torch.frames import not_a_call_site

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch._ops import OpOverload

    Run = Callable[..., Any]

_COMPOSITE = "CompositeImplicitAutograd"


def is_derived_here() -> bool:
    """Tell whether PyTorch transforms operators, or computes tangents, at this moment."""
    return transforms_active() or forward_ad._current_level >= 0


def is_whole(name: str) -> bool:
    """Tell whether an operator of ``aten`` is transformed and differentiated as one.

    What libraries add may be written in Python, and is looked into as everywhere.
    """
    if not name.startswith("aten::"):
        return False
    return not has_kernel(name, _COMPOSITE) or has_kernel(name, "FuncTorchBatched")


def composition(operator: OpOverload, resume: Run) -> Run:
    """Return what runs what a composite is made of, so that each part is transformed by itself."""
    if not has_kernel(operator.name(), _COMPOSITE):
        return resume
    run: Run = functools.partial(operator._op_dk, DispatchKey.CompositeImplicitAutograd)

    @not_a_call_site
    def compose(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs) if transforms_active() else resume(*args, **kwargs)

    return compose
