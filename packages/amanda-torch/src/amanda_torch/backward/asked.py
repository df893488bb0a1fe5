"""Routines may ask for tensors of the forward side, and get them as they were when it ran.

For routines after an operator they are those that it was given; what it writes to is copied ahead.
For routines on its gradient they are kept without their graph, so that they are freed with that of
the operator. They are not copied: as with what autograd saves, it is an error if the program writes
to one before its backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from amanda.driving import NOTHING, Ask, Forward

from amanda_torch._internals import unwrap_if_dead
from amanda_torch.overrides import keeping_classes
from amanda_torch.tensors.batches import UNBATCHED, innermost, layers
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from amanda import Operator
    from amanda.driving import Plan
    from torch import Tensor

    from amanda_torch.operators.signature import Args, Signature
    from amanda_torch.tensors.batches import Batches


def written(signature: Signature, args: Args, inputs: Sequence[Tensor]) -> Sequence[int]:
    """List which inputs an operator may write to."""
    if signature.opaque:
        return range(len(inputs))
    return signature.places((*signature.written, *signature.state), args)


def copied(tensors: Sequence[Tensor], places: Iterable[int]) -> Sequence[Tensor]:
    """Return the tensors, with copies of those at some places."""
    result = list(tensors)
    with unshown():
        for place in places:
            result[place] = keeping_classes(torch.Tensor.clone, tensors[place])
    return result


class _KeptTensor:
    """This keeps a tensor of the forward side without its graph."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = keeping_classes(torch.Tensor.detach, tensor)
        self._version = _version(self._tensor)
        self._layers = layers(tensor, below_autograd=True)

    @property
    def is_as_it_was(self) -> bool:
        """Tell whether nothing was written to it since."""
        return _version(self._tensor) == self._version

    def now(self, batches: Batches) -> Tensor:
        """Return the tensor as what runs now is given it: one sample of a batch within ``vmap``."""
        tensor = self._tensor
        if unwrap_if_dead(tensor) is tensor:
            return tensor
        found = batches.of_sample(innermost(tensor), self._layers)
        assert found is not None
        return found


class Kept:
    """This keeps tensors of the forward side of one execution for routines on its gradient.

    Args:
        plan: what they ask for; None while that is not known, when all is kept.
    """

    def __init__(self, plan: Plan | None) -> None:
        self._asked = None if plan is None else plan.asked
        self._tensors: dict[Ask, _KeptTensor] = {}
        self._batches = UNBATCHED

    def wants(self, what: str) -> bool:
        """Tell whether any of the inputs, or of the outputs, are to be kept."""
        return self._asked is None or any(ask.what == what for ask in self._asked)

    def keep(self, **forward: Sequence[Tensor]) -> None:
        """Keep what is asked for of the tensors of a kind, by its name."""
        with unshown():
            for what, tensors in forward.items():
                for index, tensor in enumerate(tensors):
                    ask = Ask(what, index)  # type: ignore[arg-type]
                    if self._asked is None or ask in self._asked:
                        self._tensors[ask] = _KeptTensor(tensor)

    def batched_as(self, batches: Batches) -> None:
        """Take note of how ``vmap`` has wrapped the tensors of the execution."""
        self._batches = batches

    def forward(self, plan: Plan, operator: Operator) -> Forward:
        """Return what routines on the gradient may ask for.

        Raises:
            RoutineError: the program has written to it.
        """
        if self._asked is None:
            self._asked = plan.asked
            self._tensors = {a: kept for a, kept in self._tensors.items() if a in plan.asked}
        if not self._tensors:
            return NOTHING
        for ask, kept in self._tensors.items():
            if not kept.is_as_it_was:
                action = next(a for a in (*plan.before, *plan.after) if ask in a.asked)
                raise action.error(
                    f"asks for {ask.what}[{ask.index}], which the program has written to since "
                    "the operator ran; have the program do that out of place, or have a routine "
                    "after the operator keep a copy",
                    operator,
                )
        return Forward.of({ask: kept.now(self._batches) for ask, kept in self._tensors.items()})


def _version(tensor: Tensor) -> int | None:
    """Count how often something was written to a tensor; None where PyTorch does not count that."""
    return None if tensor.is_inference() else tensor._version
