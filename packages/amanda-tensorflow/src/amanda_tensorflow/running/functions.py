"""The front end for tf.function runs a rewritten copy of each function that is called.

Every call of a traced function that runs, its forward and its backward under a tape included,
goes through ``AtomicFunction.call_flat``.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amanda import UnsupportedError

from amanda_tensorflow._internals import (
    atomic_function,
    attributes,
    context,
    errors,
    handle_data_util,
    pywrap_tfe,
)
from amanda_tensorflow.graph.frames import Frame
from amanda_tensorflow.graph.state import is_reproducible, note_new_streams
from amanda_tensorflow.notes import attached
from amanda_tensorflow.noting.gradients import in_jacobian
from amanda_tensorflow.rewriting.arguments import Capture
from amanda_tensorflow.rewriting.compiled import under_xla
from amanda_tensorflow.rewriting.definitions import definitions_of, for_graphs, register
from amanda_tensorflow.rewriting.rewriter import Rewriter
from amanda_tensorflow.running import stashed
from amanda_tensorflow.running.copies import Copies, Copy
from amanda_tensorflow.running.instrumenting import Runnable
from amanda_tensorflow.thread import active
from amanda_tensorflow.values import FunctionValues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda_tensorflow.graph.identity import Identities
    from amanda_tensorflow.graph.operators import TensorFlowOperator
    from amanda_tensorflow.rewriting.arguments import Stashed
    from amanda_tensorflow.routines.stages import Stage
    from amanda_tensorflow.running.instrumenting import Instrumenter
    from amanda_tensorflow.values import Values

_log = logging.getLogger("amanda_tensorflow")

_LEAVES_XLA = (
    "%s runs without XLA while tools call back into Python from it: it may round differently, and "
    "its stateful random operators draw other numbers (stateless random numbers are still XLA's); "
    "routines inserted with pure=True leave it compiled"
)


class FunctionCopy(Copy):
    """This is a rewritten copy of a function and of all it calls.

    Args:
        root: the frame of the function, which is edited.
        stages: what is inserted.
        args: arguments of a call.
        versions: which of these have other versions.
    """

    def __init__(
        self,
        root: Frame,
        stages: Sequence[Stage],
        args: Sequence[Any],
        versions: stashed.Signature,
    ) -> None:
        rewriter = Rewriter(root, stages, stashed.dtypes_of(args, versions))
        has_backward = attributes.BACKWARD_FUNCTION in root.function.definition.attr
        rewriter.run(returning_versions=has_backward)
        super().__init__(rewriter)
        self._arguments = rewriter.nodes.arguments.sources
        self._returned = rewriter.returned.versions
        self._count = len(root.body.outputs)
        self._called = [stage.pure for stage in rewriter.nodes.functions.values()]  # kept alive
        self._name = register(definitions_of(rewriter), self).encode()

    def __call__(self, args: Sequence[Any], count: int) -> list[Any]:
        """Run the copy.

        Args:
            args: arguments of the original.
            count: how many outputs the original has.

        Raises:
            RoutineError: from a host routine.
        """
        more = [self._value(source, args) for source in self._arguments]
        with self.explained():
            results = context.context().call_function(self._name, [*args, *more], self._count)
            if self._hosts:
                _wait()
        outputs = list(results[:count]) if self._count else []
        added = (results or ())[count:]
        for (indices, operator), version in zip(self._returned, added, strict=True):
            for index in indices:
                stashed.put_beside(outputs[index], operator, version)
        return outputs

    def _value(self, source: Capture | Stashed, args: Sequence[Any]) -> Any:
        if isinstance(source, Capture):
            return self.pure(source).captures[source.number]
        return stashed.beside(args[source.argument], source.operator)


@dataclass(slots=True, eq=False)
class _Known:
    """This is what is known of one function.

    Attributes:
        copies: its rewritten copies.
        operators: those that it runs, and those whose gradients it computes.
        said_leaves_xla, said_streams: whether it was said what its copies do in another way.
    """

    copies: Copies[FunctionCopy] = field(default_factory=Copies)
    operators: set[TensorFlowOperator] = field(default_factory=set)
    said_leaves_xla: bool = False
    said_streams: bool = False


class FunctionCall(Runnable[FunctionCopy]):
    """This is a call of an AtomicFunction with flat arguments."""

    def __init__(self, function: Any, args: Sequence[Any], versions: stashed.Signature) -> None:
        self._function = function
        self._args = args
        self._known = attached(function, "_amanda_known", _Known)
        self.copies = self._known.copies
        self.versions: stashed.Signature = versions

    def frame(self) -> Frame:
        """Make an outermost frame of all that the function runs."""
        return Frame.of_function(self._function)

    def identify(
        self,
        root: Frame,
        identities: Identities,
        types: frozenset[str] | None,
        wants: Callable[[str, str], bool] | None,
    ) -> None:
        """Make or find the operators of the function and of all it calls."""
        identities.identify(
            self._known.operators,
            ((frame.graph, frame.scope, frame.forward_operations()) for frame in root.walk()),
            [("variable", arg._id) for arg in self._args if arg.dtype.name == "resource"],
            types,
        )
        if wants is not None:
            graphs = ((frame.graph, frame.scope) for frame in root.walk())
            identities.identify_layers(self._known.operators, graphs, wants)
        for frame in root.walk():  # those whose gradients it computes may be another function's
            self._known.operators.update(frame.gradients.operators())

    def values(self) -> Values:
        """Return what finds the values of its captures."""
        return FunctionValues(self._args, self._function)

    def rewritten(self, root: Frame, stages: Sequence[Stage]) -> FunctionCopy:
        """Make a copy with stages in it, and say once what that does in another way."""
        copy = FunctionCopy(root, stages, self._args, self.versions)
        known = self._known
        if not known.said_leaves_xla and _leaves_xla(root):
            known.said_leaves_xla = True
            _log.warning(_LEAVES_XLA, root.graph.name)
        if not known.said_streams:
            known.said_streams = True
            note_new_streams(root.graph.name, _streams(root))
        return copy

    def without_tools(self) -> FunctionCopy:
        """Return what runs outside of scopes: a backward function given other versions."""
        return self.copies.take(None, (), self.versions, lambda: self.rewritten(self.frame(), ()))

    def in_graph(self, root: Frame) -> tuple[Any, list[Any]]:
        """Return the function to call while a graph is built, and the arguments to add.

        Args:
            root: its outermost frame, which is edited.

        Raises:
            UnsupportedError: the graph is for a Jacobian through other functions, as of branches.
        """
        if in_jacobian() and root.children:
            changed = {wanted.operator for _, all_wanted in self.versions for wanted in all_wanted}
            refused = UnsupportedError(
                f"tools have changed {', '.join(sorted(changed))}, and gradients that go through "
                "calls of functions, branches or loops cannot be computed for many elements at "
                "once then; pass experimental_use_pfor=False to GradientTape.jacobian, or exclude "
                "these operators by ops="
            )
            vars(refused)["ag_pass_through"] = True  # else AutoGraph raises an error of its own
            raise refused
        rewriter = Rewriter(root, (), stashed.dtypes_of(self._args, self.versions))
        rewriter.run()
        added = []
        for source in rewriter.nodes.arguments.sources:
            assert not isinstance(source, Capture)  # there are no routines
            added.append(stashed.beside(self._args[source.argument], source.operator))
        return for_graphs(definitions_of(rewriter), self._function), added


class Functions:
    """This calls functions as the tools want it.

    Args:
        instrumenter: finds what runs in their place.
        failed: called with each error that leaves one.
    """

    def __init__(self, instrumenter: Instrumenter, failed: Callable[[Exception], None]) -> None:
        self._instrumenter = instrumenter
        self._failed = failed

    def calling(self, call_flat: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``AtomicFunction.call_flat`` to call a rewritten copy."""

        @functools.wraps(call_flat)
        def wrapped(function: Any, *args: Any) -> Any:
            versions = stashed.signature_of(args)
            if function._bound_context.executing_eagerly():
                if versions or active.engine is not None:
                    try:
                        copy = self._copy(function, args, versions)
                        if copy is not None:
                            return run_copy(copy, function, args)
                    except Exception as error:
                        self._failed(error)
                        raise
            elif versions:  # while a graph is built, as for a Jacobian
                with self._instrumenter.preparing:
                    call = FunctionCall(function, args, versions)
                    root = call.frame()
                    if active.engine is not None:
                        self._instrumenter.calls_in_graph(root, active.engine)
                    function, added = call.in_graph(root)
                return call_flat(function, *args, *added)
            return call_flat(function, *args)

        return wrapped

    def _copy(
        self, function: Any, args: Sequence[Any], versions: stashed.Signature
    ) -> FunctionCopy | None:
        """Return what runs in place of a function; None for itself."""
        call, engine = FunctionCall(function, args, versions), active.engine
        if engine is not None:
            return self._instrumenter.copy_of(call, engine)
        with self._instrumenter.preparing:
            return call.without_tools()


def _wait() -> None:
    """Wait for what runs asynchronously, since the tools may not be active any more afterwards.

    TensorFlow's own object for an executor waits for it once more when it is freed. A traceback may
    keep it for longer than the executor lives, so that it would wait for ever.
    """
    executor = pywrap_tfe.TFE_ContextGetExecutorForThread(context.context()._handle)
    try:
        if pywrap_tfe.TFE_ExecutorIsAsync(executor):
            pywrap_tfe.TFE_ExecutorWaitForAllPendingNodes(executor)
    except errors.OpError:
        pywrap_tfe.TFE_ExecutorClearError(executor)
        raise
    finally:
        pywrap_tfe.TFE_DeleteExecutor(executor)


def run_copy(
    copy: Callable[[Sequence[Any], int], list[Any]], function: Any, args: Sequence[Any]
) -> list[Any]:
    """Run a copy with the arguments of the original, for the results of the original."""
    types = function.function_type.flat_outputs
    with atomic_function.InterpolateRuntimeError(function):
        outputs = copy(args, len(types))
    for output, output_type in zip(outputs, types, strict=True):
        handle_data = output_type.dtype._handle_data
        if handle_data:
            handle_data_util.set_handle_data(output, handle_data.shape_inference)
    return outputs


def _leaves_xla(root: Frame) -> bool:
    """Tell whether XLA compiled a function, or a part of it, and now cannot."""
    return root.host and any(
        frame.host and frame.definition is not None and under_xla(frame.definition)
        for frame in root.walk()
    )


def _streams(root: Frame) -> list[str]:
    """List a function's seeded random operators that XLA, which has no seeds, does not compile."""
    if root.definition is not None and under_xla(root.definition):
        return []
    return [
        frame.operations[name].name
        for frame in root.walk()
        for name in frame.running & frame.body.nodes.keys() & frame.inputs.keys()
        if is_reproducible(frame.body.nodes[name])
    ]
