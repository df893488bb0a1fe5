"""Amanda itself speaks in plain lines, which no name in them can make misbehave."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import warnings
from typing import TYPE_CHECKING

import amanda
import click

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

_LONGEST = 500  # characters of an error's own text; some hold whole files

# Errors whose text says all; of others the type, and where they were raised, is worth knowing.
_PLAIN = (OSError, ValueError, amanda.AmandaError, click.ClickException)


def say(message: str) -> None:
    """Say something on the standard error, if anybody listens there."""
    emit(f"amanda: {one_line(message)}\n")


@contextlib.contextmanager
def plainly_warned() -> Iterator[None]:
    """Have Amanda's own warnings said in one line, those of others shown as ever."""
    shown = warnings.showwarning

    def say_ours(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, amanda.AmandaWarning):
            say(str(message))
        else:
            shown(message, category, filename, lineno, file, line)

    warnings.showwarning = say_ours
    try:
        yield
    finally:
        if warnings.showwarning is say_ours:  # and not the program's own by now
            warnings.showwarning = shown


def emit(text: str) -> None:
    """Write on the standard error, which the program, or its reader, may have closed."""
    stream = sys.stderr
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode("ascii", "backslashreplace").decode("ascii"))
        stream.flush()
    except OSError:  # its reader is gone; or else Python complains when it ends
        with contextlib.suppress(Exception):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except Exception:  # none at all, or something of the program's own in its place
        return


def on_terminal() -> bool:
    """Tell whether a person looks at the standard error on a terminal."""
    try:
        return sys.stderr.isatty()
    except Exception:  # closed, or something of the program's own in its place
        return False


def printable(text: str) -> str:
    """Spell out what a terminal would obey or hide in ``text``: ``\\x1b`` for an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _spelled(c) for c in text)


def one_line(text: str) -> str:
    """Write ``text`` in one line, and printable."""
    return printable(" ".join(text.split()))


def described(error: BaseException) -> str:
    """Describe an error in one line: what it says, and where it comes from if that is not plain."""
    try:
        text = one_line(_text(error))
    except Exception:
        text = ""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    if text and isinstance(error, _PLAIN) and not isinstance(error, UnicodeError):
        return text
    name = type(error).__name__
    return (f"{name}: {text}" if text else name) + _origin(error)


@contextlib.contextmanager
def refused(what: str) -> Iterator[None]:
    """Have whatever goes wrong in a ``with`` block end the command in one line.

    That is for code of others that runs before the program: a tool, a plugin, a package.

    Raises:
        click.UsageError: it says ``what`` went wrong, and why.
    """
    try:
        yield
    except (click.ClickException, KeyboardInterrupt):
        raise
    except BaseException as error:  # also SystemExit: it is not the program's
        raise click.UsageError(f"{what}: {described(error)}") from error


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: {error.filename!r}"  # without the error number
    return str(error)


def _origin(error: BaseException) -> str:
    if isinstance(error, SyntaxError):  # its text names the file and line
        return ""
    ours = ("<frozen", os.path.dirname(__file__))
    frames = traceback.extract_tb(error.__traceback__)
    others = [frame for frame in frames if not frame.filename.startswith(ours)]
    if not others:
        return ""
    return f" ({one_line(os.path.basename(others[-1].filename))}, line {others[-1].lineno})"


def _spelled(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
