"""The program to run is found, and compiled, before anything else is touched."""

from __future__ import annotations

import importlib.util
import io
import os
import pkgutil
import runpy
import sys
from functools import partial
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import click

from amanda_tools.notice import described, refused
from amanda_tools.registry import nearest

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import CodeType

_LONGEST = 200  # characters of a name that a message shows


class Program(NamedTuple):
    """This is a program that can be run.

    Attributes:
        name: as it was given.
        sources: files that it is made of, as far as they are known before it runs.
        execute: runs it as ``__main__``.
    """

    name: str
    sources: tuple[str, ...]
    execute: Callable[[], object]


class CompileError(click.ClickException):
    """This is raised where the program does not compile.

    Attributes:
        error: why, as the compiler has it.
    """

    exit_code = 1  # as Python's own

    def __init__(self, error: Exception) -> None:
        super().__init__(described(error))
        self.error = error.with_traceback(None)


def find(target: str, *, module: bool) -> Program:
    """Find the script of that name, or the module.

    Raises:
        click.UsageError: there is none, or it cannot be run.
        CompileError: it does not compile.
    """
    if not target:
        raise click.UsageError(f"no {'module' if module else 'file'} ''; name the program to run")
    with refused(f"{_quoted(target)} cannot be run"):
        return _module(target) if module else _file(target)


# Scripts, folders and archives


def _file(target: str) -> Program:
    if not os.path.exists(target):
        raise click.UsageError(_no_file(target))
    importer = pkgutil.get_importer(target)
    if importer is None:
        _set_first_path(os.path.dirname(os.path.realpath(target)))
        path = os.path.abspath(target)
        with io.open_code(path) as file:
            source = file.read()
        return Program(target, (path,), partial(_execute, _compiled(source, path), path))
    _set_first_path(None)  # which runpy does
    found = importer.find_spec("__main__")
    if found is None or found.origin is None:
        raise click.UsageError(f"{_quoted(target)} cannot be run, it has no __main__.py")
    _check_code(found)
    execute = partial(runpy.run_path, target, run_name="__main__")
    return Program(target, (target, found.origin), execute)


def _no_file(target: str) -> str:
    folder = os.path.dirname(target)
    if folder and not os.path.isdir(folder):
        return f"no file {_quoted(target)}: there is no folder {_quoted(folder)}"
    beside = [os.path.join(folder, other) for other in os.listdir(folder or ".")]
    return f"no file {_quoted(target)}{nearest(target, beside)}"


def _compiled(source: bytes, path: str) -> CodeType:
    try:
        code = pkgutil.read_code(io.BytesIO(source))  # of a .pyc file
        return code or compile(source, path, "exec", dont_inherit=True)
    except Exception as error:
        raise CompileError(error) from error


def _execute(code: CodeType, path: str) -> None:
    """Run a script; runpy would change ``sys.argv[0]`` or give it a relative ``__file__``."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = path
    main.__loader__ = SourceFileLoader("__main__", path)
    exec(code, vars(main))


# Modules


def _module(target: str) -> Program:
    _set_first_path(os.getcwd())
    found = _spec(target)
    if found.submodule_search_locations is not None:
        main = importlib.util.find_spec(f"{target}.__main__")
        if main is None:
            raise click.UsageError(
                f"package {_quoted(target)} cannot be run, it has no __main__.py"
            )
        found = main
    _check_code(found)
    execute = partial(runpy.run_module, target, run_name="__main__", alter_sys=True)
    return Program(target, () if found.origin is None else (found.origin,), execute)


def _spec(name: str) -> ModuleSpec:
    """Find where a module is, which imports the packages around it."""
    parent, _, last = name.rpartition(".")
    if not last or name.startswith(".") or name == "__main__":
        raise click.UsageError(f"no module {_quoted(name)}")
    package = _spec(parent) if parent else None
    if package is not None and package.submodule_search_locations is None:  # else it would be run
        hint = "; a file is run without -m" if os.path.exists(name) else ""
        raise click.UsageError(f"no module {_quoted(name)}: {parent!r} is no package{hint}")
    found = importlib.util.find_spec(name)
    if found is None:
        folders = None if package is None else package.submodule_search_locations
        beside = pkgutil.iter_modules(folders)
        names = [f"{parent}.{module.name}".lstrip(".") for module in beside]
        raise click.UsageError(f"no module {_quoted(name)}{nearest(name, names)}")
    return found


def _check_code(found: ModuleSpec) -> None:
    get_code = getattr(found.loader, "get_code", None)
    try:
        code = get_code and get_code(found.name)
    except (OSError, ImportError):
        raise
    except Exception as error:
        raise CompileError(error) from error
    if code is None:
        raise click.UsageError(f"module {_quoted(found.name)} cannot be run, it is not Python code")


def _set_first_path(folder: str | None) -> None:
    """Make ``sys.path`` begin with a folder, or not with the one that it begins with now.

    So it begins as it does when Python runs the target.
    """
    if sys.version_info >= (3, 11):
        keeps_none = sys.flags.safe_path
    else:
        keeps_none = bool(sys.flags.isolated)
    if not keeps_none:
        sys.path[:1] = [] if folder is None else [folder]


def _quoted(name: str) -> str:
    return repr(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}...")
