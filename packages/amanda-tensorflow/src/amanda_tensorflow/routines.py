"""Routines, made ready to run in a graph.

A host routine is a node that calls back into Python. A pure one is traced to a function which a
node calls; TensorFlow inlines it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from amanda import UnsupportedError
from amanda.driving import Point

from amanda_tensorflow._internals import (
    context,
    gen_resource_variable_ops,
    script_ops,
    tensor_util,
    types_pb2,
)
from amanda_tensorflow.body import Body, data_inputs, set_inputs
from amanda_tensorflow.rows import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from amanda.driving import Action

    from amanda_tensorflow.composites import Anchor
    from amanda_tensorflow.identity import TensorFlowOperator
    from amanda_tensorflow.rows import Rows

# Constants of a routine that are larger become arguments: a graph is no place for masks.
_LARGE = 1024  # bytes

_FIXED = (
    "this input is fed, or taken by other operators that hold state, so it cannot be replaced in a "
    "session; replace the operator's outputs, or insert the routine with pure=True"
)


class _Inside(threading.local):
    """What tools' code a thread is running.

    Attributes:
        routine: whether it is running any.
        host: whether TensorFlow has called it from one of its threads, which it then holds.
    """

    routine = False
    host = False


_inside = _Inside()


def inside_routine() -> bool:
    """Whether this thread is running a tool's code, which is not to be instrumented."""
    return _inside.routine


class OwnScope:
    """Has what this thread runs be no tool's code, since a routine opens a scope, until left.

    Raises:
        UnsupportedError: it would wait forever for one of TensorFlow's threads.
    """

    _waiting = 0
    _lock = threading.Lock()

    def __init__(self) -> None:
        self._host = _inside.host
        if self._host:
            with OwnScope._lock:
                if OwnScope._waiting + 1 >= _threads():
                    raise UnsupportedError(
                        f"a scope in a host routine holds one of TensorFlow's {_threads()} threads "
                        "that run operators, and none would be left for those in the scope; call "
                        "tf.config.threading.set_inter_op_parallelism_threads(n) with a larger n "
                        "at the start of the program"
                    )
                OwnScope._waiting += 1
        _inside.routine = _inside.host = False

    def leave(self) -> None:
        """Go on with the routine."""
        _inside.routine, _inside.host = True, self._host
        if self._host:
            with OwnScope._lock:
                OwnScope._waiting -= 1


def _threads() -> int:
    """How many operators TensorFlow runs at a time."""
    chosen: int = tf.config.threading.get_inter_op_parallelism_threads()
    return chosen or len(getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0))


@contextlib.contextmanager
def tools_code() -> Iterator[None]:
    """Run a tool's code."""
    before, _inside.routine = _inside.routine, True
    try:
        yield
    finally:
        _inside.routine = before


def incompatible_reason(original: Any, substitute: Any) -> str | None:
    """Why ``substitute`` cannot stand for ``original``; None if it can."""
    if original is None:
        return "there is no gradient here that could be replaced"
    if not isinstance(substitute, (tf.Tensor, tf.Variable, np.ndarray, np.generic)):
        return f"returned {type(substitute).__name__} {substitute!r}, which is no tensor"
    return _dtype_mismatch(original.dtype, substitute)


def _dtype_mismatch(expected: Any, substitute: Any) -> str | None:
    expected, given = tf.as_dtype(expected).base_dtype, tf.as_dtype(substitute.dtype).base_dtype
    if not _replaceable(expected):
        return f"a tensor of type {expected.name} cannot be replaced"
    if given != expected:
        return f"returned a tensor of {given.name}, the operator takes {expected.name}"
    return None


def _shape_mismatch(expected: Any, substitute: Any) -> str | None:
    given = tf.TensorShape(substitute.shape)
    if expected.is_compatible_with(given):
        return None
    return f"returned a tensor of shape {given}, it has to be of shape {expected}"


def _replaceable(dtype: Any) -> bool:
    return dtype not in (tf.resource, tf.variant) and not dtype._is_ref_dtype


class Stage:
    """Routines that run together at one point of one operator.

    Attributes:
        frame: number of the frame that it is in.
        anchor: name of the node, number of the gradient call among those of the frame, or what
            these are of a composite.
        point: where they run.
        given: positions of the tensors that the routines get, among all at that point; for a
            gradient that does not flow, and for a list or dataset, which Python cannot see, they
            get None.
        results: positions of the tensors that they may replace, or of all outputs.
        dtypes: data types of the tensors at all positions of ``given`` and ``results``.
        shapes: what is known of their shapes while the graph does not run.
        rows: which of them are gradients of which there are some rows, and routines get the whole.
        pure: the traced routines, None for host routines.
    """

    def __init__(
        self,
        frame: int,
        anchor: Anchor,
        point: Point,
        actions: Sequence[Action],
        tensors: Sequence[Any],
        outputs: Sequence[Any] | None,
        operator: TensorFlowOperator,
        rows: Mapping[int, Rows] | None = None,
    ) -> None:
        self.frame = frame
        self.anchor = anchor
        self.point = point
        self.actions = actions
        self.operator = operator
        self.pure: PureRoutine | None = None
        self.count = len(tensors) - 2 * len(rows or ())
        self._fixed: dict[int, str] = {}

        def wanted(actions: Iterable[Action]) -> set[int]:
            chosen = (range(self.count) if a.indices is None else a.indices for a in actions)
            return {i for indices in chosen for i in indices}

        self.given = [
            i
            for i in sorted(wanted(actions))
            if i < self.count and tensors[i] is not None and tensors[i].dtype != tf.variant
        ]
        whole = wanted(action for action in actions if action.whole).intersection(self.given)
        self.rows = {i: rows[i] for i in sorted(whole.intersection(rows or ()))} if rows else {}
        for of in self.rows.values():
            self.given += [of.indices] if of.number is not None else [of.indices, of.shape]
        self.dtypes = {i: tensors[i].dtype for i in self.given}
        self.shapes = {i: tensors[i].shape for i in self.given}
        self.replaces = outputs is not None
        if outputs is None:
            shapes = {of.shape for of in self.rows.values()}
            self.results = [
                i for i in self.given if _replaceable(self.dtypes[i]) and i not in shapes
            ]
            self.result_dtypes = [self.dtypes[i] for i in self.results]
        else:
            self.results = list(range(len(outputs)))
            self.result_dtypes = [output.dtype for output in outputs]
            self.result_shapes = [output.shape for output in outputs]

    def fix(self, positions: Sequence[int], why: str = _FIXED) -> None:
        """Have no routine before or after the operator replace the tensors at some positions."""
        if self.replaces:
            return
        self._fixed |= dict.fromkeys(positions, why)
        self.results = [i for i in self.results if i not in self._fixed]
        self.result_dtypes = [self.dtypes[i] for i in self.results]

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for stages that lead to the same nodes."""
        kind = "host" if self.pure is None else self.pure.digest
        return (
            self.frame,
            self.anchor,
            self.point,
            tuple(self.given),
            tuple(self.results),
            self.replaces,
            kind,
        )

    def run(self, given: Sequence[Any]) -> list[Any]:
        """Run the routines.

        Args:
            given: the tensors at the positions of :attr:`given`.

        Returns:
            The tensors at the positions of :attr:`results`.

        Raises:
            RoutineError: a routine failed, or returned what cannot be used.
        """
        at = dict(zip(self.given, given, strict=True))
        tensors = [at.get(position) for position in range(self.count)]
        with tools_code():
            if self.replaces:
                return self._replacement(tensors)
            resources = {id(tensors[i]) for i in at if not _replaceable(self.dtypes[i])}
            fixed = {id(tensors[i]): why for i, why in self._fixed.items() if i < self.count}

            def refuse(original: Any, substitute: Any) -> str | None:
                if id(original) in resources:
                    return "the variable or resource that the operator works on cannot be replaced"
                if id(original) in fixed:
                    return fixed[id(original)]
                return incompatible_reason(original, substitute)

            state = State(at, self.count, self.rows)
            for action in self.actions:
                before = state.shown(action.whole)
                after = action.run(before, before, self.operator, refuse)
                self._check_shapes(action, before, after)
                state.replace(before, after, action.whole)
            return [state.result(position) for position in self.results]

    def _check_shapes(self, action: Action, before: Sequence[Any], after: Sequence[Any]) -> None:
        """Refuse a substitute that nodes behind it were not made for.

        A gradient has exactly the shape of the gradient that it replaces.
        """
        on_gradient = self.point not in (Point.BEFORE_OP, Point.AFTER_OP)
        for position in (i for i in self.results if i < self.count):
            if after[position] is not before[position]:
                shape = before[position].shape if on_gradient else self.shapes[position]
                reason = _shape_mismatch(shape, after[position])
                if reason is not None:
                    raise action.error(reason, self.operator)

    def _replacement(self, tensors: Sequence[Any]) -> list[Any]:
        (action,) = self.actions
        result = action.call(tensors, self.operator)
        if not self.results and result is None:
            return []
        values = list(action.substitutes(result, len(self.results), self.operator))
        for value, dtype, shape in zip(values, self.result_dtypes, self.result_shapes, strict=True):
            if not isinstance(value, (tf.Tensor, tf.Variable, np.ndarray, np.generic)):
                raise action.error(f"returned {value!r}, which is no tensor", self.operator)
            reason = _dtype_mismatch(dtype, value) or _shape_mismatch(shape, value)
            if reason is not None:
                raise action.error(reason, self.operator)
        return values


class HostRoutine(script_ops.EagerFunc):  # type: ignore[misc]
    """What TensorFlow calls back for a host stage; which one that is may be changed.

    Attributes:
        token: the name by which the node refers to it.
        stage: what it runs.
        failures: exceptions that it has raised, which TensorFlow turns into text.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(self._run, [dtype.base_dtype for dtype in stage.result_dtypes], False)
        self.token: str = script_ops._py_funcs.insert(self)
        self.stage: Stage | None = stage
        self.failures: list[BaseException] = []

    def __call__(self, device: Any, token: Any, args: Any) -> Any:
        """Run it, without the tape that TensorFlow would keep for a gradient."""
        before, _inside.host = _inside.host, True
        try:
            return self._call(device, args)
        finally:
            _inside.host = before

    def _run(self, *given: Any) -> Any:
        assert self.stage is not None
        try:
            results = self.stage.run(given)
        except BaseException as failure:
            self.failures.append(failure)
            raise
        return [r.read_value() if isinstance(r, tf.Variable) else r for r in results]


class PureRoutine:
    """A stage's routines, traced to a function.

    Attributes:
        changed: positions of the tensors that the function returns.
        captures: eager tensors that it takes after the stage's own.
        digest: equal for functions that do the same with their arguments.
    """

    def __init__(
        self, function: Any, changed: list[int], body: Body, captures: Sequence[Any]
    ) -> None:
        self.changed = changed
        self.captures = captures
        self._function = function  # keeps the functions alive that it calls
        self._body = body
        definition = body.to_function("")
        self.digest = hashlib.sha256(definition.SerializeToString(deterministic=True)).hexdigest()
        self.stateful = definition.signature.is_stateful

    @classmethod
    def trace(cls, stage: Stage, tensors: Sequence[Any]) -> PureRoutine:
        """Trace the routines of a stage, to be called with ``tensors``.

        Raises:
            RoutineError: a routine failed, or returned what cannot be used.
        """
        changed: list[int] = []

        def traced(*given: Any) -> list[Any]:
            changed.clear()
            before = dict(zip(stage.given, given, strict=True))
            results = []
            for position, after in zip(stage.results, stage.run(given), strict=True):
                if stage.replaces or after is not before[position]:
                    changed.append(position)
                    results.append(tf.convert_to_tensor(after))
            return results

        specs = [
            tf.TensorSpec(tensors[i].shape, tensors[i].dtype.base_dtype, f"given_{i}")
            for i in stage.given
        ]
        with context.eager_mode(), tools_code(), tf.init_scope():
            function = tf.function(traced, autograph=False).get_concrete_function(*specs)
        body = Body.of_function(function.inference_fn.definition)
        captures = [*function.captured_inputs, *_without_large_constants(body)]
        return cls(function, changed, body, captures)

    @property
    def reads_variables(self) -> bool:
        """Whether it depends on what a variable holds when it runs."""
        return any(capture.dtype == tf.resource for capture in self.captures)

    def capture_dtypes(self, by_value: bool) -> list[int]:
        """Data types of the captures; with ``by_value`` those of the variables' values."""
        return [
            capture._handle_data.shape_and_type[0].dtype
            if by_value and capture.dtype == tf.resource
            else capture.dtype.as_datatype_enum
            for capture in self.captures
        ]

    def capture_value(self, index: int) -> Any:
        """The value of a capture, as it is now, as a NumPy array."""
        capture = self.captures[index]
        with context.eager_mode():
            if capture.dtype == tf.resource:
                (dtype,) = {part.dtype for part in capture._handle_data.shape_and_type}
                capture = gen_resource_variable_ops.read_variable_op(capture, tf.as_dtype(dtype))
            return capture.numpy()

    def definition(self, name: str) -> Any:
        """The FunctionDef."""
        return self._body.to_function(name)

    def called_functions(self) -> list[Any]:
        """The FunctionDefs of all functions that it calls."""
        found: dict[str, Any] = {}
        waiting = list(self._function.inference_fn.children)
        while waiting:
            function = waiting.pop()
            found[function.name] = function.definition
            waiting += function.children
        return list(found.values())

    def definition_by_value(self, name: str) -> Any:
        """The FunctionDef with the values of variables as arguments, instead of the variables.

        Raises:
            UnsupportedError: it does more with a variable than to read it.
        """
        body = Body.of_function(self.definition(name))
        for index, (argument, dtype) in enumerate(body.arguments):
            if dtype != types_pb2.DT_RESOURCE:
                continue
            reads = [n for n in body.nodes.values() if f"{argument}:0" in data_inputs(n)]
            if any(node.op != "ReadVariableOp" for node in reads):
                raise UnsupportedError(
                    "a pure routine in a session may read variables and do nothing else with "
                    f"them, this one uses {sorted({n.op for n in reads})}; drop pure=True"
                )
            for read in reads:
                body.arguments[index] = (argument, read.attr["dtype"].type)
                del body.nodes[read.name]
                _replace_everywhere(body, f"{read.name}:0", f"{argument}:0")
        definition = body.to_function(name)
        for arg, (_, dtype) in zip(definition.signature.input_arg, body.arguments, strict=True):
            arg.type = dtype
            arg.ClearField("handle_data")
        definition.arg_attr.clear()
        return definition


def _without_large_constants(body: Body) -> list[Any]:
    """Turn large constants of a function into arguments; the values for them."""
    captures = []
    for name, node in list(body.nodes.items()):
        if node.op == "Const" and node.attr["value"].tensor.ByteSize() > _LARGE:
            argument = body.add_argument(node.attr["dtype"].type)
            del body.nodes[name]
            _replace_everywhere(body, f"{name}:0", argument)
            with context.eager_mode():
                captures.append(tf.constant(tensor_util.MakeNdarray(node.attr["value"].tensor)))
    return captures


def _replace_everywhere(body: Body, old: str, new: str) -> None:
    gone = old.rpartition(":")[0]
    for node in body.nodes.values():
        data = [new if tensor == old else tensor for tensor in data_inputs(node)]
        control = [n[1:] for n in node.input if n.startswith("^") and n[1:] != gone]
        set_inputs(node, data, control)
    body.outputs = [new if tensor == old else tensor for tensor in body.outputs]
    body.controls = [control for control in body.controls if control != gone]


def read_attrs(operation: Any) -> Mapping[str, Any]:
    """The attributes of an operation as plain Python values; types and shapes as such."""
    found = {}
    for name, value in sorted(operation.node_def.attr.items()):
        if not name.startswith("_"):
            found[name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "list":
        for field, content in value.list.ListFields():
            return [_plain_item(field.name, item) for item in content]
        return []
    return None if kind is None else _plain_item(kind, getattr(value, kind))


def _plain_item(kind: str, value: Any) -> Any:
    if kind == "s":
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if kind == "type":
        return tf.as_dtype(value).name
    if kind == "shape":
        return None if value.unknown_rank else tuple(d.size for d in value.dim)
    if kind == "tensor":
        return tensor_util.MakeNdarray(value)
    if kind == "func":
        return value.name
    return value
