"""Lineage tells which operators made, wrote or viewed the memory of tensors, for tools that ask.

A tensor is found by its memory and where it lies in that, so that what PyTorch aliases without an
operator that anybody sees (``detach``, ``.data``) is the same. No tensor is held, nor is one
referred to weakly, which a program could notice: of a tensor its object's number is kept, of its
memory a weak reference.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from amanda_torch._internals import DisableTorchFunction, StorageWeakRef, has_storage
from amanda_torch.frames import not_a_call_site
from amanda_torch.operators.signature import outputs_of
from amanda_torch.tensors.batches import innermost
from amanda_torch.tensors.extents import Extent, extent_of
from amanda_torch.tracing import is_tracing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from amanda import Operator, Tool
    from amanda.driving import Engine, Plan
    from torch import Tensor

    from amanda_torch.execution.call import Strategy
    from amanda_torch.operators.signature import Args, Kwargs
    from amanda_torch.operators.targets import Form


_EVENTS = 256  # of one memory that are told apart: a cache is written to at each step


class Event(NamedTuple):
    """An event is an operator that gave a tensor or wrote to one.

    Attributes:
        operator: a snapshot of it, since a module may be gone before what it gave is.
        output: which of its outputs that is.
        extent: where the tensor lies in its memory.
        object: the number of the object that it was.
        wrote: whether the contents are the operator's; else it gave a view of them.
    """

    operator: Operator
    output: int
    extent: Extent
    object: int
    wrote: bool

    def gave(self, object: int, extent: Extent) -> bool:
        """Tell whether a tensor is the very one."""
        return self.object == object and self.extent == extent

    def repeats(self, other: Event) -> bool:
        """Tell whether another one is of the same operator and place."""
        same = self.operator == other.operator and self.output == other.output
        return same and self.extent == other.extent


class _Memory:
    """This is what happened to the memory of a tensor, oldest first."""

    def __init__(self, storage: Any) -> None:
        self.reference = StorageWeakRef(storage)
        self.bytes: int = storage.nbytes()
        self.events: list[Event] = []

    def add(self, event: Event) -> None:
        """Take note of an event, and forget those that can no longer be of interest."""
        if event.wrote and event.extent.fills(self.bytes):
            self.events = [event]
            return
        self.events = [known for known in self.events if not event.repeats(known)]
        self.events.append(event)
        if len(self.events) > _EVENTS:
            self.events = _summed_up(self.events[: _EVENTS // 2]) + self.events[_EVENTS // 2 :]

    def makers(self, object: int, extent: Extent) -> Iterator[Event]:
        """List the events to which a tensor there owes what it is."""
        known = any(event.gave(object, extent) for event in self.events)
        for event in reversed(self.events):
            same = event.gave(object, extent)
            if event.wrote:
                if same or event.extent.meets(extent):
                    yield event
                if same or event.extent.covers(extent):
                    return
            elif same or (not known and event.extent == extent):
                yield event
                return


def _summed_up(events: Sequence[Event]) -> list[Event]:
    """Sum up what was written long ago, as one event for each output of an operator."""
    found: dict[tuple[Any, int], Event] = {}
    for event in events:
        if event.wrote:
            key = event.operator, event.output
            before = found.pop(key, event)
            found[key] = event._replace(extent=event.extent.with_(before.extent), object=0)
    return list(found.values())


class Lineage:
    """Lineage is what made and wrote tensors' memory, among the operators a tool looks at."""

    def __init__(self) -> None:
        self._memories: dict[int, _Memory] = {}
        self._alive = 64  # how many there were when those that are gone were last looked for
        self._snapshots: weakref.WeakKeyDictionary[Operator, Operator]
        self._snapshots = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def makers(self, tensor: Tensor) -> list[tuple[Operator, int]]:
        """List the outputs of operators that a tensor is."""
        with self._lock:
            found = _storage(tensor)
            if found is None:
                return []
            storage, tensor = found
            memory = self._memories.get(storage._cdata)
            if memory is None or memory.reference.expired():
                return []
            events = memory.makers(id(tensor), extent_of(tensor))
            return [(event.operator, event.output) for event in events]

    def ran(
        self, operator: Operator, given: frozenset[int], outputs: Sequence[Any], written: set[int]
    ) -> None:
        """Take note of what an operator did.

        Args:
            operator: the operator.
            given: the memory of its inputs.
            outputs: the tensors that it gave, or wrote to.
            written: the numbers of those that it wrote to.
        """
        with self._lock:
            snapshot = self._snapshots.get(operator)
            if snapshot is None:
                snapshot = self._snapshots[operator] = operator.snapshot()
            for index, output in enumerate(outputs):
                found = _storage(output)
                if found is None:
                    continue
                storage, tensor = found
                made = storage._cdata not in given
                wrote = made or id(output) in written
                event = Event(snapshot, index, extent_of(tensor), id(tensor), wrote)
                self._memory(storage, made).add(event)

    def _memory(self, storage: Any, made: bool) -> _Memory:
        key = storage._cdata
        memory = self._memories.get(key)
        if memory is None or memory.reference.expired():
            if len(self._memories) > 2 * self._alive:
                alive = {k: m for k, m in self._memories.items() if not m.reference.expired()}
                self._memories, self._alive = alive, max(64, len(alive))
            memory = self._memories[key] = _Memory(storage)
        return memory


_lineages: weakref.WeakKeyDictionary[Tool, Lineage] = weakref.WeakKeyDictionary()


@not_a_call_site
def traced(plan: Plan, carry_out: Strategy, form: Form) -> Strategy:
    """Make a strategy that carries out a plan, and tells what makes the inputs of the operator."""
    signature = form.signature

    def tell(engine: Engine, operator: Operator, args: Args, kwargs: Kwargs) -> Any:
        inputs = form.tensors(args, kwargs)
        if is_tracing(inputs):
            return carry_out(engine, operator, args, kwargs)
        destinations = [inputs[i] for i in signature.places(signature.written, args)]
        destinations += signature.out_tensors(kwargs)
        with DisableTorchFunction():
            for tool, producers in plan.producers.items():
                lineage = _lineages.setdefault(tool, Lineage())
                for index, tensor in enumerate(inputs):
                    for maker, output in lineage.makers(tensor):
                        producers[index].add(maker, output)
            given = frozenset(_memory_of([*inputs, *destinations]))
        result = carry_out(engine, operator, args, kwargs)
        outputs = outputs_of(result)
        if signature.marks_dirty:
            destinations = [t for t in inputs if any(t is output for output in outputs)]
        outputs += [t for t in destinations if not any(t is output for output in outputs)]
        with DisableTorchFunction():
            for tool in plan.producers:
                _lineages[tool].ran(operator, given, outputs, set(map(id, destinations)))
        return result

    return tell


def _memory_of(tensors: Sequence[Tensor]) -> Iterator[int]:
    for tensor in tensors:
        found = _storage(tensor)
        if found is not None:
            yield found[0]._cdata


def _storage(tensor: Tensor) -> tuple[Any, Tensor] | None:
    """Return the memory of a tensor, and the tensor as it is without what transforms wrap it in."""
    tensor = innermost(tensor)
    return (tensor.untyped_storage(), tensor) if has_storage(tensor) else None
