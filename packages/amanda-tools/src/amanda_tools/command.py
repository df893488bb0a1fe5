"""This module is the ``amanda`` command."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, NoReturn

import amanda
import click

from amanda_tools import doctor as diagnosis
from amanda_tools.catalogue import catalogue
from amanda_tools.comparing import compare_records
from amanda_tools.completion import files, tool_names
from amanda_tools.flops import Flops
from amanda_tools.formats import save
from amanda_tools.html_report import PageFile, contents_of_files, write_page
from amanda_tools.interrupts import Terminated, end_by
from amanda_tools.launch import Outcome, show
from amanda_tools.merge_files import merge_files
from amanda_tools.new_tool import FRAMEWORKS, write_new_tool
from amanda_tools.notice import plainly_warned, refused, say
from amanda_tools.operators import Operators
from amanda_tools.output import same_file
from amanda_tools.profile import Profile
from amanda_tools.registry import Request
from amanda_tools.settings import DEFAULT_DEPTH, LEAST_WIDTH, settings_of
from amanda_tools.standard_output import print_out
from amanda_tools.target import CompileError, find
from amanda_tools.under_tools import run_under, show_results, why_nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda_tools.merging import Merged

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


@click.group(
    epilog="The exit code is 0 if all went well, 2 for a mistake in using the command, and for "
    "`run` and `ops` that of the script."
)
@click.version_option(package_name="amanda-tools", help="Show the version, and exit.")
def commands() -> None:
    """See where a neural network's operators, FLOPs and time go, without touching its source.

    \b
    amanda run train.py          shows FLOPs, time and memory of each module.
    amanda doctor                says whether all that is needed is installed.
    amanda COMMAND --help        explains a command.
    """


_width = click.option(
    "--width",
    metavar="N",
    type=click.IntRange(min=LEAST_WIDTH),
    help="Make lines of tables N characters long. By default they fit the terminal, and in files "
    "and pipes are as long as need be.",
)
_only = click.option(
    "--ops", metavar="TYPE,...", multiple=True, help="Look at operators of these types alone."
)
_out = click.option(
    "--out",
    metavar="FILE",
    shell_complete=files,
    help="Write the result too, as JSON or CSV by the ending of the file.",
)
_module = click.option(
    "-m", "module", is_flag=True, help="Take TARGET as a module, as `python -m` does."
)
_target = click.argument("target", shell_complete=files)
_args = click.argument("args", nargs=-1, type=click.UNPROCESSED)


@commands.command(
    context_settings={"allow_interspersed_args": False},
    short_help="Run a script or module under tools.",
)
@click.option(
    "--tool",
    "lines",
    metavar="NAME[:key=value,...]",
    multiple=True,
    shell_complete=tool_names,
    help="Run under this tool, with its options; may be given several times. NAME is one of "
    "`amanda tools`, or package.module:Class for one of your own. By default these are flops and "
    "profile.",
)
@_only
@click.option(
    "--depth",
    metavar="N",
    type=click.IntRange(min=0),
    help=f"Show N levels of modules in the table; {DEFAULT_DEPTH} by default.",
)
@_width
@click.option(
    "--report",
    metavar="FILE.html",
    shell_complete=files,
    help="Write an HTML report on the run, which opens in a browser.",
)
@click.option(
    "--verbose", is_flag=True, help="Say first which settings apply, and where each comes from."
)
@_module
@_target
@_args
def run(
    lines: Sequence[str],
    ops: Sequence[str],
    depth: int | None,
    width: int | None,
    report: str | None,
    verbose: bool,
    module: bool,
    target: str,
    args: Sequence[str],
) -> Outcome:
    """Run a script or module under tools. What follows TARGET are its own arguments.

    \b
    amanda run train.py --epochs 1
    amanda run --tool flops --tool trace:out=trace.jsonl -- train.py --epochs 1
    amanda run --tool my_tools:CountConv:verbose=yes --ops conv2d,linear -m my_package.train
    amanda run --report report.html train.py

    The script runs as it does without Amanda: its arguments, input, output and exit code are its
    own. Reports go to the standard error.

    What the command line leaves out is taken from [tool.amanda] in pyproject.toml, or from
    amanda.toml: tools, ops, depth, width and report.

    The exit code is that of the script; it is 2 if nothing could be run, or if the script ended
    with 0 and a tool failed. That no operator ran under the tools is said, and does not change it.
    """
    flags = {"tools": lines, "ops": ops, "depth": depth, "width": width, "report": report}
    settings = settings_of(flags)
    if verbose:
        for line in settings.described(_DEFAULT_TOOLS):
            say(line)
    types = _types(settings.ops)
    program = find(target, module=module)
    requests = settings.requests(_DEFAULT_TOOLS)
    with refused("a file to write"):
        command = (*(["-m"] if module else []), program.name, *args)
        page = None if settings.report is None else PageFile(settings.report, command)
    outcome, tools = run_under(requests, types, program, args, page)
    return show_results(outcome, tools, requests, types, settings, page)


@commands.command(
    "ops",
    context_settings={"allow_interspersed_args": False},
    short_help="Run a script or module, and list its operators.",
)
@_only
@_out
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
    outcome, (tool, *_) = run_under([wanted], types, program, args)
    if outcome.forked:
        return outcome
    assert isinstance(tool, Operators)
    if not tool.rows():
        say(f"no operator ran; {why_nothing(types)}")
    elif sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):  # closed by the program, or by its reader
            print_out(tool.report(), width)
    return outcome


@commands.command(short_help="Merge what the processes of one program wrote.")
@click.option(
    "--out",
    metavar="FILE",
    shell_complete=files,
    help="Write the result too, as JSON, CSV or a trace by the ending of the file.",
)
@_width
@click.argument("parts", metavar="FILES...", nargs=-1, required=True, shell_complete=files)
def merge(parts: Sequence[str], out: str | None, width: int | None) -> None:
    """Merge what the processes of one program wrote: sums, means, and the spread over ranks.

    \b
    amanda merge --out flops.json flops.rank*.json
    amanda merge --out trace.jsonl trace.rank*.jsonl
    """

    def show_merged(merged: Merged | str) -> None:
        print_out(merged if isinstance(merged, str) else merged.report(), width)

    with refused("the files cannot be merged"):
        try:
            merged = merge_files(parts, out)
        except KeyboardInterrupt as stop:
            if hasattr(stop, "found"):
                say("ended by KeyboardInterrupt; this is what was merged until then")
                show_merged(stop.found)
            raise
    show_merged(merged)


@commands.command(short_help="Compare two runs that were recorded.")
@click.option(
    "--rtol",
    metavar="R",
    type=float,
    help="Allow a relative difference of R. By default there is none between tensors of one type "
    "on one backend.",
)
@_out
@_width
@click.argument("first", shell_complete=files)
@click.argument("second", shell_complete=files)
def compare(
    first: str, second: str, rtol: float | None, out: str | None, width: int | None
) -> Outcome:
    """Compare two runs that were recorded: the first operator that differs, and errors by layer.

    \b
    amanda run --tool record:out=one.npz train.py
    amanda run --tool record:out=two.npz train.py --half
    amanda compare one.npz two.npz

    Compiled code (torch.compile, jit_compile=True) is recorded operator by operator; what it
    computes otherwise is found by amanda run --tool compiled.

    By default tensors of one type on one backend have to be equal to the bit. The exit code is 1
    where a tensor differs, or where there is none to compare.
    """
    with refused("the records cannot be compared"):
        comparison = compare_records(first, second, rtol=rtol)
        if out is not None:
            save(comparison, out)
    for part in comparison.report():
        print_out(part, width)
    alike = comparison.first() is None and comparison.totals()["compared"]
    return Outcome(0 if alike else 1)


@commands.command("report", short_help="Make an HTML report of what tools wrote.")
@click.option(
    "--out",
    metavar="FILE.html",
    default="report.html",
    show_default=True,
    shell_complete=files,
    help="The file to write.",
)
@click.argument("parts", metavar="FILES...", nargs=-1, required=True, shell_complete=files)
def report_files(parts: Sequence[str], out: str) -> None:
    """Make an HTML report of what tools wrote: one file, which opens in a browser, offline too.

    \b
    amanda run --tool flops:out=flops.json --tool trace:out=trace.jsonl train.py
    amanda report flops.json trace.jsonl --out report.html

    FILES are traces (.jsonl, .json, .csv), the JSON of profile, and what other tools wrote to a
    file that ends in .json. Those of one run belong together: an operator is known by its id.
    """
    with refused("the report cannot be made"):
        for part in parts:
            if same_file(part, out):
                raise ValueError(f"{out!r} is one of the files to read")
        try:
            contents = contents_of_files(parts)
        except KeyboardInterrupt as stop:
            if hasattr(stop, "found"):
                write_page(out, stop.found)
                say(f"ended by KeyboardInterrupt; what was read until then is in {out}")
            raise
        write_page(out, contents)
    print_out(f"the report is in {out}")


@commands.command()
def tools() -> None:
    """List the tools that have a name, and their options."""
    print_out(catalogue())
    print_out("\nRun under one of them:     amanda run --tool flops train.py")
    print_out("Run under one of your own: amanda run --tool my_module:MyTool train.py")
    print_out("Write one of your own:     amanda new-tool NAME")


@commands.command("new-tool")
@click.option(
    "--framework",
    type=click.Choice(FRAMEWORKS),
    help="Test it on this framework; by default on the first of them that is installed.",
)
@click.argument("name")
def new_tool(name: str, framework: str | None) -> None:
    """Write a tool of your own, its test and its entry point.

    \b
    amanda new-tool count-conv
    cd count-conv
    python -m pytest

    They are written into a new folder, and pass as they are: the tool counts how often each
    operator runs, which is yours to change.
    """
    print_out(write_new_tool(name, framework))


@commands.command()
def doctor() -> Outcome:
    """Show versions and drivers, what is missing, and what to do next.

    The exit code is 1 if no framework is there to be looked at, or if something fails.
    """
    report, healthy = diagnosis.examine()
    print_out(report)
    return Outcome(0 if healthy else 1)


def _types(ops: Sequence[str]) -> frozenset[str] | None:
    """Return the operator types that ``--ops`` names; None without the option."""
    if not ops:
        return None
    types = frozenset("".join(",".join(ops).split()).split(",")) - {""}
    if not types:
        raise click.UsageError("--ops names no operator type; --ops conv2d,linear")
    return types
