"""The driver has PyTorch's eager mode obey tools; it is put together here."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import amanda
import array_api_compat.torch
import torch
from amanda.driving import Parameter, TensorInfo, alike, in_routine
from torch import Tensor

from amanda_torch import processes
from amanda_torch._internals import (
    CaptureAction,
    CaptureStrategy,
    disabled_torch_function,
    forward_ad,
    graph_task,
    sequence_number,
    set_capture,
    set_captured,
)
from amanda_torch.backward import rows
from amanda_torch.compiled import check_not_held, holding
from amanda_torch.interception.dispatch import Interception
from amanda_torch.interception.mapped_functions import MappedFunctions
from amanda_torch.interception.script import run_as_written
from amanda_torch.operators.types import UNINITIALIZED, canonical_type, is_forward_type
from amanda_torch.overrides import without_overrides
from amanda_torch.patches import Patches
from amanda_torch.places.identity import Identity
from amanda_torch.places.purposes import computes_parameter, purpose
from amanda_torch.profiler import TorchProfiler
from amanda_torch.tensors import descriptions, values
from amanda_torch.tensors.parameters import (
    is_parameter_itself,
    may_lead_to_parameter,
    read_from,
)
from amanda_torch.tensors.permanent import StoredParameter
from amanda_torch.tensors.substitutes import incompatible
from amanda_torch.thread import ThreadState, intercept, intercepting, local

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType

    from amanda import Operator
    from amanda.driving import Alike, Engine, Execution, Held

_OF_BACKWARD = re.compile(r"\w+(Backward[0-9]*|_backward(_\w+)?)")


class Variable(Tensor):
    """A variable is state of a tool: a tensor that routines read and the tool may assign to."""

    # Operators on it give plain tensors.
    __torch_function__ = disabled_torch_function

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        return self.detach().clone().as_subclass(Variable)

    def assign(self, value: Any) -> Variable:
        """Give it another value, of the same shape.

        Raises:
            RuntimeError: the shape does not fit.
        """
        on = intercepting()
        intercept(False)
        try:
            with torch.no_grad():
                self.copy_(torch.as_tensor(value, dtype=self.dtype))
        finally:
            intercept(on)
        return self


class Suspended(NamedTuple):
    """This is what a thread was at when a routine opened a scope."""

    thread: ThreadState
    intercepting: bool


class TorchDriver(amanda.Driver):
    """This driver intercepts operators at PyTorch's dispatcher, only those that somebody wants."""

    backend = "torch"
    vocabulary = "torch"
    has_modules = True
    tells_producers = True
    xp = array_api_compat.torch

    def __init__(self) -> None:
        self.identity = Identity(self._parameter_given)
        self._interception = Interception(self.identity, self.parameter_behind)
        interception = self._interception
        self._patches = Patches(self.identity, interception.refresh, interception.serve_transforms)
        self._mapped = MappedFunctions(self.identity, self)
        os.register_at_fork(after_in_child=_leave)

    def activate(self, engine: Engine | None) -> None:
        """Have this thread run under ``engine``.

        A scope that code opens which ``torch.compile`` runs ends the capture of frames: what
        follows in that call of the compiled code runs as it is written.
        """
        set_capture(None)
        if engine is None:
            _warn_if_switched_off(local.thread)
        self._activate(engine)
        intercept(engine is not None)

    def suspend(self) -> Suspended:
        """Begin anew: the routine's scope knows nothing of where the program is."""
        suspended = Suspended(local.thread, intercepting())
        local.thread = ThreadState(suspended.thread)
        intercept(False)
        return suspended

    def resume(self, suspended: Suspended, engine: Engine | None) -> None:
        """Go on in the routine; what intercepted before it takes notice of what is active."""
        self._interception.serve(None)  # which leaves the kernels for the next time
        self._patches.hold(False, local.thread.owner)
        self._mapped.serve(None, local.thread.owner)
        ended, local.thread = local.thread, suspended.thread
        run_as_written(ended, False)
        ended.engine = ended.active = None  # the routine may have left a scope open
        if engine is not suspended.thread.active:
            self._activate(engine)
        intercept(suspended.intercepting)

    def _activate(self, engine: Engine | None) -> None:
        if engine is not None:
            check_not_held()
        self._interception.serve(engine)
        thread = local.thread
        if engine is not None and engine.contexts is not thread.session():
            self._begin_session(thread, engine)
        thread.known = True
        thread.engine = thread.active = engine
        self._patches.hold(engine is not None, thread.owner)
        self._mapped.serve(engine, thread.owner)
        run_as_written(thread, engine is not None)

    def _begin_session(self, thread: ThreadState, engine: Engine) -> None:
        """Begin to know operators outside of modules, as long as the outermost scope is open."""
        thread.began = sequence_number()
        outside = thread.outside = self.identity.contexts.outside()
        frame = _entering_frame()
        thread.floor = None if frame is None else frame.f_code

        def end(_: object) -> None:
            if thread.outside is outside:
                thread.outside = thread.floor = None

        thread.session = weakref.ref(engine.contexts, end)

    def value(self, tensor: Any) -> Any:
        """Return what a tensor holds now as a NumPy array; types NumPy lacks as larger ones."""
        return values.value(tensor)

    def from_numpy(self, array: Any, like: Tensor) -> Tensor:
        """Make a tensor of a NumPy array's values, with the type and on the device of another."""
        return torch.asarray(array, device=like.device).to(like.dtype)

    def variable(self, initial: Any, execution: Execution) -> Variable:
        """Make a tensor on the device of the operator's inputs."""
        device = execution.inputs[0].device if execution.inputs else None
        with torch.no_grad():
            value = torch.as_tensor(initial, device=device).clone()
        return value.as_subclass(Variable)

    def incompatible_reason(self, original: Any, substitute: Any) -> str | None:
        """Tell why a substitute is no tensor of the same dtype and device; None if it is one."""
        return incompatible(original, substitute)

    def describe(self, tensor: Any) -> TensorInfo:
        """Tell shape, dtype, size and device of a tensor."""
        return without_overrides(descriptions.describe, tensor)

    def is_parameter_itself(self, found: Any) -> bool:
        """Tell whether something is an ``nn.Parameter``."""
        return is_parameter_itself(found)

    def _parameter_given(self, tensor: torch.Tensor) -> Any:
        """Return the parameter behind a tensor, which few of those that operators take have."""
        return self.parameter_behind(tensor) if may_lead_to_parameter(tensor) else None

    def read_from(self, found: Any) -> Any:
        """Return what a tensor or an autograd node was read, cast or viewed of, as one of both."""
        return without_overrides(read_from, found)

    def parameter_info(self, found: Any, tensor: Any) -> Parameter:
        """Return what tools are told of an ``nn.Parameter``."""
        return Parameter(found, descriptions.describe(found), found.requires_grad)

    def stored(self, tensor: Any) -> StoredParameter:
        """Tell where the ``nn.Parameter`` has the elements of a tensor."""
        return StoredParameter(tensor, self.parameter_behind(tensor))

    def at_rest(self) -> AbstractContextManager[object]:
        """Open a block without gradients."""
        return torch.no_grad()

    @contextlib.contextmanager
    def hold_compiled(self, alike: Alike, tell: Callable[[Held], None]) -> Iterator[None]:
        """Open a block in which what ``torch.compile`` compiles is compared with its operators."""
        with holding(alike, tell):
            if local.thread.engine is not None:
                check_not_held()
            yield

    def purpose(self, operator: Operator) -> str:
        """Tell what an operator is there for, by the code that runs it now."""
        return purpose()

    def computes_parameter(self, operator: Operator) -> bool:
        """Tell whether the code that runs an operator now is a parametrization's."""
        return computes_parameter()

    def in_forward_mode(self) -> bool:
        """Tell whether ``torch.func.jvp``, or a level of dual numbers, is around what runs now."""
        return bool(forward_ad._current_level >= 0)

    def gives_values(self, operator: Operator) -> bool:
        """Tell whether an operator writes to the memory that it gives."""
        return operator.type not in UNINITIALIZED

    def modules(self, operator: Operator) -> Sequence[tuple[str, str]]:
        """List the paths and classes of the modules that are being called."""
        found = []
        entered = local.thread.entered
        while entered is not None:
            module, entered, _, context = entered
            if context is not None:
                found.append((context.scope, type(module).__name__))
        return found[::-1]

    def model(self, operator: Operator) -> torch.nn.Module | None:
        """Return the outermost module that the operator is a part of; None in one without state.

        Such a module, as a loss, is as good as a function: it may be made anew for each call.
        """
        return self.identity.contexts.numbering.model(operator)

    def synchronize(self, device: str) -> None:
        """Wait until an accelerator has done all that it was given."""
        descriptions.synchronize(device)

    def allocated(self, device: str) -> int | None:
        """Count the bytes of an accelerator's memory in use by tensors; None for the host."""
        return descriptions.allocated(device)

    def gather(self, value: Any, timeout: float = 60) -> Sequence[Any] | None:
        """Return what every process of the group gives, or else those that ``torchrun`` started."""
        return processes.gather(value, timeout)

    def profiler(self) -> TorchProfiler:
        """Return ``torch.profiler``, as tools use it."""
        return TorchProfiler()

    def whole(self, gradient: Any) -> Any:
        """Return a gradient with all its rows, if it is a sparse one."""
        return rows.whole(gradient)

    def canonical_type(self, type: str) -> str:
        """Return the base name for what else PyTorch calls an operator (``aten::add.Tensor``)."""
        return canonical_type(type)

    def alike(self, types: Collection[str]) -> Collection[str]:
        """List operator types that are spelled like those of these types that there are not."""
        missing = [type for type in types if not is_forward_type(type)]
        known = self._interception.types() if missing else frozenset()  # which takes milliseconds
        return frozenset[str]().union(*(alike(type, known) for type in missing))

    def is_backward_type(self, type: str) -> bool:
        """Tell whether a type is spelled as autograd's nodes are (``AddmmBackward0``), or what runs
        in these (``threshold_backward``)."""
        return _OF_BACKWARD.fullmatch(type) is not None

    def backward_names(self, type: str) -> Collection[str]:
        """List the autograd node's name, also without the number that PyTorch puts behind it."""
        return (type, type.rstrip("0123456789"))

    def forward_types(self, types: frozenset[str]) -> frozenset[str] | None:
        """Return types of forward operators as they are; those of a backward one may be any."""
        forward = all(is_forward_type(t) and not self.is_backward_type(t) for t in types)
        return types if forward else None


def _warn_if_switched_off(thread: ThreadState) -> None:
    """Warn that a block of PyTorch has ended in which the scope that ends now had begun.

    Such blocks restore the dispatch keys that there were before, and with them what sees operators.
    """
    unseen = thread.entered is not None or in_routine() or graph_task() >= 0
    if thread.engine is not None and not intercepting() and not unseen:
        warnings.warn(
            "tools have seen nothing since the end of torch.inference_mode(), or of compiled code, "
            "in which their scope was entered; leave the scope within that, or enter it outside",
            amanda.AmandaWarning,
            stacklevel=6,
        )


def _leave() -> None:
    """Leave the scopes in a forked process (of a DataLoader): it is in none of the thread's."""
    local.thread.engine = local.thread.active = None
    run_as_written(local.thread, False)
    intercept(False)


def _entering_frame() -> FrameType | None:
    """Return the frame that opens the scope: the first outside of Amanda and contextlib."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != "contextlib" and name.partition(".")[0] not in ("amanda", "amanda_torch"):
            break
        frame = frame.f_back
    return frame


set_captured(
    TorchDriver.activate.__code__, CaptureStrategy(CaptureAction.SKIP, CaptureAction.DEFAULT)
)
driver = TorchDriver()
