"""Commands that run a program run it under tools, and report what these found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda.driving import known_drivers
from amanda.tool import in_order

from amanda_tools.launch import Outcome, how, launch
from amanda_tools.merging import gathered
from amanda_tools.notice import described, refused, say
from amanda_tools.output import HasFile, all_or_none
from amanda_tools.registry import check_outputs
from amanda_tools.results import Results

if TYPE_CHECKING:
    from collections.abc import Sequence

    import amanda

    from amanda_tools.html_report import PageFile
    from amanda_tools.registry import Request
    from amanda_tools.settings import Settings
    from amanda_tools.target import Program


def run_under(
    requests: Sequence[Request],
    types: frozenset[str] | None,
    program: Program,
    args: Sequence[str],
    page: PageFile | None = None,
) -> tuple[Outcome, Sequence[amanda.Tool]]:
    """Run a program under the tools that are asked for; they look at ``types`` alone, None for all.

    Args:
        page: the file of a report, which has times recorded for it where a tool measures them.

    Raises:
        click.UsageError: they cannot be made active, or their files be written.
    """
    with refused("a file to write"):
        check_outputs(requests, program.sources, None if page is None else page.path)
    with refused("the tools cannot be made active"):
        tools = in_order([wanted.build() for wanted in requests])
        recorder = None if page is None else page.recorder_for(tools)
        if recorder is not None:
            tools = in_order([*tools, recorder])
    if types is not None:
        for tool in tools:
            tool.restrict(types)
    with refused("a file to write"), all_or_none():
        for tool in tools:
            if isinstance(tool, HasFile):
                with refused(type(tool).__name__):  # its name may be anything
                    tool.open()
        if page is not None:
            page.open()
    outcome = launch(program, args, tools)
    if outcome.ended_by is not None and not outcome.forked:
        say(f"ended by {how(outcome.ended_by)}; this is what was recorded until then")
    return outcome, tools


def show_results(
    outcome: Outcome,
    tools: Sequence[amanda.Tool],
    requests: Sequence[Request],
    types: frozenset[str] | None,
    settings: Settings,
    page: PageFile | None = None,
) -> Outcome:
    """Show what the tools found that were asked for, and write it on a page, if there is to be one.

    Returns:
        how the run ended, with that counted.
    """
    if outcome.forked:
        return outcome  # the process that it comes from reports
    # tools that these depend on only serve them
    asked = [tool for tool in tools if type(tool) in {wanted.cls for wanted in requests}]
    everywhere = [] if outcome.ended_by is not None else gathered(asked)
    if everywhere is None and page is None:
        return outcome  # the first process reports for all
    results = Results(silent=everywhere is None)
    try:
        if outcome.idle and not results.silent:
            say(f"no operator ran under the tools; {why_nothing(types)}")
        results.show([*asked, *(everywhere or ())], settings.depth, settings.width)
        if page is not None:
            with results.told("the report cannot be written"):
                page.write_run(results.contributions)
                say(f"report: {page.state}")
    except KeyboardInterrupt:
        say("ended by KeyboardInterrupt while results were shown; files of tools are complete")
        raise
    return outcome._replace(tools_failed=outcome.tools_failed or results.tools_failed)


def why_nothing(types: frozenset[str] | None) -> str:
    """Tell what may have kept the tools from seeing any operator."""
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
        "`amanda ops` without --ops lists the types that there are"
    )
