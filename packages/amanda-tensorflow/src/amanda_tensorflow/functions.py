"""The front end for tf.function: runs an instrumented copy of each function that is called.

Every call of a traced function that runs, its forward and its backward under a tape included,
goes through ``AtomicFunction.call_flat``.
"""

from __future__ import annotations

import itertools
import logging
import re
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

from amanda_tensorflow._internals import (
    atomic_function,
    attributes,
    context,
    errors,
    function_def_to_graph,
    handle_data_util,
    ops,
)
from amanda_tensorflow.compiled import keep_compiled, under_xla
from amanda_tensorflow.decisions import decide
from amanda_tensorflow.frames import Frame, functions_renamed
from amanda_tensorflow.history import attached
from amanda_tensorflow.rewriter import Capture, Rewriter, Stashed
from amanda_tensorflow.state import is_reproducible, note_new_streams
from amanda_tensorflow.values import FunctionValues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda.driving import Engine

    from amanda_tensorflow.decisions import Decisions
    from amanda_tensorflow.driver import TensorFlowDriver
    from amanda_tensorflow.routines import HostRoutine, Stage
    from amanda_tensorflow.versions import Wanted

_serials = itertools.count()
_log = logging.getLogger("amanda_tensorflow")

_LEAVES_XLA = (
    "%s runs without XLA while tools call back into Python from it: it may round differently, and "
    "its stateful random operators draw other numbers (stateless random numbers are still XLA's); "
    "routines inserted with pure=True leave it compiled"
)

# How many copies of a function are kept to be used again, beside those that are in use.
_KEPT = 8

# A tensor carries its other versions under this name, for the backward function that takes it.
_VERSIONS = "_amanda_versions"


class _Versions(dict["Wanted", Any]):
    """Other versions of a tensor, by the operators whose gradients need them.

    As long as there are any, backward functions have to be given them, also after the scope.
    """

    alive: ClassVar[set[int]] = set()  # by identity; a count would be wrong once threads race
    when_none_are_left: Callable[[], None]

    def __init__(self) -> None:
        super().__init__()
        _Versions.alive.add(id(self))

    def __del__(self) -> None:
        _Versions.alive.discard(id(self))
        if not _Versions.alive:
            _Versions.when_none_are_left()


class Instrumented:
    """A rewritten copy of a function and of all it calls; knows no tool until it is bound.

    Attributes:
        outputs: versions that it returns beside its outputs, in order: which output, and the
            operator whose gradient needs it.
        leaves_xla: whether XLA compiled the original, or a part of it, which it cannot any more.
    """

    def __init__(
        self,
        root: Frame,
        stages: Sequence[Stage],
        stashed: Callable[[int, Wanted], int | None],
    ) -> None:
        serial = next(_serials)
        rewriter = Rewriter(root, stages, serial, stashed)
        rewriter.run()
        self._hosts = rewriter.hosts
        self._arguments = rewriter.arguments
        self.outputs: list[tuple[int, Wanted]] = []
        if attributes.BACKWARD_FUNCTION in root.function.definition.attr:
            self._return_versions(root, rewriter)
        rewriter.drop_unread()
        self._count = len(root.body.outputs)
        self._engine: weakref.ref[Engine] | None = None
        self._captured: list[Any] = []
        self._stages: Sequence[Stage] = ()
        definitions = [
            definition
            for name, stage in rewriter.functions.items()
            if stage.pure is not None
            for definition in [stage.pure.definition(name)]
        ]
        definitions += renamed_definitions(root, serial)
        self._name = definitions[-1].signature.name.encode()
        self._keep_called = [stage.pure for stage in rewriter.functions.values()]
        runtime = context.context()
        for definition in definitions:
            runtime.add_function_def(definition)
        weakref.finalize(self, _remove, [d.signature.name for d in definitions])
        self.leaves_xla = root.host and any(
            frame.host and frame.definition is not None and under_xla(frame.definition)
            for frame in root.walk()
        )

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

    def __call__(self, args: Sequence[Any], count: int) -> list[Any]:
        """Run it.

        Args:
            args: arguments of the original.
            count: how many outputs the original has.

        Raises:
            RoutineError: from a host routine.
        """
        added = [self._value(source, args) for source in self._arguments]
        try:
            results = context.context().call_function(self._name, [*args, *added], self._count)
        except errors.OpError as error:
            raise_failure(self._hosts, error)
            name_as_the_program_does(error)
            raise
        outputs = list(results[:count]) if self._count else []
        for (index, operator), version in zip(self.outputs, (results or ())[count:], strict=True):
            versions = getattr(outputs[index], _VERSIONS, None)
            if versions is None:
                versions = _Versions()
                setattr(outputs[index], _VERSIONS, versions)
            versions[operator] = version
        return outputs

    def _value(self, source: Capture | Stashed, args: Sequence[Any]) -> Any:
        if isinstance(source, Capture):
            pure = self._stages[source.stage].pure
            assert pure is not None
            return pure.captures[source.number]
        return _version(source, args)

    def _return_versions(self, root: Frame, rewriter: Rewriter) -> None:
        """Return what the backward function will need, beside what it is known to need."""
        for index, tensor in enumerate(root.outputs):
            for operator in dict.fromkeys(rewriter.versions.operators(root, tensor)):
                version = rewriter.versions.find(root, tensor, operator)
                if version is not None:
                    root.body.outputs.append(version)
                    self.outputs.append((index, operator))


def renamed_definitions(root: Frame, serial: int) -> list[Any]:
    """Definitions of all edited frames under new names, those that are called first."""
    definitions = keep_compiled(root, serial)

    def define(frame: Frame) -> str:
        for call, children in frame.children.items():
            node = frame.body.nodes.get(call)
            for child in children:
                if child.edited and node is not None:
                    old = child.definition.signature.name
                    functions_renamed(node, child.attr, old, define(child))
            if node is not None and any(child.host for child in children):
                node.attr.pop(attributes.XLA_COMPILE, None)
        if frame.definition is None:
            return ""
        name = f"{frame.definition.signature.name}__amanda_{serial}_{len(definitions)}"
        without = (attributes.XLA_COMPILE,) if frame.host else ()
        definitions.append(frame.body.to_function(name, without))
        return name

    define(root)
    return definitions


def _streams(root: Frame) -> list[str]:
    """The seeded random operators of a function that XLA, which has no seeds, does not compile."""
    if root.definition is not None and under_xla(root.definition):
        return []
    return [
        frame.operations[name].name
        for frame in root.walk()
        for name in frame.running & frame.body.nodes.keys() & frame.inputs.keys()
        if is_reproducible(frame.body.nodes[name])
    ]


def raise_failure(hosts: Sequence[tuple[int, HostRoutine]], error: BaseException) -> None:
    """Raise the exception of a routine that TensorFlow has turned into an error of its own."""
    failures = [failure for _, routine in hosts for failure in routine.failures]
    for _, routine in hosts:
        routine.failures.clear()
    if failures:
        raise failures[0] from failures[0].__cause__


# What is added to the names of functions and of a session's nodes.
_ADDED_TO_NAMES = re.compile(r"__amanda_\d+_\d+|amanda_shadow_\d+/")


def name_as_the_program_does(error: Any) -> None:
    """Have an error of TensorFlow's speak of the program's own functions and nodes."""
    error._message = _ADDED_TO_NAMES.sub("", error.message)


def _remove(names: Sequence[str]) -> None:
    runtime = context.context()
    for name in names:
        if runtime.has_function(name):
            runtime.remove_function(name)


class _Current:
    """What an engine has decided about a function, and the copy that obeys it."""

    __slots__ = ("decisions", "instrumented", "signature")

    def __init__(
        self, decisions: Decisions, instrumented: Instrumented | None, signature: Any
    ) -> None:
        self.decisions = decisions
        self.instrumented = instrumented
        self.signature = signature


class _Copies:
    """The instrumented copies of one function, which live as long as it does."""

    def __init__(self) -> None:
        self.said_to_leave_xla = False
        self.said_which_streams = False
        self.current: weakref.WeakKeyDictionary[Engine, _Current] = weakref.WeakKeyDictionary()
        self.by_key: dict[Any, list[Instrumented]] = {}


class Functions:
    """Calls functions as the tools want it."""

    def __init__(self, driver: TensorFlowDriver) -> None:
        self._driver = driver
        _Versions.when_none_are_left = driver.refresh

    @property
    def unfinished(self) -> bool:
        """Whether there are tensors that backward functions need other versions of."""
        return bool(_Versions.alive)

    def patches(self) -> list[tuple[Any, str, Any, Any]]:
        """What to exchange in TensorFlow while tools are in force."""
        owner = atomic_function.AtomicFunction
        original = owner.call_flat

        def call_flat(function: Any, *args: Any) -> Any:
            if function._bound_context.executing_eagerly():
                engine = self._driver.engine()
                if engine is not None or _Versions.alive:
                    try:
                        outputs = self._call(function, args, engine)
                    except Exception as error:
                        self._driver.shorten_traceback(error)
                        raise
                    if outputs is not None:
                        return outputs
            elif _Versions.alive and (signature := _stashed_versions(args)):
                return self._call_in_graph(original, function, args, signature)
            return original(function, *args)

        return [(owner, "call_flat", original, call_flat)]

    def _call(self, function: Any, args: Sequence[Any], engine: Engine | None) -> Any:
        """Call an AtomicFunction with flat arguments; None when nothing is to be done to it."""
        signature = _stashed_versions(args)
        if engine is None and not signature:
            return None
        copies = attached(function, "_amanda_copies", _Copies)
        if engine is None:
            with self._driver.preparing:
                instrumented: Instrumented | None = self._without_tools(
                    function, args, copies, signature
                )
        else:
            current = copies.current.get(engine)
            if (
                current is None
                or current.signature != signature
                or not engine.caching
                or not current.decisions.is_current(engine)
            ):
                with self._driver.preparing:
                    current = self._instrument(function, args, engine, copies, signature)
                    copies.current[engine] = current
            instrumented = current.instrumented
        if instrumented is None:
            return None
        with atomic_function.InterpolateRuntimeError(function):
            outputs = instrumented(args, len(function.function_type.flat_outputs))
        for output, output_type in zip(outputs, function.function_type.flat_outputs, strict=True):
            handle_data = output_type.dtype._handle_data
            if handle_data:
                handle_data_util.set_handle_data(output, handle_data.shape_inference)
        return outputs

    def _instrument(
        self, function: Any, args: Sequence[Any], engine: Engine, copies: _Copies, signature: Any
    ) -> _Current:
        self._driver.eager.ran_a_graph(engine)
        root = Frame.of_function(function)
        self._driver.identities.identify(
            ((f.graph, f.scope, f.forward_operations()) for f in root.walk()),
            [("variable", arg._id) for arg in args if arg.dtype.name == "resource"],
        )
        decisions = decide(root, engine, self._driver.analyzing(FunctionValues(args, function)))
        self._driver.pipelines.look_at(root, engine)
        if not decisions.stages and not signature:
            return _Current(decisions, None, signature)
        candidates = copies.by_key.setdefault((decisions.key, signature), [])
        for instrumented in candidates:
            if instrumented.free_for(engine):
                break
        else:
            instrumented = Instrumented(root, decisions.stages, _available(args, signature))
            candidates.append(instrumented)
            if instrumented.leaves_xla and not copies.said_to_leave_xla:
                copies.said_to_leave_xla = True
                _log.warning(_LEAVES_XLA, root.graph.name)
            if not copies.said_which_streams:
                copies.said_which_streams = True
                note_new_streams(root.graph.name, _streams(root))
        while len(copies.by_key) > _KEPT:
            del copies.by_key[next(iter(copies.by_key))]
        instrumented.bind(engine, decisions.stages)
        return _Current(decisions, instrumented, signature)

    def _call_in_graph(
        self, call_flat: Any, function: Any, args: Sequence[Any], signature: Any
    ) -> Any:
        """Call a backward function while a graph is built, as that of a Jacobian is."""
        with self._driver.preparing:
            root = Frame.of_function(function)
            rewriter = Rewriter(root, (), next(_serials), _available(args, signature))
            rewriter.run()
            with_versions = _registered(renamed_definitions(root, next(_serials)), function)
        added = [_version(source, args) for source in rewriter.arguments]
        return call_flat(with_versions, *args, *added)

    def _without_tools(
        self, function: Any, args: Sequence[Any], copies: _Copies, signature: Any
    ) -> Instrumented:
        """A backward function after the scope of its forward function: it needs its versions."""
        candidates = copies.by_key.setdefault(((), signature), [])
        if not candidates:
            root = Frame.of_function(function)
            candidates.append(Instrumented(root, (), _available(args, signature)))
        return candidates[0]


def _registered(definitions: Sequence[Any], original: Any) -> Any:
    """Functions that can be called while a graph is built; the last one of them."""
    with ops.Graph().as_default() as library:
        for child in original.children:
            library._add_function_recursive(child)
        for definition in definitions:
            graph = function_def_to_graph.function_def_to_graph(definition)
            for tensor, known in zip(
                graph.inputs, original.function_type.flat_inputs, strict=False
            ):
                if definition is definitions[-1]:
                    tensor.set_shape(known.shape)
            registered = atomic_function.from_func_graph(
                definition.signature.name, graph, definition.attr
            )
            library._add_function(registered)
    return registered


def _version(source: Capture | Stashed, args: Sequence[Any]) -> Any:
    assert isinstance(source, Stashed)
    return getattr(args[source.argument], _VERSIONS)[source.operator]


def _available(args: Sequence[Any], signature: Any) -> Callable[[int, Wanted], int | None]:
    """Tells the data type of a version of an argument, if there is one."""
    available = dict(signature)

    def stashed(index: int, operator: Wanted) -> int | None:
        if operator not in available.get(index, ()):
            return None
        return int(args[index].dtype.as_datatype_enum)

    return stashed


def _stashed_versions(args: Sequence[Any]) -> tuple[Any, ...]:
    """Which arguments have other versions, for which operators."""
    return tuple(
        (index, tuple(versions))
        for index, arg in enumerate(args)
        if (versions := getattr(arg, _VERSIONS, None))
    )
