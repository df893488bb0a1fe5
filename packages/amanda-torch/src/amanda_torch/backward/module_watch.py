"""A module's call is watched here for its gradient as a whole.

It is put between boundaries as an operator is, but runs once, whatever it turns out to do. What it
returns may be, or be a view of, what it was given (``Identity``, ``Flatten``), and it may write to
that (``ReLU(inplace=True)``). A program may write to the one and use the other, and so these stay
linked: what the program gets is a view of its own tensor, or that itself.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from amanda import AmandaWarning

from amanda_torch._internals import sequence_number, view_again
from amanda_torch.backward.edges import edges
from amanda_torch.backward.watch import Unwatched
from amanda_torch.overrides import keeping_classes
from amanda_torch.tensors.straight import rebase
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amanda.driving import Plan
    from torch import Tensor
    from torch.autograd.graph import GradientEdge

    from amanda_torch.backward.asked import Kept
    from amanda_torch.backward.gradient import Gradient
    from amanda_torch.backward.watch import Shown


class ModuleWatch(Unwatched):
    """This sees the gradient of one call of a module.

    Args:
        gradient: watches it.
    """

    def __init__(self, gradient: Gradient) -> None:
        self._gradient = gradient
        self.kept: Kept | None = gradient.kept
        self._inputs: Sequence[Tensor] = ()
        self._given: Sequence[Tensor] = ()
        self._versions: Sequence[int] = ()
        self._number = 0
        self._ahead: Sequence[GradientEdge | None] = ()

    def complete(self, plan: Plan) -> None:
        """Take note of what analyses have decided that waited for the outputs."""
        self._gradient.plan = plan.whole

    def gave(self, outputs: Sequence[Tensor]) -> None:
        """Take note of the outputs that the module has given."""
        if self.kept is not None:
            self.kept.keep(outputs=outputs)

    def enter(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return what to call the module with."""
        self._inputs = inputs
        self._given = self._gradient.enter(inputs)
        self._ahead = edges(self._given)
        self._versions = [_version(tensor) for tensor in self._given]
        self._number = sequence_number()
        return self._given

    def leave(self, outputs: Sequence[Tensor], shown: Shown) -> Sequence[Tensor]:
        """Return what it gave, as it is passed on."""
        with unshown():
            return self._left(outputs, shown)

    def _left(self, outputs: Sequence[Tensor], shown: Shown) -> Sequence[Tensor]:
        given = self._given
        written = {i for i, t in enumerate(given) if _version(t) != self._versions[i]}
        linked = self._linked(outputs)
        returned = {j for j, i in linked.items() if i in written and outputs[j] is given[i]}
        viewed = linked.keys() - returned
        bounded = [t.detach() if j in viewed else t for j, t in enumerate(outputs)]
        found = list(self._gradient.leave(self._number, self._ahead, given, bounded, shown))
        own = edges(self._inputs)
        for i in written:  # what the program holds continues the graph of what was written to it
            results = (found[j] for j in returned if linked[j] == i)
            self._continue(i, next(results, given[i]))
        for j in returned:
            found[j] = self._inputs[linked[j]]
        for j in viewed:
            i = linked[j]
            found[j] = _of_program(outputs[j], given[i], self._inputs[i])
        passing = {j: found[j] for j in viewed if linked[j] not in written}
        self._hook(passing, own, outputs, shown, ahead=True)
        writing = {j: found[j] for j in viewed if linked[j] in written}
        self._hook(writing, own, outputs, shown, ahead=False)
        if writing and self._gradient.looks_ahead and not self._gradient.is_bounded:
            _warn(shown)
        return found

    def _linked(self, outputs: Sequence[Tensor]) -> dict[int, int]:
        """List which outputs are, or are views of, which inputs."""
        place = {id(t._base): i for i, t in enumerate(self._given) if t._base is not None}
        place |= {id(tensor): i for i, tensor in enumerate(self._given)}
        found = ((j, place.get(id(t), place.get(id(t._base)))) for j, t in enumerate(outputs))
        return {j: i for j, i in found if i is not None and outputs[j].requires_grad}

    def _continue(self, i: int, written: Tensor) -> None:
        target = self._inputs[i]
        if written is not target and written.requires_grad:
            rebase(target, written)

    def _hook(
        self,
        views: Mapping[int, Tensor],
        own: Sequence[GradientEdge | None],
        outputs: Sequence[Tensor],
        shown: Shown,
        ahead: bool,
    ) -> None:
        """Watch results that are views of the program's tensors."""
        if views:
            watched = [views.get(j, t.detach()) for j, t in enumerate(outputs)]
            self._gradient.hook(self._number, own, self._inputs, watched, shown, ahead)


def _of_program(output: Tensor, given: Tensor, tensor: Tensor) -> Tensor:
    """Return a module's output, which is or views an input, as a view of the program's tensor."""
    if output is given:
        found: Tensor = keeping_classes(lambda t: t.view_as(t), tensor)
    else:
        found = output if given is tensor else keeping_classes(view_again, output, tensor)
    return found


def _warn(shown: Shown) -> None:
    operator = shown(()).operator
    warnings.warn(
        f"{operator.named} writes to what it is given and returns a view of it: routines that are "
        "annotated to return None do not see the gradients of its inputs; leave out the annotation",
        AmandaWarning,
        stacklevel=2,
    )


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
