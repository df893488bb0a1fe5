"""What sees the gradient of one call of a module as a whole.

It is put between boundaries as an operator is, but runs once, whatever it turns out to do. What it
returns may be, or be a view of, what it was given (``Identity``, ``Flatten``), and it may write to
that (``ReLU(inplace=True)``). A program may write to the one and use the other, so such results
stay linked to the program's own tensors: as views of them, or as these tensors themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_torch._internals import sequence_number, view_again
from amanda_torch.gradient import edges
from amanda_torch.straight import rebase
from amanda_torch.watch import Unwatched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from amanda_torch.asked import Kept
    from amanda_torch.gradient import Gradient
    from amanda_torch.watch import Shown


class ModuleWatch(Unwatched):
    """Sees the gradient of one call of a module.

    Args:
        gradient: watches it.
    """

    def __init__(self, gradient: Gradient) -> None:
        self._gradient = gradient
        self.kept: Kept = gradient.kept
        self._inputs: Sequence[Tensor] = ()
        self._given: Sequence[Tensor] = ()
        self._versions: Sequence[int] = ()
        self._number = 0
        self._written: dict[int, Tensor] = {}

    def gave(self, outputs: Sequence[Tensor]) -> None:
        """The module has given these outputs."""
        self.kept.keep(outputs=outputs)

    def enter(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """What to call the module with."""
        self._inputs = inputs
        self._given = self._gradient.enter(inputs)
        self._versions = [_version(tensor) for tensor in self._given]
        self._number = sequence_number()
        return self._given

    def leave(self, outputs: Sequence[Tensor], shown: Shown) -> Sequence[Tensor]:
        """What it gave, as it is passed on."""
        given = self._given
        place = {id(t._base): i for i, t in enumerate(given) if t._base is not None}
        place |= {id(tensor): i for i, tensor in enumerate(given)}
        views: dict[int, Tensor] = {}
        returned: dict[int, int] = {}  # what was written to, by where it is among the outputs
        for j, output in enumerate(outputs):
            i = place.get(id(output), place.get(id(output._base)))
            if i is None or not output.requires_grad:
                continue
            if _version(given[i]) == self._versions[i]:
                views[j] = _of_program(output, given[i], self._inputs[i])
            elif output is given[i]:
                returned[j] = i
        apart = [t.detach() if j in views else t for j, t in enumerate(outputs)]
        found = list(self._gradient.leave(edges(given), given, apart, shown))
        if views:
            hooked = [views.get(j, t.detach()) for j, t in enumerate(outputs)]
            ahead = edges(self._inputs)
            self._gradient.hook(self._number, ahead, self._inputs, hooked, shown)
            for j, view in views.items():
                found[j] = view
        self._written = {
            i: tensor for i, tensor in enumerate(given) if _version(tensor) != self._versions[i]
        }
        self._written |= {i: found[j] for j, i in returned.items()}
        return found

    def finish(self, outputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """What the caller gets; what the module wrote to continues the graph of what it wrote."""
        found = list(outputs)
        for i, written in self._written.items():
            target = self._inputs[i]
            if written is not target and written.requires_grad:
                rebase(target, written)
            for j, output in enumerate(outputs):
                if output is written:
                    found[j] = target
        return found


def _of_program(output: Tensor, given: Tensor, tensor: Tensor) -> Tensor:
    """A result that is what the module was given, or a view of that, as a view of the program's."""
    if output is given:
        return tensor.view_as(tensor)
    return output if given is tensor else view_again(output, tensor)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
