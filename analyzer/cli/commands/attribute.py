"""``blamespan attribute``: the verdict on recorded runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from analyzer.analyses.composition import open_analyst
from analyzer.cli.judged_runs import judge, settings_here, show, some_failed
from analyzer.cli.output import (
    FormatOption,
    OutputFormat,
    optional,
    print_json,
)
from analyzer.cli.recorded_runs import (
    STANDARD_INPUT,
    FilesArgument,
    LogsOption,
    RecordedRun,
    RecordedRuns,
    name_of,
)
from analyzer.cli.repeated_runs import Judged, Repetition, final_table, in_a_line, in_full
from analyzer.cli.shared_options import FloorOption, MethodOption, ModelOption
from analyzer.inquiry.explanation import proof_command
from analyzer.inquiry.present import is_unsaid, plain
from analyzer.inquiry.terminal import console
from analyzer.inquiry.verdict import to_json
from semconv.model import Blame


def attribute(
    files: FilesArgument,
    method: MethodOption = None,
    model: ModelOption = None,
    reference: Annotated[str | None, optional("TEXT", "The right answer.")] = None,
    with_reference: Annotated[
        bool | None,
        typer.Option(
            "--with-reference/--without-reference",
            help="Whether the method sees the right answer; the check for a failure always does.",
            show_default="if --reference is given",
        ),
    ] = None,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            "--budget-usd", min=0, metavar="USD", help="Maximum cost of one run.", show_default="0.50"
        ),
    ] = None,
    floor: FloorOption = None,
    logs: LogsOption = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Take the run as failed, without checking whether it did.")
    ] = False,
    all_runs: Annotated[
        bool,
        typer.Option(
            "--all", help="Print the steps of every run. By default, more than 3 runs get a line each."
        ),
    ] = False,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Say which agent broke a recorded run, at which step and why.

    A conversation log is assumed to have failed; a trace is first checked for failure,
    unless [bold]--failed[/bold]. Without a model it needs no network and no key. Several runs are also
    compared with each other: a step that only failing runs of a workflow have is more likely to blame. More
    than three runs get a line each, then the first failed run in full and a table of what broke them. As
    JSON, each run names its [bold]file[/bold].

    Example: [bold]blamespan attribute trace.json --model ollama/qwen3[/bold]
    """
    settings = settings_here(method, model, budget_usd, floor)
    sees = reference is not None if with_reference is None else with_reference
    analyst = open_analyst(settings, with_reference=sees)
    recorded = RecordedRuns(files, logs or [])
    read = [(path, _with_reference(run, reference)) for path, run in recorded]
    judged = judge([run for _, run in read], analyst, settings, failed=failed)
    if output is OutputFormat.JSON:
        for (path, _), run in zip(read, judged, strict=True):
            print_json({**to_json(run.attribution, run.trajectory), "file": str(path)})
    else:
        _print(read, judged, list(enumerate(judged, 1)) if all_runs else in_full(judged))
    failed_some = some_failed([run.attribution for run in judged])
    if code := max(int(failed_some), recorded.exit_code):
        raise typer.Exit(code)


def _print(
    read: Sequence[tuple[Path, RecordedRun]], judged: Sequence[Judged], shown: Sequence[tuple[int, Judged]]
) -> None:
    """Print the steps and verdicts of some runs; if these are not all, also a line on each, and a ranking."""
    screen = console()
    lines = zip(read, judged, strict=True) if len(shown) < len(judged) else ()
    for number, ((path, _), run) in enumerate(lines, 1):
        told = f"{number} of {len(judged)}: {plain(name_of(path), 200)}: {in_a_line(run.attribution)}"
        screen.print(told, soft_wrap=True)
    for number, run in shown:
        path, recorded = read[number - 1]
        if len(judged) > 1:
            told = f"run {number} of {len(judged)}: {plain(name_of(path), 200)}"
            screen.print("", told, sep="\n", soft_wrap=True, markup=False, highlight=False)
        show(run, OutputFormat.TABLE)
        if recorded.trace is not None and path != STANDARD_INPUT:
            _say_what_next(path, run)
    if len(shown) < len(judged):
        screen.print(final_table("", [Repetition(code=0, judged=(run,)) for run in judged]))
        screen.print("", "--all prints the steps of each run", sep="\n")


def _say_what_next(path: Path, run: Judged) -> None:
    verdict = run.attribution.verdict
    if isinstance(verdict, Blame):
        said = f"To prove it: {proof_command(str(path))}"
    elif is_unsaid(verdict.reason):
        said = f"Wrong all the same? blamespan attribute --failed {shlex.quote(str(path))}"
    else:
        return
    console().print(said, "", sep="\n", soft_wrap=True, markup=False)


def _with_reference(run: RecordedRun, reference: str | None) -> RecordedRun:
    if reference is None:
        return run
    return replace(run, trajectory=replace(run.trajectory, reference=reference))
