"""What a program calls is rewritten into copies, of which some are kept.

A program's functions and graphs are never changed. What tools insert routines into is rewritten
into a copy, and that runs instead: for a function another function, for a session other nodes in
its graph. A copy knows no tool until it is bound to those of a scope: in a later scope it serves
other tools that decide the same.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from amanda_tensorflow.running import errors

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Hashable, Sequence

    from amanda.driving import Engine

    from amanda_tensorflow.rewriting.arguments import Capture
    from amanda_tensorflow.rewriting.rewriter import Rewriter
    from amanda_tensorflow.routines.stages import Stage

# How many different copies of one thing are kept to be used again, beside those in use.
_KEPT = 8


class Copy:
    """This is a rewritten copy, which runs the routines of one set of tools at a time.

    Args:
        rewriter: has rewritten it.
    """

    def __init__(self, rewriter: Rewriter) -> None:
        self._hosts = rewriter.nodes.hosts
        self._engine: weakref.ref[Engine] | None = None
        self._stages: Sequence[Stage] = ()

    def is_free_for(self, engine: Engine | None) -> bool:
        """Tell whether no other scope that is still open uses the copy."""
        bound = None if self._engine is None else self._engine()
        return bound is None or bound is engine or not bound.open

    def bind(self, engine: Engine, stages: Sequence[Stage]) -> None:
        """Have the copy run the routines of these stages."""
        self._engine = weakref.ref(engine)
        self._stages = stages
        for number, routine in self._hosts:
            routine.stage = stages[number]

    def explained(self) -> contextlib.AbstractContextManager[None]:
        """Open a block to run the copy in, which raises the errors of its routines as such."""
        return errors.explained(self._hosts)

    def pure(self, capture: Capture) -> Any:
        """Return the pure routine that has captured something."""
        return self._stages[capture.stage].pure


AnyCopy = TypeVar("AnyCopy", bound=Copy)


@dataclass(slots=True, eq=False)
class InUse(Generic[AnyCopy]):
    """This is what tools have decided about something that is called.

    Attributes:
        copy: what runs instead; None where nothing is to be done.
        versions: which other versions of its arguments it was given.
        stamp: that of the engine when it was asked.
    """

    copy: AnyCopy | None
    versions: Hashable
    stamp: object


class Copies(Generic[AnyCopy]):
    """These are the copies of one function, or of what one graph runs for one request.

    The copy that active tools use is kept as long as they are active, and so are the copies that
    were used last.
    """

    def __init__(self) -> None:
        self._in_use: weakref.WeakKeyDictionary[Engine, InUse[AnyCopy]]
        self._in_use = weakref.WeakKeyDictionary()
        self._kept: dict[Hashable, list[AnyCopy]] = {}

    def used_by(self, engine: Engine, versions: Hashable) -> InUse[AnyCopy] | None:
        """Return what tools have decided so far; None where they are to be asked."""
        found = self._in_use.get(engine)
        if found is None or found.versions != versions or found.stamp is not engine.stamp:
            return None
        return found

    def use(self, engine: Engine, used: InUse[AnyCopy]) -> None:
        """Note what tools use from now on."""
        self._in_use[engine] = used

    def take(
        self,
        engine: Engine | None,
        stages: Sequence[Stage],
        versions: Hashable,
        make: Callable[[], AnyCopy],
    ) -> AnyCopy:
        """Return a copy with these stages that no other open scope uses, bound to these tools.

        Args:
            engine: the tools; None for a copy without stages that serves anyone.
            stages: what is inserted into it.
            versions: which other versions of its arguments it is given.
            make: makes one if there is none.
        """
        key = versions, tuple(stage.key for stage in stages)
        copies = self._kept.get(key, [])
        copy = next((copy for copy in copies if copy.is_free_for(engine)), None)
        if copy is None:
            copy = make()
            copies = [*copies, copy]
        self._kept.pop(key, None)
        self._kept[key] = copies  # used last
        while len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        if engine is not None:
            copy.bind(engine, stages)
        return copy
