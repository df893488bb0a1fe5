"""A routine that replaces an operator may run the operator itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from amanda_torch.backward.asked import written
from amanda_torch.execution.routines import recording
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from amanda_torch.execution.call import Call

    # What an operator, or its replacement, returned, and the tensors that are its results.
    Result = tuple[Any, Sequence[Tensor]]
    Original = Callable[[Sequence[Tensor]], Result]


class Rerun:
    """A rerun runs an operator for the routine that replaces it; no tool sees that.

    What the operator writes to are copies, so that the program's own tensors are written to once,
    with what the routine returns.

    Args:
        call: the execution.
        substituted: the operator's inputs, as the routine is given them.
        first: the operator's own run, whose gradient stays; it serves the routine, too, when that
            runs the operator on these inputs. None if there is no such gradient.
        given: what that run is given for these inputs.

    Attributes:
        ran: what that run gave; None if the routine has not asked for it.
        ran_otherwise: what the first one of other runs gave.
    """

    def __init__(
        self,
        call: Call,
        substituted: Sequence[Tensor],
        first: Original | None,
        given: Sequence[Tensor],
    ) -> None:
        self._call = call
        self._substituted = substituted
        self._first = first
        self._given = given
        self._recording = torch.is_grad_enabled()
        self.ran: Result | None = None
        self.ran_otherwise: Result | None = None

    def __call__(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the operator's results for these inputs."""
        same = all(new is old for new, old in zip(tensors, self._substituted, strict=True))
        if same and self._first is not None and self.ran is None:
            self.ran = recording(self._recording, True, self._first, self._given)
            with unshown():
                return [output.detach() for output in self.ran[1]]
        call = self._call
        signature = call.form.signature
        own = list(tensors)
        with unshown():
            writes = signature.writes or signature.opaque
            for place in written(signature, call.args, tensors) if writes else ():
                if not self._updates(place, own[place]):
                    own[place] = own[place].clone()
        result = call.run(None, own)
        outputs: Sequence[Tensor] = signature.outputs_of(result)
        self.ran_otherwise = self.ran_otherwise or (result, outputs)
        out = signature.out_tensors(call.kwargs)
        if out:
            with unshown():
                return [tensor.clone() for tensor in out]
        return outputs or [own[i] for i in signature.places(signature.written, call.args)]

    def _updates(self, place: int, tensor: Tensor) -> bool:
        """Tell whether it is state of the program (running means), which no other run updates."""
        signature, args = self._call.form.signature, self._call.args
        is_state = self._first is None and place in signature.places(signature.state, args)
        return is_state and tensor is self._call.inputs()[place]
