"""Pure routines are traced to functions that nodes of a graph call and TensorFlow inlines."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from amanda import UnsupportedError

from amanda_tensorflow._internals import (
    context,
    gen_resource_variable_ops,
    tensor_util,
    types_pb2,
)
from amanda_tensorflow.graph.body import Body, control_inputs, data_inputs, set_inputs, split
from amanda_tensorflow.thread import active

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda_tensorflow.routines.stages import Stage

# Constants of a routine that are larger become arguments: a graph is no place for masks.
_LARGE = 1024  # bytes


class PureRoutine:
    """This is the pure routines of a stage, as the function that they were traced to.

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
    def trace(cls, stage: Stage) -> PureRoutine:
        """Trace the routines of a stage, to be called with the tensors that they are given.

        Raises:
            RoutineError: a routine failed, or returned what cannot be used.
        """
        changed: list[int] = []

        def traced(*given: Any) -> list[Any]:
            changed.clear()
            before = dict(zip(stage.given, given[: len(stage.given)], strict=True))
            results = []
            for position, after in zip(stage.results, stage.run(given), strict=True):
                if stage.replaces or after is not before[position]:
                    changed.append(position)
                    results.append(tf.convert_to_tensor(after))
            return results

        specs = [
            tf.TensorSpec(spec.shape, spec.dtype.base_dtype, f"given_{position}")
            for position, spec in stage.given.items()
        ]
        specs += [
            tf.TensorSpec(spec.shape, spec.dtype.base_dtype, f"asked_{position}")
            for position, (spec, _) in enumerate(stage.asked.values())
        ]
        with context.eager_mode(), active.paused(), tf.init_scope():
            function = tf.function(traced, autograph=False).get_concrete_function(*specs)
        body = Body.of_function(function.inference_fn.definition)
        captures = [*function.captured_inputs, *_without_large_constants(body)]
        _wait_for_given(body, len(specs))
        return cls(function, changed, body, captures)

    @property
    def reads_variables(self) -> bool:
        """Tell whether the routines depend on what a variable holds when they run."""
        return any(capture.dtype == tf.resource for capture in self.captures)

    def capture_dtypes(self, by_value: bool) -> list[int]:
        """List data types of the captures; with ``by_value`` those of the variables' values."""
        return [
            capture._handle_data.shape_and_type[0].dtype
            if by_value and capture.dtype == tf.resource
            else capture.dtype.as_datatype_enum
            for capture in self.captures
        ]

    def capture_value(self, index: int) -> Any:
        """Return the value of a capture, as it is now, as a NumPy array."""
        capture = self.captures[index]
        with context.eager_mode():
            if capture.dtype == tf.resource:
                (dtype,) = {part.dtype for part in capture._handle_data.shape_and_type}
                capture = gen_resource_variable_ops.read_variable_op(capture, tf.as_dtype(dtype))
            return capture.numpy()

    def definition(self, name: str) -> Any:
        """Make the FunctionDef of the traced routines, under a name."""
        return self._body.to_function(name)

    def called_functions(self) -> list[Any]:
        """List the FunctionDefs of all functions that the routines call."""
        found: dict[str, Any] = {}
        waiting = list(self._function.inference_fn.children)
        while waiting:
            function = waiting.pop()
            found[function.name] = function.definition
            waiting += function.children
        return list(found.values())

    def definition_by_value(self, name: str) -> Any:
        """Make the FunctionDef with values of variables as arguments, instead of the variables.

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
    """Turn large constants of a function into arguments, and return their values."""
    captures = []
    for name, node in list(body.nodes.items()):
        if node.op == "Const" and node.attr["value"].tensor.ByteSize() > _LARGE:
            argument = body.add_argument(node.attr["dtype"].type)
            del body.nodes[name]
            _replace_everywhere(body, f"{name}:0", argument)
            with context.eager_mode():
                captures.append(tf.constant(tensor_util.MakeNdarray(node.attr["value"].tensor)))
    return captures


def _wait_for_given(body: Body, count: int) -> None:
    """Have the results of a function wait for all that it is given, though nothing may take it.

    What makes that may have effects. And have who waits for the function wait for its results:
    TensorFlow inlines it, and of a call without results to wait for nothing is left then.
    """
    taken = {t for node in body.nodes.values() for t in data_inputs(node)} | set(body.outputs)
    untaken = []
    for argument, dtype in body.arguments[:count]:
        if f"{argument}:0" not in taken:
            node = body.add(body.unused(f"{argument}/untaken"), "Identity", [f"{argument}:0"])
            node.attr["T"].type = dtype
            untaken.append(node.name)
    for name in {split(tensor)[0] for tensor in body.outputs} & body.nodes.keys():
        node = body.nodes[name]
        set_inputs(node, data_inputs(node), [*control_inputs(node), *untaken])
        body.controls.append(name)


def _replace_everywhere(body: Body, old: str, new: str) -> None:
    gone = old.rpartition(":")[0]
    for node in body.nodes.values():
        data = [new if tensor == old else tensor for tensor in data_inputs(node)]
        control = [name for name in control_inputs(node) if name != gone]
        set_inputs(node, data, control)
    body.outputs = [new if tensor == old else tensor for tensor in body.outputs]
    body.controls = [control for control in body.controls if control != gone]
