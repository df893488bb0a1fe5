"""The ``amanda`` command."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import amanda
import click
from amanda.driving import known_drivers
from amanda.tool import in_order
from rich.console import Console
from rich.table import Table
from rich.text import Text

from amanda_tools import doctor as diagnosis
from amanda_tools.comparing import compare_records
from amanda_tools.flops import Flops
from amanda_tools.formats import save
from amanda_tools.interrupts import Terminated, end_by
from amanda_tools.launch import Outcome, launch, show
from amanda_tools.merge_files import merge_files
from amanda_tools.merging import gathered
from amanda_tools.notice import described, plainly_warned, printable, refused, say
from amanda_tools.operators import Operators
from amanda_tools.output import HasFile, all_or_none
from amanda_tools.profile import Profile
from amanda_tools.registry import (
    Option,
    Request,
    ambiguity,
    check_outputs,
    loaded,
    named_tools,
    options_of,
    request,
)
from amanda_tools.results import WIDE, Results, without_trailing_blanks
from amanda_tools.target import CompileError, find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from amanda_tools.target import Program


_WRONG = 2  # exit code of what is wrong with a tool, or with the use of the command
_DEFAULT_TOOLS = (Request("flops", Flops, {}), Request("profile", Profile, {}))


def main() -> NoReturn:
    """Run the command; a mistake in using it is one line, and exit code 2."""
    try:
        with plainly_warned():
            outcome = commands.main(prog_name="amanda", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except CompileError as error:
        show(error.error)
        how = type(error.error).__name__
        _refuse(f"ended by {how} before anything ran; no file was touched", error.exit_code)
    except click.ClickException as error:
        _refuse(error.format_message(), error.exit_code)
    except amanda.AmandaError as error:
        _refuse(str(error), 2)
    except click.Abort:  # Ctrl-C before the program began or after it ended
        _end_by_interrupt()
    except Terminated as error:
        end_by(error.signal)
    if not isinstance(outcome, Outcome):  # of --help and --version
        sys.exit(outcome)
    if isinstance(outcome.ended_by, KeyboardInterrupt):
        _end_by_interrupt()
    if isinstance(outcome.ended_by, Terminated):
        end_by(outcome.ended_by.signal)
    sys.exit(outcome.code or (_WRONG if outcome.tools_failed else 0))


def _end_by_interrupt() -> NoReturn:
    """End as Python does, so that the caller can tell; all has been said already."""
    sys.excepthook = lambda *_: None
    raise KeyboardInterrupt


def _refuse(message: str, code: int) -> NoReturn:
    say(message)
    sys.exit(code)


@click.group()
@click.version_option(package_name="amanda-tools")
def commands() -> None:
    """See where a neural network's operators, FLOPs and time go, without touching its source."""


_width = click.option(
    "--width",
    type=click.IntRange(min=20),
    help="Characters of a line in tables; that of the terminal by default, in files and pipes as "
    "many as need be.",
)
_only = click.option(
    "--ops", metavar="TYPE,...", multiple=True, help="Look at operators of these types alone."
)
_module = click.option("-m", "module", is_flag=True, help="TARGET is a module, as for `python -m`.")
_target = click.argument("target")
_args = click.argument("args", nargs=-1, type=click.UNPROCESSED)


@commands.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--tool",
    "lines",
    metavar="NAME[:key=value,...]",
    multiple=True,
    help="A tool to run under, with its options; may be given several times. NAME is one of "
    "`amanda tools`, or package.module:Class for one of your own. Without any: flops and profile.",
)
@_only
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Levels of modules in the table.",
)
@_width
@_module
@_target
@_args
def run(
    lines: Sequence[str],
    ops: Sequence[str],
    depth: int,
    width: int | None,
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
    types = _types(ops)
    program = find(target, module=module)
    requests = [request(line) for line in lines] or _DEFAULT_TOOLS
    outcome, tools = _run_under(requests, types, program, args)
    if outcome.forked:
        return outcome  # the process that it comes from reports
    # what they depend on only serves them
    asked = [tool for tool in tools if type(tool) in {wanted.cls for wanted in requests}]
    everywhere = [] if outcome.ended_by is not None else gathered(asked)
    if everywhere is None:
        return outcome  # the first process reports for all
    results = Results()
    nothing = f"no operator ran under the tools; {_why_nothing(types)}"
    results.show([*asked, *everywhere], depth, nothing, width)
    return outcome._replace(tools_failed=outcome.tools_failed or results.tools_failed)


@commands.command("ops", context_settings={"allow_interspersed_args": False})
@_only
@click.option("--out", metavar="FILE", help="Write the list too, as JSON or CSV by the ending.")
@_width
@_module
@_target
@_args
def list_operators(
    ops: Sequence[str],
    out: str | None,
    width: int | None,
    module: bool,
    target: str,
    args: Sequence[str],
) -> Outcome:
    """Run a script or module, and list its operators: ids, types, scopes and shapes.

    \b
    amanda ops train.py --epochs 1
    amanda ops --ops conv2d --out operators.csv train.py

    The list goes to the standard output, behind what the script writes there. What loads data and
    initializes parameters stands apart from the model.
    """
    types = _types(ops)
    program = find(target, module=module)
    wanted = Request("ops", Operators, {} if out is None else {"out": out})
    outcome, (tool, *_) = _run_under([wanted], types, program, args)
    if outcome.forked:
        return outcome
    assert isinstance(tool, Operators)
    if not tool.rows():
        say(f"no operator ran; {_why_nothing(types)}")
    elif sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):  # closed by the program, or by its reader
            _print(tool.report(), width)
    return outcome


def _run_under(
    requests: Sequence[Request],
    types: frozenset[str] | None,
    program: Program,
    args: Sequence[str],
) -> tuple[Outcome, Sequence[amanda.Tool]]:
    """Run a program under the tools that are asked for; they look at ``types`` alone, None for all.

    Raises:
        click.UsageError: they cannot be made active, or their files be written.
    """
    with refused("a file to write"):
        check_outputs(requests, program.sources)
    with refused("the tools cannot be made active"):
        tools = in_order([wanted.build() for wanted in requests])
    if types is not None:
        for tool in tools:
            tool.restrict(types)
    with refused("a file to write"), all_or_none():
        for tool in tools:
            if isinstance(tool, HasFile):
                with refused(type(tool).__name__):  # its name may be anything
                    tool.open()
    outcome = launch(program, args, tools)
    if outcome.ended_by is not None and not outcome.forked:
        say(f"ended by {_how(outcome.ended_by)}; this is what was recorded until then")
    return outcome, tools


def _why_nothing(types: frozenset[str] | None) -> str:
    """What may have kept the tools from seeing any operator."""
    for driver in known_drivers():
        try:
            reason = driver.unseen()
        except Exception as error:  # it may be anybody's
            say(f"{driver.backend}'s driver cannot tell what tools did not see: {described(error)}")
            continue
        if reason is not None:
            return reason
    if types is None:
        return "does `amanda doctor` know why?"
    return (
        f"none of type {', '.join(sorted(types))}, that is; "
        "run without --ops to see the types that there are"
    )


@commands.command()
@click.option("--out", metavar="FILE", help="Write it too: JSON or CSV, or a trace, by the ending.")
@_width
@click.argument("files", nargs=-1, required=True)
def merge(files: Sequence[str], out: str | None, width: int | None) -> None:
    """Merge what the processes of one program wrote: sums, means, and the spread over ranks.

    \b
    amanda merge --out flops.json flops.rank*.json
    amanda merge --out trace.jsonl trace.rank*.jsonl
    """
    with refused("the files cannot be merged"):
        merged = merge_files(files, out)
    _print(merged if isinstance(merged, str) else merged.report(), width)


@commands.command()
@click.option("--rtol", type=float, help="The relative difference that is allowed.")
@click.option("--out", metavar="FILE", help="Write it too, as JSON or CSV by the ending.")
@_width
@click.argument("first")
@click.argument("second")
def compare(
    first: str, second: str, rtol: float | None, out: str | None, width: int | None
) -> Outcome:
    """Compare two runs that were recorded: the first operator that differs, and errors by layer.

    \b
    amanda run --tool record:out=one.npz train.py
    amanda run --tool record:out=two.npz train.py --half
    amanda compare one.npz two.npz

    By default tensors of one type on one backend have to be equal to the bit. The exit code is 1
    where a tensor differs.
    """
    with refused("the records cannot be compared"):
        comparison = compare_records(first, second, rtol=rtol)
        if out is not None:
            save(comparison, out)
    for part in comparison.report():
        _print(part, width)
    return Outcome(1 if comparison.first() is not None else 0)


@commands.command()
def tools() -> None:
    """List the tools that have a name, and their options."""
    table = Table.grid(padding=(0, 3))
    for name, entries in named_tools().items():
        if len(entries) > 1:
            table.add_row(_bold(name), Text(printable(ambiguity(name, entries)), style="yellow"))
        for entry in entries:
            try:
                cls = loaded(entry)
                options = options_of(cls)
            except Exception as error:
                table.add_row(_bold(name), Text(described(error), style="yellow"))
                continue
            table.add_row(_bold(name), printable((cls.__doc__ or "").partition("\n")[0]))
            for option in options:
                table.add_row("", Text.assemble(_bold(f"{option.name}="), f"  {_about(option)}"))
    _print(table)
    _print("\nA tool of your own: amanda run --tool my_module:MyTool script.py")


@commands.command()
def doctor() -> Outcome:
    """Show versions and drivers, and what is missing."""
    report, healthy = diagnosis.examine()
    _print(report)
    return Outcome(0 if healthy else 1)


def _print(what: RenderableType, width: int | None = None) -> None:
    """Print on the standard output, in lines as long as need be unless it is a terminal."""
    console = Console(width=width)
    if console.is_terminal:
        console.print(what, soft_wrap=isinstance(what, str))
        return
    console = Console(width=width or WIDE)
    with console.capture() as captured:
        console.print(what, soft_wrap=isinstance(what, str))
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    shown = without_trailing_blanks(captured.get()).encode(encoding, "backslashreplace")
    click.echo(shown.decode(encoding), nl=False)


def _types(ops: Sequence[str]) -> frozenset[str] | None:
    """The operator types that ``--ops`` names; None without the option."""
    if not ops:
        return None
    types = frozenset("".join(",".join(ops).split()).split(",")) - {""}
    if not types:
        raise click.UsageError("--ops names no operator type; --ops conv2d,linear")
    return types


def _how(ended_by: BaseException) -> str:
    if isinstance(ended_by, Terminated):
        return signal.Signals(ended_by.signal).name
    return type(ended_by).__name__


def _bold(name: str) -> Text:
    return Text(printable(name), style="bold")


def _about(option: Option) -> str:
    needed = "required" if option.required else f"default {option.default!r}"
    needed = "optional" if option.default is None else needed
    return printable(f"{option.help} ({needed})")
