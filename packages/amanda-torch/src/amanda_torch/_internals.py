"""This module alone uses private names of PyTorch, and says what for.

They are looked up here and nowhere else, when the driver is loaded: a version of PyTorch that
lacks one is refused by this name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from amanda.driving import PrivateNames

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from torch import Tensor
    from torch.autograd.graph import Node

_find = PrivateNames("amanda-torch", "torch").find

# ---- Interception at the dispatcher. A kernel can be put on any dispatch key by torch.library, but
# only these have it arrive there, in one thread, and go on from there.

# The dispatch key of a name.
dispatch_key_parse: Callable[[str], Any] = _find("torch._C._dispatch_key_parse")
# Has the operators of a thread arrive at the kernels on a key, or not; whether they do.
set_key_included: Callable[[Any, bool], None] = _find(
    "torch._C._dispatch_tls_set_dispatch_key_included"
)
is_key_included: Callable[[Any], bool] = _find("torch._C._dispatch_tls_is_dispatch_key_included")
# Keeps the operators of a thread, and of the backward that it starts, from a key; whether it does.
set_key_excluded: Callable[[Any, bool], None] = _find(
    "torch._C._dispatch_tls_set_dispatch_key_excluded"
)
is_key_excluded: Callable[[Any], bool] = _find("torch._C._dispatch_tls_is_dispatch_key_excluded")
# The keys after one, with which an operator is run from there.
keyset_after: Callable[[Any], Any] = _find("torch._C._dispatch_keyset_full_after")
# The operators of all libraries; torch.ops knows only those that it was asked for.
operator_names: Callable[[], list[str]] = _find("torch._C._dispatch_get_all_op_names")
# The overloads of one name, some of TorchScript's own among them, which takes microseconds.
overloads_of: Callable[[str], tuple[Any, Any]] = _find("torch._C._jit_get_operation")
# An overload's schema, its call, and the handle that runs it, from the start and from a key on.
call_boxed: Callable[..., Any] = _find("torch._C._dispatch_call_boxed")
_find("torch.ops.aten.relu.default", "_schema", "_op", "_handle.redispatch_boxed")
# Where Python's functions for operators stand: those of torch.nn.functional, torch, and tensors.
BINDINGS: tuple[Any, ...] = (
    _find("torch._C._nn"),
    _find("torch._C._VariableFunctions"),
    _find("torch._C.TensorBase"),
)
# A library of kernels is taken back by this alone.
_find("torch.library.Library._destroy")
# Where libraries of operators are loaded from a file, and where an operator that takes functions
# is given its keys: both are exchanged in a scope.
Ops: Any = _find("torch._ops._Ops", "load_library")
ops_module: Any = _find("torch._ops", "_compute_keyset")
# How torch.ops gets to an operator: frames that are no call sites of the model.
OpOverload: Any = _find("torch._ops.OpOverload", "__call__")
OpOverloadPacket: Any = _find("torch._ops.OpOverloadPacket", "__call__")

# ---- Numbers that stand for tensors. Python has no function that wraps one, but an operator that
# takes a number keeps what it has wrapped for its gradient; the rest has nobody else see that.

# Whether an operator of torch takes a number for a tensor from Python, as mul does.
takes_numbers: Callable[[str], bool] = _find("torch._C._should_allow_numbers_as_tensors")
multiply: Callable[..., Tensor] = _find("torch.ops.aten.mul.Tensor._op")
# The active dispatch keys of a thread, of modes and transforms among them, and inference mode.
ForceDispatchKeys: Any = _find("torch._C._ForceDispatchKeyGuard")
DispatchKeySet: Any = _find("torch._C.DispatchKeySet")
DispatchKey: Any = _find(
    "torch._C.DispatchKey",
    *("BackendSelect", "ADInplaceOrView", "CompositeImplicitAutograd", "Undefined"),
)
InferenceMode: Any = _find("torch._C._InferenceMode")
DisableTorchFunction: Any = _find("torch._C.DisableTorchFunction")
# Whether a profiler runs in a thread, and whether it is told of operators.
is_profiled: Callable[[], bool] = _find("torch._C._autograd._profiler_enabled")
record_functions: Callable[[bool], None] = _find("torch._C._autograd._enable_record_function")
# Whether a tensor lies in memory; a weak reference to that, whose number no other memory has then.
has_storage: Callable[[Tensor], bool] = _find("torch._C._has_storage")
_find("torch.utils.weakref.getweakrefs")
StorageWeakRef: Any = _find("torch.multiprocessing.reductions.StorageWeakRef", "expired")
_find("torch.UntypedStorage._cdata")

# ---- Modules and functions that are exchanged in a scope.

# What stands between the call of a module and its forward: frames that are no call sites.
wrapped_call_impl: Any = _find("torch.nn.Module._wrapped_call_impl")
call_impl: Any = _find("torch.nn.Module._call_impl")
# What Function.apply ends in, in Python and in C++, and under torch.func; which class has no
# setup_context.
FunctionBase: Any = _find("torch._C._FunctionBase", "apply")
SingleLevelFunction: Any = _find("torch.autograd.function._SingleLevelFunction", "setup_context")
custom_function_call: Any = _find("torch.autograd.function.custom_function_call")
# Whether transforms of torch.func are in use.
transforms_active: Callable[[], bool] = _find("torch._C._are_functorch_transforms_active")
# What every transform is entered by, in the modules that look it up there, and forward mode.
transform_entries: tuple[tuple[str, str], ...] = (
    ("torch._functorch.vmap", "_vmap_increment_nesting"),
    ("torch._functorch.eager_transforms", "_grad_increment_nesting"),
    ("torch._functorch.eager_transforms", "_jvp_increment_nesting"),
    ("torch._functorch.eager_transforms", "_func_increment_nesting"),
    ("torch.autograd.forward_ad", "enter_dual_level"),
)
for _module, _entry in transform_entries:
    _find(f"{_module}.{_entry}")
# What computes the tangent of a custom Function, by its jvp.
BackwardCFunction: Any = _find("torch.autograd.function.BackwardCFunction", "apply_jvp")
# Whether an operator has a kernel of its own on a dispatch key; running it by that of a key.
has_kernel: Callable[[str, str], bool] = _find("torch._C._dispatch_has_kernel_for_dispatch_key")
_find("torch.ops.aten.mul.Tensor._op_dk")
# A transform entered and left, that of torch.func.grad.
enter_transform: Callable[[], int] = _find("torch._C._functorch._grad_increment_nesting")
leave_transform: Callable[[], int] = _find("torch._C._functorch._grad_decrement_nesting")
# From 2.15 on Function.apply is C++; it looks these up at each call, through the class of classes.
APPLY_IN_PYTHON = hasattr(_find("torch.autograd.Function").apply, "__code__")
FunctionMeta: Any = _find("torch.autograd.function.FunctionMeta")
bind_default_args: Any = None
if not APPLY_IN_PYTHON:
    bind_default_args = _find("torch.autograd.function._bind_default_args")
    _find("torch.autograd.function._call_custom_function_call")
# The start of every backward, and of the gradients that it begins with.
engine_run_backward: Any = _find("torch.autograd._engine_run_backward")
make_grads: Any = _find("torch.autograd._make_grads")
# What torch.library gives an operator its gradient with, and hooks of modules theirs: Functions
# that are none of the program's.
library_autograd: Any = _find("torch._library.autograd")
BackwardHookFunction: type = _find("torch.nn.modules._functions.BackwardHookFunction")
SyncBatchNorm: type = _find("torch.nn.modules._functions.SyncBatchNorm")
# A checkpoint without reentry, and what ends its running again.
CheckpointFrame: Any = _find("torch.utils.checkpoint._CheckpointFrame", "__init__")
StopRecomputation: type[BaseException] = _find("torch.utils.checkpoint._StopRecomputationError")

# ---- The autograd graph.

# The key that is excluded in a thread below autograd: in what an operator is made of whose gradient
# is its own.
AUTOGRAD: Any = dispatch_key_parse("AutogradFunctionality")

# Autograd numbers its nodes in the order in which a thread makes them: the next number, and that
# of a node.
sequence_number: Callable[[], int] = _find("torch._C._autograd._get_sequence_nr")
_find("torch._C._FunctionBase._sequence_nr")
# The node that made a tensor, or that accumulates its gradient.
node_of: Callable[[Tensor], Node] = _find("torch.autograd.graph._get_grad_fn_or_grad_acc")
# The node that is running.
current_node: Callable[[], Node] = _find("torch._C._current_autograd_node")
# The number of the backward pass that is running.
graph_task: Callable[[], int] = _find("torch._C._current_graph_task_id")
# Whether the backward pass that is running comes to a node.
will_run: Callable[[Node], bool] = _find("torch._C._will_engine_execute_node")
# Whether hooks of the program on what is saved are active, and whether others may be.
active_saved_hooks: Callable[[bool], Any] = _find(
    "torch._C._autograd._top_saved_tensors_default_hooks"
)
saved_hooks_allowed: Callable[[], bool] = _find(
    "torch._C._autograd._saved_tensors_hooks_is_enabled"
)
# Whether two tensors share memory, also where they have none to compare the addresses of.
share_memory: Callable[[Tensor, Tensor], bool] = _find("torch._C._is_alias_of")
# Gradients on and off at less cost than by a context.
set_grad_enabled: Callable[[bool], None] = _find("torch._C._set_grad_enabled")
# A view of a tensor made again of another one.
view_again: Callable[[Tensor, Tensor], Tensor] = _find("torch.Tensor._view_func")
# Writes to a tensor that leave valid what autograd has saved of it.
keeping_version: Any = _find("torch.autograd._unsafe_preserve_version_counter")
# Forward mode off and on, and whether it is in use.
set_forward_mode: Any = _find("torch.autograd.forward_ad._set_fwd_grad_enabled")
forward_ad: Any = _find("torch.autograd.forward_ad", "_current_level")
make_dual: Any = _find("torch.autograd.forward_ad.make_dual")
# A tensor and its tangent, of a level; and a block in which the transforms of torch.func are off.
unpack_dual: Callable[..., tuple[Tensor, Tensor | None]] = _find("torch._VF._unpack_dual")
without_transforms: Any = _find("torch._C._DisableFuncTorch")
# Operators on a tool's variable give plain tensors.
disabled_torch_function: Any = _find("torch._C._disabled_torch_function_impl")

# ---- Tracing, whose tensors are no values, and the program's own modes, which must not see what
# is run for an analysis.

_MODE_KEYS = "torch._C._TorchDispatchModeKey"
TRACERS: tuple[Any, ...] = tuple(
    _find(f"{_MODE_KEYS}.{name}") for name in ("FAKE", "PROXY", "FUNCTIONAL")
)
count_function_modes: Callable[[], int] = _find("torch._C._len_torch_function_stack")
count_modes: Callable[[], int] = _find("torch._C._len_torch_dispatch_stack")
mode_of: Callable[[Any], Any] = _find("torch._C._get_dispatch_mode")
FakeTensor: type = _find("torch._subclasses.fake_tensor.FakeTensor")
FunctionalTensor: type = _find("torch._subclasses.functional_tensor.FunctionalTensor")
is_jit_tracing: Callable[[], bool] = _find("torch._C._is_tracing")
# Whether functions of modes and of classes of tensors are asked first, and what switches that.
overrides: Callable[[], Any] = _find("torch._C._get_torch_function_state")
set_overrides: Callable[[Any], None] = _find("torch._C._set_torch_function_state")
NO_OVERRIDES: Any = _find("torch._C._TorchFunctionState.ALL_DISABLED")
disable_modes: Any = _find("torch.utils._python_dispatch._disable_current_modes")

# ---- Differentiation below the dispatcher, which nothing public tells of or switches.

# Whether TorchScript optimizes what the current thread runs (torch.jit.optimized_execution).
script_optimizes: Callable[[], bool] = _find("torch._C._get_graph_executor_optimize")
set_script_optimizes: Callable[[bool], None] = _find("torch._C._set_graph_executor_optimize")
# The lines of TorchScript that a thread is at, innermost first.
gather_traceback: Callable[..., Any] = _find("torch._C._profiler.gather_traceback")
symbolize_tracebacks: Callable[[list[Any]], list[list[dict[str, Any]]]] = _find(
    "torch._C._profiler.symbolize_tracebacks"
)
# What forgets the plans by which a method or a function of TorchScript is run.
ScriptMethod: Any = _find("torch._C.ScriptMethod", "_debug_flush_compilation_cache")
_find("torch._C.ScriptFunction._debug_flush_compilation_cache")
# The methods of what it calls through an interface, which are those of modules within a module.
ModuleDict: Any = _find("torch._C.ModuleDict")
_find("torch._C.ScriptModule", "_get_method", "_method_names")
# Whether a transform of torch.func has wrapped a tensor, and the tensor in it.
is_wrapped: Callable[[Tensor], bool] = _find("torch._C._functorch.is_functorch_wrapped_tensor")
unwrapped: Callable[[Tensor], Tensor] = _find("torch._C._functorch.get_unwrapped")
# Whether it is of a batch that autograd makes by itself (is_grads_batched), whose graph is hidden.
is_hidden_batch: Callable[[Tensor], bool] = _find("torch._C._functorch.is_legacy_batchedtensor")
# Whether it is functionalize that has, and bringing what it has wrapped up to date.
is_functional: Callable[[Tensor], bool] = _find("torch._is_functional_tensor")
sync: Callable[[Tensor], None] = _find("torch._sync")
# The tensor that a transform has wrapped which has ended.
unwrap_if_dead: Callable[[Tensor], Tensor] = _find("torch._C._functorch.unwrap_if_dead")
# How vmap has wrapped one, and wrapping and unwrapping as it does.
is_batched: Callable[[Tensor], bool] = _find("torch._C._functorch.is_batchedtensor")
batch_dim: Callable[[Tensor], int] = _find("torch._C._functorch.maybe_get_bdim")
level_of: Callable[[Tensor], int] = _find("torch._C._functorch.maybe_get_level")
current_level: Callable[[], int] = _find("torch._C._functorch.maybe_current_level")
add_batch_dim: Callable[[Tensor, int, int], Tensor] = _find("torch._C._functorch._add_batch_dim")
remove_batch_dim: Callable[[Tensor, int, int, int], Tensor] = _find(
    "torch._C._functorch._remove_batch_dim"
)
entered_vmap: Any = _find("torch._functorch.vmap.vmap_increment_nesting")

# ---- Tensors and containers of them.

# The layout of tensors that oneDNN keeps in an order of its own.
mkldnn: torch.layout = _find("torch._mkldnn")
# What lies in containers that programs have registered, among other ones.
tree_leaves: Callable[[Any], list[Any]] = _find("torch.utils._pytree.tree_leaves")

# ---- Compiled code.

# What captures the frames of a thread for the compiler, None for nothing; and what it does with a
# frame of some code, and with those that this calls.
set_capture: Callable[[Any], Any] = _find("torch._C._dynamo.eval_frame.set_eval_frame")
set_captured: Callable[[CodeType, Any], None] = _find(
    "torch._C._dynamo.eval_frame.set_code_exec_strategy"
)
CaptureStrategy: Any = _find("torch._C._dynamo.eval_frame._FrameExecStrategy")
CaptureAction: Any = _find("torch._C._dynamo.eval_frame._FrameAction", "SKIP", "DEFAULT")


def output_graph() -> Any:
    """Return what the compiler captures of a program to have it compiled; it takes a second."""
    return _find("torch._dynamo.output_graph.OutputGraph", "call_user_compiler")


def compiler_settings() -> Any:
    """Return the settings of torch's own backend: by default it draws other random numbers."""
    return _find("torch._inductor.config", "patch", "fallback_random")


# ---- Processes of one program.

# Where the processes of the group leave notes for each other; some builds have no groups.
default_store: Callable[[], Any] = (
    _find("torch.distributed.distributed_c10d._get_default_store")
    if torch.distributed.is_available()
    else lambda: None
)
