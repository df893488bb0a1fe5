"""The driver changes TensorFlow in some places for good, in others only while tools are active.

The two tables here are all of it, but for how tracebacks are shortened once an error has left a
function (:func:`amanda_tensorflow.running.errors.shortening`). What the driver knows of a graph,
function or session it keeps in attributes of that (:func:`amanda_tensorflow.notes.attached`).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from amanda.driving import OnImport, Patches

from amanda_tensorflow._internals import (
    atomic_function,
    backprop,
    custom_gradient,
    dataset_ops,
    execute,
    func_graph,
    gradients_util,
    imperative_grad,
    iterator_ops,
    mirrored_run,
    ops,
    pfor,
    pywrap_tfe,
    record,
    script_ops,
    session_lib,
    tensor_shape,
)
from amanda_tensorflow.notes import layers, name_scopes
from amanda_tensorflow.noting import custom_gradients, functions, gradients, merges, vectorized
from amanda_tensorflow.routines.actions import having_integer_shapes
from amanda_tensorflow.running import replicas, session_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from amanda_tensorflow.running.functions import Functions
    from amanda_tensorflow.running.held import HeldFunctions
    from amanda_tensorflow.running.sessions import Sessions
    from amanda_tensorflow.unseen.eager import EagerOperators
    from amanda_tensorflow.unseen.pipelines import Pipelines
    from amanda_tensorflow.unseen.python_functions import PythonFunctions

    Change = tuple[Any, str, Callable[[Any], Any]]
    """Owner and name of a function of TensorFlow, and what makes its replacement of it."""
    Patch = tuple[Any, str, Any]
    """Owner and name of a function, and its replacement."""


# They run while graphs are built, never while graphs run, and note what TensorFlow forgets: a graph
# that is built outside of all scopes may be run in one later.
_FOR_GOOD: tuple[Change, ...] = (
    # Which operator a gradient belongs to, where tf.gradients and tapes find gradient functions.
    (ops, "gradient_registry", gradients.NotingRegistry),
    (ops, "_gradient_registry", gradients.NotingRegistry),
    # The same for custom gradients, which a tape calls without looking them up.
    (record, "record_operation", gradients.noting_custom_calls),
    # Which operator a tape has seen, as it keeps nothing of it but the attributes.
    (execute, "record_gradient", gradients.noting_records),
    # Which nodes compute gradients: by tf.gradients, by a tape, and of a Jacobian.
    (gradients_util, "_GradientsHelper", gradients.noting_sections),
    (imperative_grad, "imperative_grad", gradients.noting_sections),
    (backprop.GradientTape, "jacobian", gradients.noting_jacobians),
    (backprop.GradientTape, "batch_jacobian", gradients.noting_jacobians),
    # What other replicas of a strategy make while one waits for them.
    (mirrored_run._MirroredReplicaContext, "_merge_call", merges.noting_merges),
    # What a custom gradient stands for, and which of its nodes are forward code once more: what
    # runs under the tapes that it opens.
    (custom_gradient, "_graph_mode_decorator", custom_gradients.noting_custom_gradients),
    (backprop.GradientTape, "_push_tape", custom_gradients.noting_opened),
    (backprop.GradientTape, "watch", custom_gradients.noting_watched),
    (backprop.GradientTape, "_pop_tape", custom_gradients.noting_closed),
    # Which nodes compute gradients, or do what another one does, for many elements at once.
    (ops.Graph, "_original_op", vectorized.noting_vectorized),
    (pfor.PFor, "__init__", vectorized.noting_bodies),
    # By which name the program, or a layer, opened a name scope.
    (ops.Graph, "name_scope", name_scopes.noting_scopes),
    # Which modules were called, if that opens their name scopes; those of Keras see below.
    (tf.Module, "with_name_scope", layers.noting_modules),
    # Which Python function a graph was traced from.
    (func_graph, "func_graph_from_py_func", functions.noting_functions),
    # Exports of a graph in which sessions ran under tools are what they would be without.
    (ops.Graph, "as_graph_def", session_nodes.leaving_out_copies),
)


def _replacements(changes: Iterable[Change]) -> Iterator[Patch]:
    for owner, name, change in changes:
        yield owner, name, change(getattr(owner, name))


def _layers(module: Any) -> Iterator[Patch]:
    """List what to patch where Keras calls layers."""
    yield from _replacements([(module.Layer, "__call__", layers.noting_layers)])


_for_good = Patches(
    # TensorFlow imports Keras if it is there, but where it is Keras that imports TensorFlow
    lambda: (*_replacements(_FOR_GOOD), OnImport("keras.src.layers.layer", _layers))
)


def install() -> None:
    """Put those patches in place that stay for good."""
    _for_good.hold(True, "for good")


def while_active(
    calls: Functions,
    sessions: Sessions,
    eager: EagerOperators,
    pipelines: Pipelines,
    python_functions: PythonFunctions,
) -> Iterator[Patch | OnImport]:
    """List what to patch while any thread has active tools."""
    session, replica = session_lib.BaseSession, mirrored_run._MirroredReplicaThread
    yield from _replacements(
        [
            # A rewritten copy runs: all that calls a traced function, and a session's run, end in
            # these. What hands out something to be run later is refused.
            (atomic_function.AtomicFunction, "call_flat", calls.calling),
            (session, "_call_tf_sessionrun", sessions.running),
            (session, "partial_run_setup", sessions.refusing),
            (session, "partial_run", sessions.refusing),
            (session, "_make_callable_from_options", sessions.refusing),
            # The threads of a strategy run under the tools of the one that starts them.
            (replica, "start", replicas.starting),
            (replica, "run", replicas.running),
            # It is noticed what tools do not see: operators that run eagerly, models of Keras that
            # are told to, and functions that pipelines of data run.
            (pywrap_tfe, "TFE_Py_FastPathExecute", eager.noticing_operators),
            (pywrap_tfe, "TFE_Py_FastPathExecute", pipelines.noticing_reductions),
            # So do operators in Python functions of the program, in threads of TensorFlow's own.
            (script_ops.FuncRegistry, "__call__", python_functions.noticing_calls),
            (pywrap_tfe, "TFE_Py_FastPathExecute", python_functions.noticing_operators),
            (atomic_function.AtomicFunction, "call_flat", python_functions.noticing_functions),
            *_shapes(),
            (iterator_ops.OwnedIterator, "_create_iterator", pipelines.noticing_datasets_at(1)),
            (dataset_ops.DatasetV2, "reduce", pipelines.noticing_datasets_at(0)),
        ]
    )
    yield OnImport(
        "keras.src.backend.tensorflow.trainer", functools.partial(_trainers, eager.noticing_models)
    )


def while_holding(functions: HeldFunctions) -> Iterator[Patch]:
    """List what to patch while functions compiled by XLA are compared with their operators."""
    yield from _replacements(
        [
            (atomic_function.AtomicFunction, "call_flat", functions.calling),
            (session_lib.BaseSession, "_call_tf_sessionrun", functions.running),
        ]
    )


def _shapes() -> Iterator[Change]:
    """List what to patch so that sizes of tensors are integers, where v2 behavior is off."""
    if not tensor_shape.TensorShape([])._v2_behavior:
        yield tensor_shape.TensorShape, "_v2_behavior", having_integer_shapes


def _trainers(change: Callable[[Any], Any], module: Any) -> Iterator[Patch]:
    """List what to patch where models of Keras become graphs."""
    names = ("make_train_function", "make_test_function", "make_predict_function")
    yield from _replacements((module.TensorFlowTrainer, name, change) for name in names)
