"""TorchScript: while tools are in force its operators run one by one, as they are written.

From the second call on its executor would differentiate and fuse what it runs by itself, below
the dispatcher: autograd would not see what tools substitute, nor would tools see the gradients.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from amanda_torch._internals import script_optimizes, set_script_optimizes

if TYPE_CHECKING:
    from amanda_torch.thread import ThreadState


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


def forget_optimized(thread: ThreadState, function: Any) -> None:
    """Have a function or method of TorchScript be compiled anew if it may have been optimized.

    What was optimized before would be run as it is; afterwards the program optimizes it again.
    """
    if function not in thread.scripts:
        thread.scripts.add(function)
        function._debug_flush_compilation_cache()
