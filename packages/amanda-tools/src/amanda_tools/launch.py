"""Running a script or a module under tools, as Python itself would run it without."""

from __future__ import annotations

import dis
import io
import os
import pkgutil
import runpy
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import amanda
from amanda.registry import announced

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

# Packages whose frames a traceback of the script leaves out, as those of drivers.
_OURS = {"amanda", "amanda_tools", "runpy"} | {
    driver.module.partition(".")[0] for driver in announced()
}


class Outcome(NamedTuple):
    """How a script ended.

    Attributes:
        code: its exit code.
        ended_by: the exception that ended it early, which has been shown.
    """

    code: int = 0
    ended_by: BaseException | None = None


def launch(
    target: str, args: Sequence[str], tools: Sequence[amanda.Tool], *, module: bool
) -> Outcome:
    """Run a script, or the module of that name, as ``__main__`` under ``tools``.

    An exception that ends it is shown as Python would show it, without the frames of Amanda.
    """
    sys.argv[:] = [target, *args]
    try:
        with amanda.apply(*tools):
            if module:
                runpy.run_module(target, run_name="__main__", alter_sys=True)
            elif _is_archive(target):
                runpy.run_path(target, run_name="__main__")
            else:
                _run_file(os.path.abspath(target))
    except SystemExit as exit:
        if exit.code is None or isinstance(exit.code, int):
            return Outcome(exit.code or 0)
        print(exit.code, file=sys.stderr)
        return Outcome(1)
    except BaseException as error:
        traceback = _of_script(error)
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        return Outcome(1, error)
    return Outcome()


def set_first_path(target: str, *, module: bool) -> None:
    """Make ``sys.path`` begin as it does when Python runs the target.

    That is the folder of a script, the current folder for a module; a folder or an archive that
    is run is put there by runpy.
    """
    if sys.flags.safe_path:
        return
    if module:
        sys.path[0] = os.getcwd()
    elif _is_archive(target):
        del sys.path[0]
    else:
        sys.path[0] = os.path.dirname(os.path.realpath(target))


def _is_archive(target: str) -> bool:
    """Whether it is a folder or a zip file, with a module ``__main__`` in it."""
    return pkgutil.get_importer(target) is not None


def _run_file(path: str) -> None:
    """Run a script; runpy would change ``sys.argv[0]`` or give it a relative ``__file__``."""
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = path
    main.__loader__ = SourceFileLoader("__main__", path)
    exec(code, vars(main))


def _of_script(error: BaseException) -> TracebackType | None:
    """The traceback of an error from the script's own frame on, without frames of ours.

    Those of an error of a tool stay, and those of an error that is our own fault.
    """
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    while frames and _is_ours(frames[0]):
        del frames[0]
    if frames and not isinstance(error, amanda.AmandaError):
        fault = _is_ours(frames[-1]) and not _calls(frames[-1])
        frames = [frame for frame in frames if fault or not _is_ours(frame)]
    if not frames:  # of a script that cannot even be compiled
        return None
    for frame, following in zip(frames, [*frames[1:], None], strict=True):
        frame.tb_next = following
    return frames[0]


def _is_ours(traceback: TracebackType) -> bool:
    name = traceback.tb_frame.f_globals.get("__name__", "")
    return name.partition(".")[0] in _OURS


def _calls(traceback: TracebackType) -> bool:
    """Whether the last frame was calling what is not Python, as the operator itself is."""
    code = dis.get_instructions(traceback.tb_frame.f_code)
    name = next(step.opname for step in code if step.offset == traceback.tb_lasti)
    return name.startswith("CALL")
