"""What a program calls is exchanged for a rewritten copy, for functions and sessions alike."""

from __future__ import annotations

import abc
import contextlib
import gc
import threading
from typing import TYPE_CHECKING, Generic

from amanda_tensorflow.decisions import decide
from amanda_tensorflow.running.copies import AnyCopy, Copies, InUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amanda.driving import Engine

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.graph.identity import Identities
    from amanda_tensorflow.routines.stages import Stage
    from amanda_tensorflow.running.stashed import Signature
    from amanda_tensorflow.unseen import Unseen
    from amanda_tensorflow.unseen.gradients import UnseenGradients
    from amanda_tensorflow.unseen.layers import UnseenLayers
    from amanda_tensorflow.unseen.pipelines import Pipelines
    from amanda_tensorflow.unseen.python_functions import PythonFunctions
    from amanda_tensorflow.values import Values


class Runnable(abc.ABC, Generic[AnyCopy]):
    """A runnable is what is called: a function with its arguments, or a request to a session.

    Attributes:
        copies: its rewritten copies.
        versions: which of its arguments come with other versions, for which operators; its backward
            function runs a copy that takes them even if no tool wants anything.
    """

    copies: Copies[AnyCopy]
    versions: Signature = ()

    @abc.abstractmethod
    def frame(self) -> Frame:
        """Make an outermost frame of all that the runnable runs."""

    @abc.abstractmethod
    def identify(
        self,
        root: Frame,
        identities: Identities,
        types: frozenset[str] | None,
        wants: Callable[[str, str], bool] | None,
    ) -> None:
        """Make or find the operators that the runnable runs.

        Args:
            root: all that it runs.
            identities: the operators that are known.
            types: those that are wanted; None for all.
            wants: whether layers of a class are wanted, at a path; None for none.
        """

    @abc.abstractmethod
    def values(self) -> Values:
        """Return what finds the values of the runnable's variables and constants."""

    @abc.abstractmethod
    def rewritten(self, root: Frame, stages: Sequence[Stage]) -> AnyCopy:
        """Make a copy with stages in it.

        Args:
            root: its outermost frame, which is edited.
            stages: what is inserted.
        """


class Instrumenter:
    """This asks the tools about what is called, and has it rewritten as they want.

    Attributes:
        preparing: held while a graph is looked at, decided about and copied. Threads share graphs,
            functions and what is known of their operators, and may meet a new one at once.
    """

    def __init__(
        self,
        identities: Identities,
        unseen: Unseen,
        pipelines: Pipelines,
        python_functions: PythonFunctions,
        layers: UnseenLayers,
        gradients: UnseenGradients,
    ) -> None:
        self.preparing = threading.RLock()
        self._identities = identities
        self._unseen = unseen
        self._pipelines = pipelines
        self._python_functions = python_functions
        self._layers = layers
        self._gradients = gradients

    def copy_of(self, runnable: Runnable[AnyCopy], engine: Engine) -> AnyCopy | None:
        """Return what runs instead under these tools; None for what is called itself.

        Raises:
            RoutineError, ActionError, UnsupportedError: see :func:`decide`.
        """
        used = runnable.copies.used_by(engine, runnable.versions)
        if used is None:
            with self.preparing, _collecting_later():
                used = self._ask(runnable, engine)
                runnable.copies.use(engine, used)
        return used.copy

    def calls_in_graph(self, root: Frame, engine: Engine) -> None:
        """Say what tools do not see of a function that a graph being built calls with versions."""
        self._gradients.in_graph(root, engine)

    def _ask(self, runnable: Runnable[AnyCopy], engine: Engine) -> InUse[AnyCopy]:
        stamp = engine.stamp
        self._unseen.met_by(engine).graphs = True
        root = runnable.frame()
        # context maps look at the neighbours of operators too
        types = None if engine.context_maps else engine.wanted
        wants = engine.wants_module if engine.wants_modules else None
        runnable.identify(root, self._identities, types, wants)
        stages = decide(root, engine, runnable.values())
        self._pipelines.look_at(root, engine)
        self._python_functions.look_at(root, engine)
        self._gradients.look_at(root, engine)
        if engine.wants_modules:
            self._layers.look_at(root, engine)
        copy = None
        if stages or runnable.versions or root.handed:
            given = runnable.versions, tuple(root.handed)
            copy = runnable.copies.take(
                engine, stages, given, lambda: runnable.rewritten(root, stages)
            )
        return InUse(copy, runnable.versions, stamp)


@contextlib.contextmanager
def _collecting_later() -> Iterator[None]:
    """Open a block in which Python does not look for cycles that nobody needs any more.

    What is made of a large graph is many objects, nearly all of which stay. Python would go through
    them, and all of the program's, several times meanwhile.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
