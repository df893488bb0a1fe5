"""What of PyTorch is exchanged while a scope is open in some thread, and put back afterwards.

Operators are intercepted at the dispatcher; these patches tell what the dispatcher cannot: which
module is running, when a backward runs, what an activation checkpoint runs again, and calls of
custom autograd Functions, which are no operators for it.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint as checkpointing
from amanda import RoutineError, driving
from amanda.driving import in_routine
from torch.compiler import is_dynamo_compiling

from amanda_torch._internals import (
    BackwardHookFunction,
    CheckpointFrame,
    Ops,
    ScriptMethod,
    StopRecomputation,
    SyncBatchNorm,
    engine_run_backward,
    forward_ad,
    library_autograd,
    make_dual,
    make_grads,
    ops_module,
)
from amanda_torch.backward import reaches
from amanda_torch.execute import Target, execute
from amanda_torch.frames import end_paths, resume_paths, skip_frames
from amanda_torch.functions import patches_of_functions
from amanda_torch.higher_order import captured, captures, is_derived, keyset, run_derived
from amanda_torch.identity import enter, whereabouts
from amanda_torch.script import prepare, run_as_written
from amanda_torch.signature import FunctionSignature
from amanda_torch.thread import ThreadState, intercept, intercepting, local, unwatched
from amanda_torch.wrapped import NumberWithoutValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from amanda_torch.signature import Args, Kwargs

_call = torch.nn.Module.__call__
_script = vars(torch.jit.ScriptFunction)["__call__"]
_script_method = vars(ScriptMethod)["__call__"]
_new_frame = CheckpointFrame.__init__
_forward = checkpointing.CheckpointFunction.__dict__["forward"]
_compile = torch.compile
_signatures: weakref.WeakKeyDictionary[type, FunctionSignature] = weakref.WeakKeyDictionary()


def _module_call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    if is_dynamo_compiling():  # torch.export follows the code, and need not follow ours
        return _call(self, *args, **kwargs)
    thread = local.thread
    if thread.engine is None or not intercepting():
        return _call(self, *args, **kwargs)
    node, visits = thread.node, thread.visits
    thread.node = enter(self, sys._getframe(1), thread)
    if node is None:
        thread.visits = {}
    try:
        return _call(self, *args, **kwargs)
    finally:
        thread.node, thread.visits = node, visits


def _script_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Outside of modules too, the operators of one call are told apart by their turns."""
    thread = local.thread
    if thread.engine is None:
        return _script(self, *args, **kwargs)
    prepare(thread, self, args)
    if thread.visits is not None:
        return _script(self, *args, **kwargs)
    thread.visits = {}
    try:
        return _script(self, *args, **kwargs)
    finally:
        thread.visits = None


def _script_method_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    thread = local.thread
    if thread.engine is not None:
        prepare(thread, self, args)
    return _script_method(self, *args, **kwargs)


def _unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch whose operators are none of the program's.

    The threads of a backward take over what is switched on here, and so they see nothing either.
    """

    @functools.wraps(function)
    def unseen(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return function(*args, **kwargs)
        thread = local.thread
        thread.known = True
        on = intercepting()
        intercept(False)
        try:
            return function(*args, **kwargs)
        finally:
            intercept(on and thread.engine is not None)  # a routine may leave a scope

    return unseen


_seen_backward = _unseen(engine_run_backward)


@functools.wraps(engine_run_backward)
def _run_backward(*args: Any, **kwargs: Any) -> Any:
    """What a routine runs is not instrumented, also if it runs the graph of the program back."""
    if is_dynamo_compiling() or not in_routine():
        return _seen_backward(*args, **kwargs)
    with unwatched():
        return _seen_backward(*args, **kwargs)


def _concerns(cls: Any) -> bool:
    """Whether a call of a Function is not to run here and now as it is."""
    if is_dynamo_compiling() or not intercepting() or cls is checkpointing.CheckpointFunction:
        return False
    if cls.__module__ == library_autograd.__name__:
        return False  # what gives an operator of a library its gradient
    engine = local.thread.engine
    return _is_machinery(cls) or (engine is not None and engine.wants(cls.__name__))


def _run_function(cls: Any, run: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Run a Function as the tools in force want it."""
    if not _concerns(cls):
        return run(*args, **kwargs)
    if is_derived(cls):
        return run_derived(cls, run, *args, **kwargs)
    engine = local.thread.engine
    if engine is None or _is_machinery(cls):
        return _unseen(run)(*args, **kwargs)
    signature = _signatures.get(cls)
    if signature is None:
        signature = _signatures[cls] = FunctionSignature(cls)
    target = Target(cls.__name__, signature, run, lambda _, *a, **k: run(*a, **k))
    return execute(engine, target, args, kwargs)


def _is_machinery(cls: type) -> bool:
    """Whether a Function is one with which torch itself hooks into the graph."""
    if cls.__module__ == SyncBatchNorm.__module__:
        return cls is BackwardHookFunction
    return cls.__module__.startswith("torch.")


def _resumed(function: Callable[..., Any], frame: FrameType) -> Callable[..., Any]:
    """A function that is run again where in the model, and under which tools, it is run now."""
    thread = local.thread
    engine = thread.engine
    if engine is None:
        return function
    session, node, outside, floor = thread.session, thread.node, thread.outside, thread.floor
    visits = None if thread.visits is None else dict(thread.visits)
    place, origin = whereabouts(frame, thread)

    def resumed(*args: Any, **kwargs: Any) -> Any:
        if not reaches(engine):
            return function(*args, **kwargs)
        before, on = local.thread, intercepting()
        thread = local.thread = ThreadState(before.around)  # also in a thread of autograd
        thread.engine, thread.in_force, thread.session = engine, before.in_force, session
        thread.known = True
        thread.node, thread.outside, thread.floor = node, outside, floor
        thread.resumed, thread.origin = place, origin
        thread.visits = None if visits is None else dict(visits)
        run_as_written(thread, True)
        intercept(True)
        try:
            return function(*args, **kwargs)
        except RoutineError as error:
            stop = error.__cause__  # a checkpoint has what it needs, amid a routine
            if isinstance(stop, StopRecomputation):
                raise stop from None
            raise
        finally:
            run_as_written(thread, False)
            local.thread = before
            intercept(on)

    return resumed


def _checkpoint_frame(self: Any, recompute: Callable[..., Any], *args: Any) -> None:
    _new_frame(self, _resumed(recompute, sys._getframe(1)), *args)


def _checkpoint_forward(ctx: Any, run: Callable[..., Any], preserve: bool, *args: Any) -> Any:
    resumed = _resumed(run, sys._getframe(1))
    outputs = _forward.__func__(ctx, run, preserve, *args)
    ctx.run_function = resumed
    return outputs


def _patches_of_keras() -> Iterator[tuple[Any, str, Any]]:
    """Keras runs a model on stand-ins to learn its shapes: no operators of the program's."""
    scope = getattr(sys.modules.get("keras"), "SymbolicScope", None)
    if scope is None:
        return
    enter, leave = scope.__enter__, scope.__exit__

    def entered(self: Any) -> Any:
        self.intercepting = intercepting()
        intercept(False)
        return enter(self)

    def left(self: Any, *raised: Any) -> None:
        leave(self, *raised)
        intercept(self.intercepting)

    yield scope, "__enter__", entered
    yield scope, "__exit__", left


class Patches(driving.Patches):
    """What is changed in PyTorch while any thread has tools in force.

    Args:
        operators_changed: called when operators may have been added to the dispatcher.
    """

    def __init__(self, operators_changed: Callable[[], None]) -> None:
        def then_changed(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def changed(*args: Any, **kwargs: Any) -> Any:
                result = function(*args, **kwargs)
                operators_changed()
                return result

            return changed

        patches = [
            (torch.nn.Module, "__call__", _module_call),
            (torch.jit.ScriptFunction, "__call__", _script_call),
            (ScriptMethod, "__call__", _script_method_call),
            (torch.autograd, "_engine_run_backward", _run_backward),
            (torch.autograd, "_make_grads", _unseen(make_grads)),
            (forward_ad, "make_dual", _unseen(make_dual)),
            *patches_of_functions(_concerns, _run_function),
            (CheckpointFrame, "__init__", _checkpoint_frame),
            (checkpointing.CheckpointFunction, "forward", staticmethod(_checkpoint_forward)),
            (torch.library.Library, "define", then_changed(torch.library.Library.define)),
            (Ops, "load_library", then_changed(Ops.load_library)),
            (ops_module, "_compute_keyset", keyset),
            (torch, "compile", self._compile),
            (torch.Tensor, "_wrapped_number", NumberWithoutValue()),
        ]
        super().__init__(lambda: (*patches, *_patches_of_keras()))
        self._stance: Any = None

    def install(self) -> None:
        """Put them in place."""
        super().install()
        if "torch._dynamo" in sys.modules:
            self._run_eagerly()

    def remove(self) -> None:
        """Restore what was there before."""
        super().remove()
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None

    def _run_eagerly(self) -> None:
        """Have compiled models run as they are written, so that their operators are seen."""
        if self._stance is None:
            self._stance = torch.compiler.set_stance("force_eager")
            self._stance.__enter__()

    def _compile(self, *args: Any, **kwargs: Any) -> Any:
        if captures(sys._getframe(1)):
            return captured(_compile, *args, **kwargs)
        compiled = _compile(*args, **kwargs)
        self._run_eagerly()
        return compiled


def _codes(value: Any) -> Iterator[CodeType]:
    """The code of a function or of the methods of a class, and of all functions within them."""
    if isinstance(value, type):
        for member in vars(value).values():
            if isinstance(member, (FunctionType, staticmethod, classmethod)):
                yield from _codes(getattr(member, "__func__", member))
    elif isinstance(value, CodeType):
        yield value
        for constant in value.co_consts:
            if isinstance(constant, CodeType):
                yield from _codes(constant)
    elif callable(value):
        yield from _codes(getattr(inspect.unwrap(value), "__code__", None))


end_paths(_module_call.__code__)
resume_paths(*(c for c in _resumed.__code__.co_consts if isinstance(c, CodeType)))
skip_frames(_script_call.__code__, _script_method_call.__code__, _run_function.__code__)
skip_frames(_checkpoint_forward.__code__, _checkpoint_frame.__code__)
skip_frames(
    *(
        code
        for value in vars(checkpointing).values()
        if getattr(value, "__module__", None) == checkpointing.__name__
        for code in _codes(value)
    )
)
