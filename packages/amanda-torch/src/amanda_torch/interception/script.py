"""TorchScript runs its operators one by one, as they are written, while tools are active.

From the second call on its executor would differentiate and fuse what it runs by itself, below
the dispatcher: autograd would not see what tools substitute, nor would tools see the gradients.
"""

from __future__ import annotations

import warnings
import weakref
from typing import TYPE_CHECKING, Any

import torch
from amanda import AmandaError, AmandaWarning

from amanda_torch._internals import ModuleDict, script_optimizes, set_script_optimizes
from amanda_torch.frames import runs_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from amanda_torch.thread import ThreadState

# What the interpreter of TorchScript runs where no tool sees it.
_UNSEEN = {
    "prim::fork": (
        "torch.jit.fork runs its function in a thread of its own, which a scope does not cover; "
        "call the function itself instead"
    ),
    "prim::mkldnn_convolution": (
        "torch.jit.optimize_for_inference has convolutions run below the dispatcher; instrument "
        "the module that it was made of"
    ),
}


def run_as_written(thread: ThreadState, as_written: bool) -> None:
    """Have this thread run TorchScript as it is written, or as it did before."""
    before = thread.script_optimizes
    if as_written and before is None:
        thread.script_optimizes = script_optimizes()
        thread.scripts = weakref.WeakSet()
        set_script_optimizes(False)
    elif not as_written and before is not None:
        thread.script_optimizes = None
        set_script_optimizes(before)


def prepare(thread: ThreadState, function: Any, args: tuple[Any, ...]) -> None:
    """Have a function or method of TorchScript run as written; warn of what no tool sees.

    What was optimized before would be run as it is; afterwards the program optimizes it again.

    Args:
        thread: the current thread's state.
        function: what is about to be called from Python.
        args: what it is given.
    """
    modules = [arg._c for arg in args if isinstance(arg, torch.jit.ScriptModule)]
    if function in thread.scripts and not modules:
        return
    if _is_compiled_ahead(function):
        return
    thread.scripts.add(function)
    function._debug_flush_compilation_cache()
    graph = function.inlined_graph
    kinds = _unseen_in(graph)
    # Calls through an interface are not inlined: what they lead to has plans of its own.
    if graph.findNode("prim::CallMethod") is not None:
        modules += [function.owner] if hasattr(function, "owner") else []
        for method in _methods(modules):
            method._debug_flush_compilation_cache()
            kinds |= _unseen_in(method.inlined_graph)
    if kinds:
        reasons = "; ".join(sorted(_UNSEEN[kind] for kind in kinds))
        warnings.warn(
            f"{function.name} is TorchScript of which no tool sees a part: {reasons}",
            AmandaWarning,
            stacklevel=3,
        )


@runs_compiled
def run_compiled(thread: ThreadState, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call what TorchScript compiled; an error of a tool comes out of it as it is."""
    outer, thread.raised = thread.raised, []
    try:
        return run(*args, **kwargs)
    except RuntimeError as error:
        if not thread.raised or isinstance(error, AmandaError):
            raise
        raised = thread.raised[-1]
        raise raised from raised.__cause__
    finally:
        thread.raised = outer


def _is_compiled_ahead(function: Any) -> bool:
    """Tell whether a method is one of a class that is written in C++, of which there is no script.

    The weights that a quantized module has packed are such an object.
    """
    owner = getattr(function, "raw_owner", None)
    return isinstance(owner, torch.ScriptObject) and owner._type().qualified_name().startswith(
        "__torch__.torch.classes."
    )


def _unseen_in(graph: Any) -> set[str]:
    return {kind for kind in _UNSEEN if graph.findNode(kind) is not None}


def _methods(modules: list[Any]) -> Iterator[Any]:
    """List the methods of modules of TorchScript and of all modules within them."""
    for module in modules:
        yield from map(module._get_method, module._method_names())
        yield from _methods([inner for _, inner in ModuleDict(module).items()])
