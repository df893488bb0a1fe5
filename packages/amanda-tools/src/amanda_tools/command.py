"""The ``amanda`` command."""

from __future__ import annotations

import contextlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import amanda
import click
from amanda.tool import in_order
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from amanda_tools import doctor as diagnosis
from amanda_tools.launch import Outcome, launch, set_first_path
from amanda_tools.registry import build, named_tools, nearest, options_of
from amanda_tools.report import Column, HasColumns, HasReport, by_module, by_type, columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence


_DEFAULT_TOOLS = ("flops", "profile")


def main() -> NoReturn:
    """Run the command; a mistake in using it is one line, and exit code 2."""
    try:
        outcome = commands.main(prog_name="amanda", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _refuse(error.format_message(), error.exit_code)
    except amanda.AmandaError as error:
        _refuse(str(error), 2)
    except click.Abort:  # Ctrl-C before the script began or after it ended
        _end_by_interrupt()
    if not isinstance(outcome, Outcome):  # of --help and --version
        sys.exit(outcome)
    if isinstance(outcome.ended_by, KeyboardInterrupt):
        _end_by_interrupt()
    sys.exit(outcome.code)


def _end_by_interrupt() -> NoReturn:
    """End as Python does, so that the caller can tell; all has been said already."""
    sys.excepthook = lambda *_: None
    raise KeyboardInterrupt


def _refuse(message: str, code: int) -> NoReturn:
    print(f"amanda: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


@click.group()
@click.version_option(package_name="amanda-tools")
def commands() -> None:
    """See where a neural network's operators, FLOPs and time go, without touching its source."""


@commands.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--tool",
    "lines",
    metavar="NAME[:key=value,...]",
    multiple=True,
    help="A tool to run under, with its options; may be given several times. NAME is one of "
    "`amanda tools`, or package.module:Class for one of your own. Without any: flops and profile.",
)
@click.option("--ops", metavar="TYPE,...", help="Look at operators of these types alone.")
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Levels of modules in the table.",
)
@click.option("-m", "module", is_flag=True, help="TARGET is a module, as for `python -m`.")
@click.argument("target")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    lines: Sequence[str],
    ops: str | None,
    depth: int,
    module: bool,
    target: str,
    args: Sequence[str],
) -> Outcome:
    """Run a script or module under tools, with everything behind it as its arguments.

    \b
    amanda run train.py --epochs 1
    amanda run --tool flops --tool trace:out=trace.jsonl -- train.py --epochs 1
    amanda run --tool my_tools:CountConv:verbose=yes --ops conv2d,linear -m my_package.train

    The script runs as it does without Amanda: its arguments, input, output and exit code are its
    own. Reports go to the standard error.
    """
    set_first_path(target, module=module)
    (_check_module if module else _check_file)(target)
    tools = in_order([build(line) for line in lines or _DEFAULT_TOOLS])
    if ops is not None:
        _restrict(tools, frozenset(ops.replace(" ", "").split(",")))
    outcome = launch(target, args, tools, module=module)
    why = "does `amanda doctor` know why?"
    if ops is not None:
        why = f"none of type {ops}, that is; run without --ops to see the types that there are"
    _report(outcome, tools, depth, f"amanda: no operator ran under the tools; {why}")
    return outcome


@commands.command()
def tools() -> None:
    """List the tools that have a name, and their options."""
    table = Table.grid(padding=(0, 3))
    for name, entry in named_tools().items():
        try:
            cls = entry.load()
        except ImportError as error:
            table.add_row(f"[bold]{name}[/]", escape(f"cannot be loaded: {error}"))
            continue
        table.add_row(f"[bold]{name}[/]", escape((cls.__doc__ or "").partition("\n")[0]))
        for option in options_of(cls):
            needed = "required" if option.required else f"default {option.default!r}"
            needed = "optional" if option.default is None else needed
            about = escape(f"{option.help} ({needed})")
            table.add_row("", f"[bold]{option.name}=[/]  {about}")
    console = Console()
    console.print(table)
    console.print("\nA tool of your own: amanda run --tool my_module:MyTool script.py")


@commands.command()
def doctor() -> Outcome:
    """Show versions and drivers, and what is missing."""
    report, healthy = diagnosis.examine()
    Console().print(report)
    return Outcome(0 if healthy else 1)


def _restrict(tools: Sequence[amanda.Tool], types: frozenset[str]) -> None:
    """Have tools look at operators of these types alone."""
    for tool in tools:
        for subscription in tool.subscriptions:
            wanted = subscription.ops
            subscription.ops = types if wanted is None else wanted & types
        tool.subscriptions[:] = (s for s in tool.subscriptions if s.ops)


def _check_file(target: str) -> None:
    path = Path(target)
    if path.exists():
        return
    if not path.parent.is_dir():
        raise click.UsageError(f"no file {target!r}: there is no folder {str(path.parent)!r}")
    names = [str(path.with_name(other.name)) for other in path.parent.iterdir()]
    raise click.UsageError(f"no file {target!r}{nearest(target, names)}")


def _check_module(target: str) -> None:
    parent = target.rpartition(".")[0]
    try:
        found = importlib.util.find_spec(target)
    except ModuleNotFoundError:  # a package on the way to it
        _check_module(parent)
        raise
    if found is None:
        package = importlib.util.find_spec(parent) if parent else None
        beside = pkgutil.iter_modules(
            None if package is None else package.submodule_search_locations
        )
        names = [f"{parent}.{module.name}".lstrip(".") for module in beside]
        raise click.UsageError(f"no module {target!r}{nearest(target, names)}")
    if found.submodule_search_locations and not importlib.util.find_spec(f"{target}.__main__"):
        raise click.UsageError(f"package {target!r} cannot be run, it has no module __main__")


def _report(outcome: Outcome, tools: Sequence[amanda.Tool], depth: int, nothing: str) -> None:
    """Show on the standard error what the tools found, or say ``nothing``."""
    with contextlib.suppress(OSError, ValueError):  # closed by the script, or by its reader
        sys.stdout.flush()
    console = Console(stderr=True)
    if outcome.ended_by is not None:
        how = type(outcome.ended_by).__name__
        console.print(f"amanda: ended by {how}; this is what was recorded until then")
    columns: list[Column] = []
    # After a long run there is much to add up. The bar goes when it is done.
    for tool in track(
        tools, "adding up", console=console, transient=True, disable=not console.is_terminal
    ):
        columns += columns_of([tool])
    if any(column.values for column in columns):
        console.print(by_module(columns, depth), by_type(columns))
    elif any(isinstance(tool, HasColumns) for tool in tools):
        console.print(nothing)
    for tool in tools:
        report = tool.report() if isinstance(tool, HasReport) else None
        if isinstance(report, str):
            console.print(report, markup=False, highlight=False, soft_wrap=True)
        elif report is not None:
            console.print(report)
