"""The front end for sessions runs rewritten copies of nodes beside the originals.

A session cannot take back nodes that it has run, and its variables live inside it. But it can be
extended. What depends on an inserted routine is imported a second time into the same graph, next to
everything else: variables, iterators, tables, and random operators with their streams are shared.
"""

from __future__ import annotations

import bisect
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amanda import UnsupportedError

from amanda_tensorflow._internals import pywrap_tf_session
from amanda_tensorflow.graph.body import Body, split
from amanda_tensorflow.graph.called_functions import signatures
from amanda_tensorflow.graph.frames import Frame
from amanda_tensorflow.graph.gradients_by_name import is_gradient
from amanda_tensorflow.graph.node_types import STRUCTURE
from amanda_tensorflow.graph.state import note_new_streams
from amanda_tensorflow.notes import attached, last_id, notes_of
from amanda_tensorflow.rewriting.arguments import Capture
from amanda_tensorflow.rewriting.definitions import definitions_of
from amanda_tensorflow.rewriting.rewriter import Rewriter
from amanda_tensorflow.running.connected import run_connected, tensor_name
from amanda_tensorflow.running.copies import Copies, Copy
from amanda_tensorflow.running.instrumenting import Runnable
from amanda_tensorflow.running.lowered import Below
from amanda_tensorflow.running.session_nodes import SCOPE, CopiedNodes, behind
from amanda_tensorflow.thread import active
from amanda_tensorflow.values import SessionValues

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amanda_tensorflow.graph.identity import Identities
    from amanda_tensorflow.graph.operators import TensorFlowOperator
    from amanda_tensorflow.routines.stages import Stage
    from amanda_tensorflow.running.instrumenting import Instrumenter
    from amanda_tensorflow.values import Values


class SessionCopy(Copy):
    """This is a rewritten copy of what a session is asked to run.

    Args:
        root: what it runs, which is edited.
        fetches: names of the tensors that it is asked for.
        targets: names of the operations that it is asked to run.
        stages: what is inserted.

    Attributes:
        fetches: the tensors to ask the session for instead.
        target_names: the operations to ask for.
        scope: the name scope that the copies are in.
        connections: what the session is to connect while it runs them: from, and to.
        below: what holds state in the functions that they call.
        alone: seeded random operators whose streams begin anew.
    """

    def __init__(
        self, root: Frame, fetches: Sequence[str], targets: Sequence[str], stages: Sequence[Stage]
    ) -> None:
        rewriter = Rewriter(root, stages)
        rewriter.run()
        super().__init__(rewriter)
        self._captures = [
            source for source in rewriter.nodes.arguments.sources if isinstance(source, Capture)
        ]
        self._called = [stage.pure for stage in rewriter.nodes.functions.values()]  # kept alive
        library = definitions_of(rewriter)
        nodes = CopiedNodes(root)
        self.scope = f"{SCOPE}{rewriter.nodes.serial}"
        self.below = Below(root, nodes)
        self.below.add_dead_tensors()
        nodes.names.update(root.body.nodes.keys() - root.inputs.keys())
        nodes.import_into(root.graph, self.scope, library)
        self.connections = nodes.connections(self.scope)
        self.alone = [*nodes.alone, *self.below.alone]

        def operation(name: str) -> Any:
            is_copy = name in nodes.names and name not in nodes.grafted
            return root.graph.get_operation_by_name(f"{self.scope}/{name}" if is_copy else name)

        def tensor(name: str) -> Any:
            node, index = split(name)
            return operation(node).outputs[index]

        self.fetches = [tensor(rewriter.read(name))._as_tf_output() for name in fetches]
        done = [rewriter.last_stage(name) or name for name in targets]
        # whatever runs here runs all its routines, also those that return nothing to anyone
        done += rewriter.host_nodes()
        self.target_names = [operation(name).name for name in done]
        self._feeds = [
            tensor(f"amanda/argument_{index}:0")._as_tf_output()
            for index in range(1, len(self._captures) + 1)
        ]

    def __call__(
        self,
        run: Callable[..., Any],
        session: Any,
        options: Any,
        feeds: Mapping[Any, Any],
        metadata: Any,
    ) -> Any:
        """Have a session run the copy.

        Args:
            run: runs what a session is asked for.
            session: the session.
            options: a buffer with RunOptions, or None.
            feeds: what the program feeds.
            metadata: a buffer for RunMetadata, or None.

        Raises:
            RoutineError: from a host routine.
        """
        feeds = {**feeds, **self._captured()}
        with self.explained():
            if self.connections or self.below.held:
                return run_connected(session, options, feeds, self, metadata)
            # by their names, since to keep them would keep the graph
            targets = [session.graph.get_operation_by_name(n)._c_op for n in self.target_names]
            return run(session, options, feeds, self.fetches, targets, metadata)

    def _captured(self) -> dict[Any, Any]:
        """Return the values of what the pure routines captured, as they are now."""
        return {
            feed: self.pure(capture).capture_value(capture.number)
            for feed, capture in zip(self._feeds, self._captures, strict=True)
        }


@dataclass(slots=True, eq=False)
class _InGraph:
    """This is what sessions have run under tools in one graph.

    Attributes:
        last: the id of the last node when its operators were identified.
        types: of which operators that was; None for all.
        operators: those of the graph.
        copies: those of what a session was asked to run, by that.
    """

    last: int = 0
    types: set[frozenset[str] | None] = field(default_factory=set)
    operators: set[TensorFlowOperator] = field(default_factory=set)
    copies: dict[Any, Copies[SessionCopy]] = field(default_factory=dict)


class Request(Runnable[SessionCopy]):
    """A request is what a session is asked to run, by names."""

    def __init__(
        self, session: Any, feeds: Mapping[Any, Any], fetches: Sequence[Any], targets: Sequence[Any]
    ) -> None:
        self._session = session
        self._feeds = frozenset(tensor_name(feed) for feed in feeds)
        self._fetches = tuple(tensor_name(fetch) for fetch in fetches)
        self._targets = tuple(pywrap_tf_session.TF_OperationName(target) for target in targets)
        self._in_graph = attached(session.graph, "_amanda_sessions", _InGraph)
        key = self._feeds, self._fetches, self._targets
        self.copies = self._in_graph.copies.setdefault(key, Copies())

    def frame(self) -> Frame:
        """Make an outermost frame of all that the session runs for the request."""
        graph, fed = self._session.graph, self._feeds
        asked = [graph.get_operation_by_name(name) for name in self._targets]
        asked += [
            graph.get_operation_by_name(split(name)[0]) for name in self._fetches if name not in fed
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

        body = Body(nodes, signature_of=signatures(graph), dtype_of=dtype_of)
        return Frame(body, graph, fed=fed)

    def identify(
        self,
        root: Frame,
        identities: Identities,
        types: frozenset[str] | None,
        wants: Callable[[str, str], bool] | None,
    ) -> None:
        """Make or find all operators of the graph: what else it runs is not to matter."""
        known = self._in_graph
        if known.last != last_id(root.graph):
            known.last = last_id(root.graph)
            known.types.clear()
        if types not in known.types:
            known.types.add(types)
            notes = notes_of(root.graph)
            computes_gradients = notes.computes_gradients()
            nodes = [
                (operation.name, operation.type)
                for operation in root.graph.get_operations()
                if operation.type not in STRUCTURE
                and not computes_gradients(operation._id)
                and (operation._id in notes.recomputed or not is_gradient(operation.name))
            ]
            identities.identify(known.operators, [(root.graph, "", nodes)], (), types)
        for frames in root.children.values():
            for child in frames:
                below = [(f.graph, f.scope, f.forward_operations()) for f in child.walk()]
                identities.identify(known.operators, below, (), types)
        if wants is not None:
            graphs = ((frame.graph, frame.scope) for frame in root.walk())
            identities.identify_layers(known.operators, graphs, wants)

    def values(self) -> Values:
        """Return what finds the values of variables by asking the session."""
        return SessionValues(self._session)

    def rewritten(self, root: Frame, stages: Sequence[Stage]) -> SessionCopy:
        """Make copies with stages in them, in the graph of the session."""
        copy = SessionCopy(root, self._fetches, self._targets, stages)
        note_new_streams("a session", copy.alone)
        self._session._extend_graph()
        return copy


def _differentiated(graph: Any, running: set[Any]) -> set[Any]:
    """Return the operators of a graph whose gradients run."""
    ids = sorted(operation._id for operation in running)
    found = set()
    notes = notes_of(graph)
    for call in notes.calls:
        is_here = call.forward_graph() is graph and call.forward not in notes.vectorized
        for first, last in call.made if is_here else ():
            place = bisect.bisect_right(ids, first)
            if place < len(ids) and ids[place] <= last:
                found.add(graph.get_operation_by_name(call.forward))
    return found


class Sessions:
    """This runs sessions as the tools want it.

    Args:
        instrumenter: finds what runs in place of what they are asked for.
    """

    def __init__(self, instrumenter: Instrumenter) -> None:
        self._instrumenter = instrumenter

    def running(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``BaseSession._call_tf_sessionrun`` to run rewritten copies of nodes."""

        @functools.wraps(run)
        def wrapped(
            session: Any, options: Any, feeds: Any, fetches: Any, targets: Any, metadata: Any
        ) -> Any:
            engine = active.engine
            if engine is not None:
                request = Request(session, feeds, fetches, targets)
                copy = self._instrumenter.copy_of(request, engine)
                if copy is not None:
                    return copy(run, session, options, feeds, metadata)
            return run(session, options, feeds, fetches, targets, metadata)

        return wrapped

    def refusing(self, hand_out: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``Session.partial_run`` and its like to refuse them, since tools cannot see them."""

        @functools.wraps(hand_out)
        def wrapped(session: Any, *args: Any, **kwargs: Any) -> Any:
            if active.engine is not None:
                raise UnsupportedError(
                    f"Session.{hand_out.__name__} cannot be instrumented, since it hands out what "
                    "runs before tools can look at it; use Session.run or Session.make_callable, "
                    "or wrap the call in amanda.disabled()"
                )
            return hand_out(session, *args, **kwargs)

        return wrapped
