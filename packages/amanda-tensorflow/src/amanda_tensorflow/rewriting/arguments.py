"""What is rewritten gets new arguments: what routines have captured, and versions of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.wanted import Wanted


class Capture(NamedTuple):
    """This is what the pure routine of a stage captured, as the source of a new argument."""

    stage: int
    number: int


class Stashed(NamedTuple):
    """This is another version of one of the arguments, as the source of a new one."""

    argument: int
    operator: Wanted


class Arguments:
    """This adds new arguments to an outermost frame.

    Attributes:
        sources: where the values for them come from, in order.
        by_value: whether variables are given by value: a session has none of the tools' variables.
    """

    def __init__(self, root: Frame) -> None:
        self.sources: list[Capture | Stashed] = []
        self.by_value = root.function is None
        self._root = root

    def add(self, frame: Frame, source: Capture | Stashed, dtype: int) -> str:
        """Add a new argument, and return it as a tensor of any frame."""
        self.sources.append(source)
        if self.by_value:
            name = f"amanda/argument_{len(self.sources)}"
            node = self._root.body.add(name, "Placeholder", ())
            node.attr["dtype"].type = dtype
            node.attr["shape"].shape.unknown_rank = True
            tensor = f"{name}:0"
        else:
            tensor = self._root.body.add_argument(dtype)
        self._root.mark_edited()
        path = [frame]
        while path[-1].parent is not None:
            path.append(path[-1].parent)
        for below in reversed(path[:-1]):
            tensor = below.pass_down(tensor)
        return tensor

    def of_versions(
        self, dtype_of: Callable[[int, Wanted], int | None]
    ) -> Callable[[int, Wanted], str | None]:
        """Make a function that finds another version of an argument, and adds it if needed.

        Args:
            dtype_of: the data type of a version; None where the caller has none.
        """
        known: dict[Stashed, str] = {}

        def argument(index: int, operator: Wanted) -> str | None:
            source = Stashed(index, operator)
            dtype = dtype_of(index, operator)
            if dtype is None:
                return None
            if source not in known:
                known[source] = self.add(self._root, source, dtype)
            return known[source]

        return argument
