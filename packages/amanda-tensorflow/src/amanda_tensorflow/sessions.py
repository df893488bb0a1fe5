"""The front end for sessions: runs rewritten copies of nodes beside the originals.

A session cannot take back nodes that it has run, and its variables live inside it. But it can be
extended. What depends on an inserted routine is imported a second time into the same graph, next to
everything else: variables, iterators, tables, and random operators with their streams are shared.
"""

from __future__ import annotations

import bisect
import itertools
import weakref
from typing import TYPE_CHECKING, Any

from amanda import UnsupportedError

from amanda_tensorflow._internals import errors, pywrap_tf_session, session_lib
from amanda_tensorflow.body import Body, split
from amanda_tensorflow.connected import run_connected, tensor_name
from amanda_tensorflow.copies import SCOPE, Copies, behind
from amanda_tensorflow.decisions import decide
from amanda_tensorflow.frames import Frame
from amanda_tensorflow.functions import (
    name_as_the_program_does,
    raise_failure,
    renamed_definitions,
)
from amanda_tensorflow.history import attached, last_id, notes_of
from amanda_tensorflow.identity import STRUCTURE
from amanda_tensorflow.lowered import Below
from amanda_tensorflow.names import is_gradient
from amanda_tensorflow.rewriter import Capture, Rewriter
from amanda_tensorflow.state import note_new_streams
from amanda_tensorflow.values import SessionValues

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from amanda.driving import Engine

    from amanda_tensorflow.decisions import Decisions
    from amanda_tensorflow.driver import TensorFlowDriver
    from amanda_tensorflow.routines import Stage

_serials = itertools.count()


class Request:
    """What a session is asked to run, by names. Equal requests are the same."""

    __slots__ = ("feeds", "fetches", "targets")

    def __init__(self, feeds: Mapping[Any, Any], fetches: Sequence[Any], targets: Sequence[Any]):
        self.feeds = tuple(tensor_name(feed) for feed in feeds)
        self.fetches = tuple(tensor_name(fetch) for fetch in fetches)
        self.targets = tuple(pywrap_tf_session.TF_OperationName(target) for target in targets)

    @property
    def key(self) -> tuple[Any, ...]:
        """What two equal requests have in common."""
        return frozenset(self.feeds), self.fetches, self.targets


class Shadow:
    """Rewritten copies of what a request runs; knows no tool until it is bound.

    Attributes:
        fetches: the tensors to ask the session for instead.
        target_names: the operations to ask for.
        scope: the name scope that the copies are in.
        connections: what the session is to connect while it runs them: from, and to.
        alone: seeded random operators whose streams begin anew.
        below: what holds state in the functions that they call.
    """

    def __init__(self, root: Frame, request: Request, stages: Sequence[Stage]) -> None:
        serial = next(_serials)
        rewriter = Rewriter(root, stages, serial)
        rewriter.run()
        rewriter.drop_unread()
        self._hosts = rewriter.hosts
        self._captures = [source for source in rewriter.arguments if isinstance(source, Capture)]
        self._engine: weakref.ref[Engine] | None = None
        self._stages: Sequence[Stage] = ()
        self._pure = [stage.pure for stage in rewriter.functions.values()]

        library = renamed_definitions(root, serial)
        for name, stage in rewriter.functions.items():
            assert stage.pure is not None
            library.append(stage.pure.definition_by_value(name))
            library += stage.pure.called_functions()
        copied = Copies(root)
        self.scope = f"{SCOPE}{serial}"
        self.below = Below(root, copied)
        self.below.add_dead_tensors()
        copied.names.update(root.body.nodes.keys() - root.inputs.keys())
        copied.import_into(root.graph, self.scope, library)
        self.connections = copied.connections(self.scope)
        self.alone = [*copied.alone, *self.below.alone]

        def operation(name: str) -> Any:
            is_copy = name in copied.names and name not in copied.grafted
            return root.graph.get_operation_by_name(f"{self.scope}/{name}" if is_copy else name)

        def tensor(name: str) -> Any:
            node, index = split(name)
            return operation(node).outputs[index]

        self.fetches = [tensor(rewriter.read(name))._as_tf_output() for name in request.fetches]
        done = [rewriter.last_stage(name) or name for name in request.targets]
        # whatever runs here runs all its routines, also those that return nothing to anyone
        done += rewriter.host_nodes()
        self.target_names = [operation(name).name for name in done]
        self._feeds = [
            tensor(f"amanda/argument_{index}:0")._as_tf_output()
            for index in range(1, len(self._captures) + 1)
        ]

    def free_for(self, engine: Engine) -> bool:
        """Whether no other scope that is still open uses it."""
        bound = None if self._engine is None else self._engine()
        return bound is None or bound is engine or not bound.open

    def bind(self, engine: Engine, stages: Sequence[Stage]) -> None:
        """Have it run the routines of these stages."""
        self._engine = weakref.ref(engine)
        self._stages = stages
        for number, routine in self._hosts:
            routine.stage = stages[number]

    def targets(self, graph: Any) -> list[Any]:
        """The operations to ask the session for instead; to keep them would keep the graph."""
        return [graph.get_operation_by_name(name)._c_op for name in self.target_names]

    def feeds(self) -> dict[Any, Any]:
        """The values of what the pure routines captured, as they are now."""
        values = {}
        for feed, capture in zip(self._feeds, self._captures, strict=True):
            pure = self._stages[capture.stage].pure
            assert pure is not None
            values[feed] = pure.capture_value(capture.number)
        return values

    def raise_failure(self, error: BaseException) -> None:
        """Raise the exception of a routine in place of TensorFlow's."""
        raise_failure(self._hosts, error)


def _differentiated(graph: Any, running: set[Any]) -> set[Any]:
    """The operators of a graph whose gradients run."""
    ids = sorted(operation._id for operation in running)
    found = set()
    for call in notes_of(graph).calls:
        place = bisect.bisect_right(ids, call.first)
        is_here = call.forward_graph() is graph
        if is_here and place < len(ids) and ids[place] <= call.last:
            found.add(graph.get_operation_by_name(call.forward))
    return found


class _Current:
    """What an engine has decided about a request, and the shadow that obeys it."""

    __slots__ = ("decisions", "shadow")

    def __init__(self, decisions: Decisions, shadow: Shadow | None) -> None:
        self.decisions = decisions
        self.shadow = shadow


class _Shadows:
    """The shadows in one graph, which live as long as it does."""

    def __init__(self) -> None:
        self.current: weakref.WeakKeyDictionary[Engine, dict[Any, _Current]]
        self.current = weakref.WeakKeyDictionary()
        self.by_key: dict[Any, list[Shadow]] = {}
        self.identified = 0


class Sessions:
    """Runs sessions as the tools want it."""

    def __init__(self, driver: TensorFlowDriver) -> None:
        self._driver = driver

    def patches(self) -> list[tuple[Any, str, Any, Any]]:
        """What to exchange in TensorFlow while tools are in force."""
        owner = session_lib.BaseSession
        run = owner._call_tf_sessionrun
        names = ("partial_run_setup", "partial_run", "_make_callable_from_options")
        refused = [(owner, name, getattr(owner, name), self._refusing(name)) for name in names]

        def call_tf_sessionrun(
            session: Any, options: Any, feeds: Any, fetches: Any, targets: Any, metadata: Any
        ) -> Any:
            engine = self._driver.engine()
            if engine is None:
                return run(session, options, feeds, fetches, targets, metadata)
            shadow = self._shadow(session, Request(feeds, fetches, targets), engine)
            if shadow is None:
                return run(session, options, feeds, fetches, targets, metadata)
            feeds = {**feeds, **shadow.feeds()}
            try:
                if shadow.connections or shadow.below.held:
                    return run_connected(session, options, feeds, shadow, metadata)
                targets = shadow.targets(session.graph)
                return run(session, options, feeds, shadow.fetches, targets, metadata)
            except errors.OpError as error:
                shadow.raise_failure(error)
                name_as_the_program_does(error)
                raise

        return [(owner, "_call_tf_sessionrun", run, call_tf_sessionrun), *refused]

    def _refusing(self, name: str) -> Any:
        original = getattr(session_lib.BaseSession, name)

        def refusing(session: Any, *args: Any, **kwargs: Any) -> Any:
            if self._driver.engine() is not None:
                raise UnsupportedError(
                    f"Session.{name} cannot be instrumented, since it hands out what runs before "
                    "tools can look at it; use Session.run or Session.make_callable, or wrap the "
                    "call in amanda.disabled()"
                )
            return original(session, *args, **kwargs)

        return refusing

    def _shadow(self, session: Any, request: Request, engine: Engine) -> Shadow | None:
        shadows = attached(session.graph, "_amanda_shadows", _Shadows)
        known = shadows.current.setdefault(engine, {})
        current = known.get(request.key)
        if current is None or not engine.caching or not current.decisions.is_current(engine):
            with self._driver.preparing:
                current = known[request.key] = self._instrument(session, request, engine, shadows)
        return current.shadow

    def _instrument(
        self, session: Any, request: Request, engine: Engine, shadows: _Shadows
    ) -> _Current:
        self._driver.eager.ran_a_graph(engine)
        root = _frame_of(session.graph, request)
        self._identify(root, shadows)
        decisions = decide(root, engine, self._driver.analyzing(SessionValues(session)))
        self._driver.pipelines.look_at(root, engine)
        if not decisions.stages:
            return _Current(decisions, None)
        candidates = shadows.by_key.setdefault((request.key, decisions.key), [])
        for shadow in candidates:
            if shadow.free_for(engine):
                break
        else:
            shadow = Shadow(root, request, decisions.stages)
            note_new_streams("a session", shadow.alone)
            session._extend_graph()
            candidates.append(shadow)
        shadow.bind(engine, decisions.stages)
        return _Current(decisions, shadow)

    def _identify(self, root: Frame, shadows: _Shadows) -> None:
        """Identify all operators of the graph: what else a request runs is not to matter."""
        identities = self._driver.identities
        if shadows.identified != last_id(root.graph):
            shadows.identified = last_id(root.graph)
            notes = notes_of(root.graph)
            computes_gradients = notes.computes_gradients()
            nodes = [
                (operation.name, operation.type)
                for operation in root.graph.get_operations()
                if operation.type not in STRUCTURE
                and not computes_gradients(operation._id)
                and (operation._id in notes.recomputed or not is_gradient(operation.name))
            ]
            identities.identify([(root.graph, "", nodes)], ())
        for frames in root.children.values():
            for child in frames:
                below = [(f.graph, f.scope, f.forward_operations()) for f in child.walk()]
                identities.identify(below, ())


def _frame_of(graph: Any, request: Request) -> Frame:
    """All that a request runs, as the outermost frame."""
    fed = frozenset(request.feeds)
    asked = [graph.get_operation_by_name(name) for name in request.targets]
    asked += [
        graph.get_operation_by_name(split(name)[0]) for name in request.fetches if name not in fed
    ]
    running = behind(asked, fed)
    while missing := _differentiated(graph, running) - running:
        # routines before them have a part in their gradients, even where they do not run
        running |= behind(list(missing), fed)
    nodes = {
        operation.name: operation.node_def
        for operation in sorted(running, key=lambda operation: operation._id)
    }

    def dtype_of(tensor: str) -> int:
        return int(graph.get_tensor_by_name(tensor).dtype.as_datatype_enum)

    return Frame(Body(nodes, dtype_of=dtype_of), graph, fed=fed)
