"""The engine of autograd has a queue of the nodes that are ready, in which equal ones may pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


class Ready(Generic[T]):
    """This is a queue of the things that are ready, in which those of equal priority may pass.

    They do as in the heap of the C++ library with which PyTorch is built (``std::priority_queue``),
    and all leaves have one priority. Of two of them alone, none passes the other.

    Attributes:
        FIRST: the priority of leaves.
    """

    FIRST: ClassVar[int] = 2**64 - 1

    def __init__(self) -> None:
        self._heap: list[tuple[int, T]] = []

    def push(self, priority: int, thing: T) -> None:
        """Add a thing."""
        self._heap.append((priority, thing))
        self._rise(len(self._heap) - 1)

    def popped(self) -> Iterator[T]:
        """Take out things, those of high priority first, until there are no more."""
        heap = self._heap
        while heap:
            yield self._pop()

    def _pop(self) -> T:
        heap = self._heap
        first, last = heap[0], heap.pop()
        if heap:  # the last one goes to the end of a way down that the first one leaves free
            place = 0
            while (child := 2 * place + 2) <= len(heap):
                if child == len(heap) or heap[child][0] < heap[child - 1][0]:
                    child -= 1
                heap[place] = heap[child]
                place = child
            heap[place] = last
            self._rise(place)
        return first[1]

    def _rise(self, place: int) -> None:
        heap = self._heap
        while place and heap[parent := (place - 1) // 2][0] < heap[place][0]:
            heap[place], heap[parent] = heap[parent], heap[place]
            place = parent
