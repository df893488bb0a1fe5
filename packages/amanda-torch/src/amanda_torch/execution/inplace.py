"""Operators may write to tensors that the program holds: in place, or with ``out=``.

Such an operator runs on the program's own tensors wherever it can, so that to observe it costs no
copy and leaves its autograd graph as it is. A routine that replaces its result writes once more to
these tensors, and what the operator has saved of them for its backward is set aside before.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from amanda_torch._internals import (
    active_saved_hooks,
    is_wrapped,
    saved_hooks_allowed,
    share_memory,
    without_transforms,
)
from amanda_torch.execution.routines import unrecorded
from amanda_torch.overrides import keeping_classes
from amanda_torch.tensors.batches import innermost, layers
from amanda_torch.tensors.straight import rebase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amanda_torch.operators.signature import Args, Kwargs, Signature

_nothing = contextlib.nullcontext()


class Nowhere:
    """This stands for the destinations of an operator that writes nowhere."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature

    @property
    def count(self) -> int | None:
        """Count the results; None if that is known only once the operator has run."""
        return self._signature.returns

    def refused(self) -> bool:
        """Tell whether autograd will not have it write there, which is an error anyway."""
        return False

    def give(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return what to run the operator on, for the inputs with what routines substituted."""
        return given

    def watched(self) -> contextlib.AbstractContextManager[None]:
        """Open a block that takes note of what the operator saves for its backward."""
        return _nothing

    def results(self, outputs: Sequence[Tensor], arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the results of the operator, also if it returns nothing.

        Args:
            outputs: what it returned.
            arguments: the tensors that it was run on.
        """
        return outputs

    def write(
        self,
        finished: Sequence[Tensor],
        bounded: Sequence[Tensor],
        refused: Callable[[str], Exception],
    ) -> Sequence[Tensor]:
        """Have the program's tensors hold what the results have become, and return these.

        Args:
            finished: the results, or what routines have replaced them by.
            bounded: the results if they lie behind a boundary, in memory of their own or not.
            refused: makes an error of why a substitute cannot be written where it should.
        """
        return finished


class Destinations(Nowhere):
    """This holds the program's tensors that one execution writes its results to.

    Args:
        signature: that of the operator.
        inputs: the tensors that the program gives it.
        args: its arguments.
        kwargs: its keyword arguments.
        apart: it is to write to copies, and not to the program's tensors.
        rewritten: its results may be replaced, and a backward may need what it saves of them.
    """

    def __init__(
        self,
        signature: Signature,
        inputs: Sequence[Tensor],
        args: Args,
        kwargs: Kwargs,
        apart: bool,
        rewritten: bool,
    ) -> None:
        super().__init__(signature)
        self._inputs = inputs
        # Which inputs the results are written to, in the order of the results.
        self._places: Sequence[int | None] = signature.places(signature.written, args)
        self._state = signature.places(signature.state, args)
        self._out = signature.out_tensors(kwargs)
        # Hooks of the program's own would not see what it saves; it is left to them.
        can_be_watched = saved_hooks_allowed() and active_saved_hooks(True) is None
        self._apart = apart or (rewritten and not can_be_watched)
        self._watched = rewritten and not self._apart
        self._saved: list[_Saved] = []
        self._moved_state: list[tuple[Tensor, Tensor, Tensor]] = []

    @property
    def count(self) -> int | None:
        """Count them; None if that is known only once the operator has run."""
        if self._signature.marks_dirty:
            return None
        return len(self._places) or len(self._out) or super().count  # it writes to state alone

    def refused(self) -> bool:
        """Tell whether autograd will not have it write to one of them, which is an error anyway."""
        targets = [self._inputs[place] for place in self._places if place is not None]
        bases = [t if t._base is None else t._base for t in targets]
        return any(base.is_leaf and base.requires_grad for base in bases)

    def give(self, given: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return what to run the operator on, for the inputs with what routines substituted."""
        if given is self._inputs and not self._apart:
            return given
        signature = self._signature
        passed = list(given)
        for i in self._state:
            if given[i] is not self._inputs[i]:
                passed[i] = keeping_classes(Tensor.clone, given[i])
                self._moved_state.append((self._inputs[i], given[i], passed[i]))
        for i, (tensor, substitute) in enumerate(zip(self._inputs, given, strict=True)):
            moved = substitute is not tensor
            if not (i in self._places or signature.marks_dirty):
                continue
            if not signature.reshapes:
                if moved or self._apart:
                    passed[i] = keeping_classes(Tensor.clone, substitute)
            elif moved:
                passed[i] = tensor.copy_(substitute)  # whose shape the operator is to change
        return passed

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Take note of what the operator saves for its backward."""
        if not self._watched:
            yield
            return
        noted = self._saved

        def note(tensor: Tensor) -> _Saved:  # autograd keeps it: it must not keep the inputs
            noted.append(_Saved(tensor))
            return noted[-1]

        with torch.autograd.graph.saved_tensors_hooks(note, _Saved.restored):
            yield

    def results(self, outputs: Sequence[Tensor], arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the results of the operator, also if it returns nothing."""
        for tensor, substitute, copy in self._moved_state:
            if not torch.equal(substitute, copy):  # it has been written to
                _write_state(tensor, copy)
        if self._signature.marks_dirty:
            place = {id(tensor): i for i, tensor in enumerate(arguments)}
            self._places = [place.get(id(output)) for output in outputs]
        if outputs:
            return outputs
        return self._out or [arguments[i] for i in self._places if i is not None]

    def write(
        self,
        finished: Sequence[Tensor],
        bounded: Sequence[Tensor],
        refused: Callable[[str], Exception],
    ) -> Sequence[Tensor]:
        """Have the program's tensors hold what the results have become, and return these."""
        written = list(finished)
        places = self._places or self._out or [None] * len(written)
        for i, (place, value) in enumerate(zip(places, finished, strict=True)):
            if place is None:
                continue
            target = place if isinstance(place, Tensor) else self._inputs[place]
            written[i] = target
            if value is target:
                continue
            in_its_memory = share_memory(value, target)
            if in_its_memory and bounded and value is bounded[i]:
                rebase(target, value)  # it holds the value, without the boundary
                continue
            if isinstance(place, Tensor) and value.shape != place.shape:
                place.resize_(value.shape)
            reason = _misfit(value, target)
            if reason is not None:
                raise refused(reason)
            for saved in self._saved:
                if share_memory(saved.tensor, target):
                    saved.set_aside()
            target.copy_(value.clone() if in_its_memory else value)
        self._saved.clear()
        return written


class _Saved:
    """This is a tensor that an operator has saved for its backward."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()  # its graph leads back to what has saved it
        self.version = self.tensor._version

    def set_aside(self) -> None:
        """Become independent of what is written to its memory from now on."""
        self.tensor = self.tensor.clone()
        self.version = self.tensor._version

    def restored(self) -> Tensor:
        """Return the tensor; as without hooks, it is an error if the program wrote to it since."""
        if self.tensor._version != self.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: [{self.tensor.type()} {list(self.tensor.shape)}] is at "
                f"version {self.tensor._version}; expected version {self.version} instead"
            )
        return self.tensor


def _write_state(state: Tensor, value: Tensor) -> None:
    """Write what an operator has made of state of the program, which has no gradient.

    What a transform of ``torch.func`` captures is written to below it, as operators do.
    """
    batched = bool(layers(value, below_autograd=True))
    captured = is_wrapped(value) and not (is_wrapped(state) or batched)
    with without_transforms() if captured else _nothing:
        unrecorded(state.copy_, innermost(value) if captured else value)


def _misfit(value: Tensor, target: Tensor) -> str | None:
    """Tell why a value cannot be written to a tensor as it is."""
    for what in ("dtype", "device", "shape"):
        given, expected = getattr(value, what), getattr(target, what)
        if given != expected:
            return f"returned {what} {given} to be written in place of {what} {expected}"
    return None
