"""This module alone uses private names of TensorFlow, and says what for.

They are looked up here and nowhere else, when the driver is loaded and before it changes anything:
a version of TensorFlow that lacks one is refused by this name.
"""

from __future__ import annotations

from typing import Any

import tensorflow  # noqa: F401  # its modules below are found only once it is imported as a whole
from amanda.driving import PrivateNames

_find = PrivateNames("amanda-tensorflow", "tensorflow").find

# ---- Graphs, as they are written down.

types_pb2: Any = _find("tensorflow.core.framework.types_pb2", "DT_FLOAT_REF", "DT_RESOURCE")
graph_pb2: Any = _find("tensorflow.core.framework.graph_pb2", "GraphDef")
function_pb2: Any = _find("tensorflow.core.framework.function_pb2", "FunctionDef")
node_def_pb2: Any = _find("tensorflow.core.framework.node_def_pb2", "NodeDef")
# The signature of an operator, by which its inputs and outputs are told apart.
op_def_registry: Any = _find("tensorflow.python.framework.op_def_registry", "get")
# What runs an operator that is in no graph, and what a thread's operators wait in.
pywrap_tfe: Any = _find(
    "tensorflow.python.pywrap_tfe",
    *("TFE_Py_FastPathExecute", "TFE_ContextGetExecutorForThread", "TFE_DeleteExecutor"),
    *("TFE_ExecutorIsAsync", "TFE_ExecutorWaitForAllPendingNodes", "TFE_ExecutorClearError"),
)
# Values that constants hold.
tensor_util: Any = _find(
    "tensorflow.python.framework.tensor_util",
    *("MakeNdarray", "constant_value", "try_evaluate_constant"),
)
# Whether the sizes of tensors are integers.
tensor_shape: Any = _find("tensorflow.python.framework.tensor_shape", "TensorShape._v2_behavior")
# In which loop of control flow v1 an operation is.
control_flow_util: Any = _find(
    "tensorflow.python.ops.control_flow_util", "GetContainingWhileContext"
)

# ---- Running graphs: where functions and sessions are called, and what they are called with.

# Functions are registered with the runtime, and called there; tools' own code runs eagerly.
context: Any = _find(
    "tensorflow.python.eager.context",
    *("context", "eager_mode", "graph_mode", "executing_eagerly"),
    *("Context.add_function_def", "Context.call_function", "Context.get_function_def"),
    *("Context.has_function", "Context.remove_function", "Context._handle"),
)
# What every call of a tf.function ends in, and what makes one of a graph.
atomic_function: Any = _find(
    "tensorflow.python.eager.polymorphic_function.atomic_function",
    *("AtomicFunction.call_flat", "from_func_graph", "InterpolateRuntimeError"),
)
# Attributes of functions: compiled by XLA, and the name of the one that computes the gradient.
attributes: Any = _find(
    "tensorflow.python.eager.polymorphic_function.attributes", "XLA_COMPILE", "BACKWARD_FUNCTION"
)
# The graph of a function that has only a definition.
function_def_to_graph: Any = _find(
    "tensorflow.python.framework.function_def_to_graph", "function_def_to_graph"
)
# Which devices an operator has kernels for, and with which data types.
kernels: Any = _find("tensorflow.python.framework.kernels", "get_registered_kernels_for_op")
# What a resource or variant holds, which the outputs of a call are to know too.
handle_data_util: Any = _find(
    "tensorflow.python.ops.handle_data_util", "set_handle_data", "get_handle_data"
)
# What a session's run ends in, and how it names what it is to run.
session_lib: Any = _find(
    "tensorflow.python.client.session",
    *("BaseSession._call_tf_sessionrun", "BaseSession._extend_graph", "BaseSession._Callable"),
)
pywrap_tf_session: Any = _find(
    "tensorflow.python.client.pywrap_tf_session",
    *("TF_OperationName", "TF_SessionRunCallable", "TF_GetBuffer"),
)
# How a session is told to connect tensors in another way.
config_pb2: Any = _find("tensorflow.core.protobuf.config_pb2", "CallableOptions")
# Errors of a run, which lead back to the routine that raised.
errors: Any = _find(
    "tensorflow.python.framework.errors",
    "OpError",
    "FailedPreconditionError",
    "InvalidArgumentError",
    "NotFoundError",
)
# Where TensorFlow shortens the tracebacks of errors, and takes away their causes.
traceback_utils: Any = _find("tensorflow.python.util.traceback_utils", "_process_traceback_frames")
# The threads of a strategy, which share the tools of the one that starts them.
mirrored_run: Any = _find(
    "tensorflow.python.distribute.mirrored_run",
    *("_MirroredReplicaThread.run", "_MirroredReplicaContext._merge_call"),
)
# Pipelines of data, which run functions where tools do not see them.
dataset_ops: Any = _find(
    "tensorflow.python.data.ops.dataset_ops",
    *("DatasetV2._functions", "DatasetV2._inputs", "DatasetV2.reduce"),
)
iterator_ops: Any = _find(
    "tensorflow.python.data.ops.iterator_ops", "OwnedIterator._create_iterator"
)
# Routines on the host, called with eager tensors, and kept as long as the graph that calls them.
script_ops: Any = _find(
    "tensorflow.python.ops.script_ops", "EagerFunc", "FuncRegistry.__call__", "_py_funcs.insert"
)
# Variables: a tool's are of this class; reading one without the class.
resource_variable_ops: Any = _find(
    "tensorflow.python.ops.resource_variable_ops", "ResourceVariable"
)
gen_resource_variable_ops: Any = _find(
    "tensorflow.python.ops.gen_resource_variable_ops", "read_variable_op"
)

# ---- Building graphs: functions that are wrapped, so that it is noted what belongs together.

# Gradients, by the function registered for an operator: in a graph, under a tape, of a Jacobian.
registry: Any = _find(
    "tensorflow.python.framework.registry", "Registry.lookup", "Registry._registry"
)
gradients_util: Any = _find("tensorflow.python.ops.gradients_util", "_GradientsHelper")
imperative_grad: Any = _find("tensorflow.python.eager.imperative_grad", "imperative_grad")
# It is also what runs one operator by its type and attributes, as on the value of a variable.
execute: Any = _find("tensorflow.python.eager.execute", "record_gradient", "execute")
backprop: Any = _find(
    "tensorflow.python.eager.backprop",
    *("GradientTape.jacobian", "GradientTape.batch_jacobian"),
    *("GradientTape.watch", "GradientTape._push_tape", "GradientTape._pop_tape"),
)
# Custom gradients, which may run forward code again, under tapes of their own.
custom_gradient: Any = _find("tensorflow.python.ops.custom_gradient", "_graph_mode_decorator")
# Where tapes are told of one, and so of the gradient function that they call.
record: Any = _find("tensorflow.python.eager.record", "record_operation", "could_possibly_record")
# The gradients of branches and of the bodies of loops, which know what they are the gradient of.
cond_v2: Any = _find("tensorflow.python.ops.cond_v2", "_CondGradFuncGraph")
while_v2: Any = _find("tensorflow.python.ops.while_v2", "_WhileBodyGradFuncGraph")
# What computes a graph for many elements at once.
pfor: Any = _find("tensorflow.python.ops.parallel_for.pfor", "PFor.__init__")
# Functions as they are traced, and name scopes as they are opened.
func_graph: Any = _find(
    "tensorflow.python.framework.func_graph", "func_graph_from_py_func", "FuncGraph"
)
ops: Any = _find(
    "tensorflow.python.framework.ops",
    *("Graph.name_scope", "Graph._original_op", "Graph._unsafe_unfinalize"),
    "Graph._get_function",
    *("Graph._add_function_recursive", "Graph._add_function", "Graph.graph_def_versions"),
    *("Operation._add_control_inputs", "Operation._get_control_flow_context"),
    *("Operation._id", "Operation._c_op"),
    "SymbolicTensor._as_tf_output",
    *("Graph._create_op_internal", "get_default_graph"),
    *("gradient_registry", "_gradient_registry"),
)
# What layers take and give may be made of several tensors; where the program calls them.
composite_tensor: Any = _find("tensorflow.python.framework.composite_tensor", "CompositeTensor")
tf_stack: Any = _find("tensorflow.python.util.tf_stack", "extract_stack")
# The Python function that was traced, under its decorators.
tf_decorator: Any = _find("tensorflow.python.util.tf_decorator", "unwrap", "make_decorator")
# Gradients may be given by slices, and are told apart by operators put between them.
indexed_slices: Any = _find("tensorflow.python.framework.indexed_slices", "IndexedSlices")
tensor_lib: Any = _find("tensorflow.python.framework.tensor", "Tensor")
array_ops: Any = _find("tensorflow.python.ops.array_ops", "identity")
