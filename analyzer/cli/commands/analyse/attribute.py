"""``blamespan attribute``: the verdict on recorded runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from analyzer.cli.output import (
    FormatOption,
    OutputFormat,
    advance,
    complain,
    optional,
    print_json,
    progress_bar,
)
from analyzer.cli.recorded_runs import FilesArgument, LogsOption, RecordedRun, RecordedRuns
from analyzer.cli.shared_options import FloorOption, MethodOption, ModelOption
from analyzer.executor.analyst import RunAnalyst
from analyzer.executor.composition import open_analyst, open_cleaner
from analyzer.history.known_runs import KnownRuns, known_run, said_of
from analyzer.inquiry.present import console, run_heading, steps_table, verdict_panel
from analyzer.inquiry.verdict import to_json
from analyzer.signals.triage import triage
from collector_processor.settings import load_settings
from semconv.model import Attribution, Status, Trajectory


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
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Say which agent broke a recorded run, at which step and why.

    A conversation log is assumed to have failed; a trace is first checked for failure,
    unless [bold]--failed[/bold]. Without a model it needs no network and no key. Several runs are also
    compared with each other: a step that only failing runs of a workflow have is more likely to blame.

    Example: [bold]blamespan attribute trace.json --model ollama/qwen3[/bold]
    """
    settings = load_settings(
        os.environ,
        directory=Path.cwd(),
        method=method,
        model=model,
        budget_usd_per_run=budget_usd,
        precision=floor or 0.0,  # the setting is for the service: a file's best candidate is always shown
    )
    sees = reference is not None if with_reference is None else with_reference
    analyst = open_analyst(settings, with_reference=sees)
    recorded = RecordedRuns(files, logs or [])
    referenced = [_with_reference(run, reference) for _, run in recorded]
    clean = open_cleaner(settings)
    runs = [replace(run, trajectory=clean(run.trajectory)) for run in referenced]
    known = _beside_each_other(analyst, runs)
    verdicts = asyncio.run(_attribute_all(known, runs, settings.concurrency, failed=failed))
    for run, verdict in zip(runs, verdicts, strict=True):
        _show(run.trajectory, verdict, output)
    errors = [verdict.error for verdict in verdicts if verdict.status is Status.ERROR]
    if errors:
        complain(f"{len(errors)} of {len(verdicts)} runs could not be attributed: {errors[0]}")
    unread = [verdict for verdict in verdicts if verdict.status is Status.UNREADABLE]
    if recorded.some_unreadable or errors or (unread and len(unread) == len(verdicts)):
        raise typer.Exit(1)


def _with_reference(run: RecordedRun, reference: str | None) -> RecordedRun:
    if reference is None:
        return run
    return replace(run, trajectory=replace(run.trajectory, reference=reference))


def _beside_each_other(analyst: RunAnalyst, runs: Sequence[RecordedRun]) -> RunAnalyst:
    """Return the analyst, which also compares each run with the others."""
    if len(runs) == 1:
        return analyst
    found = [(run, triage(run.trajectory, analyst.rules)) for run in runs]
    past = KnownRuns.of(
        known_run(run.trajectory, said_of(finding.source, failed=finding.failed), run.trace)
        for run, finding in found
    )
    return replace(analyst, attributor=replace(analyst.attributor, past=past))


async def _attribute_all(
    analyst: RunAnalyst, runs: Sequence[RecordedRun], concurrency: int, *, failed: bool
) -> list[Attribution]:
    slots = asyncio.Semaphore(concurrency)
    with progress_bar("attributing", len(runs)) as bar:

        async def one(run: RecordedRun) -> Attribution:
            async with slots:
                attribution = await _attribute(analyst, run.trajectory, failed=failed)
            advance(bar)
            return attribution

        return await asyncio.gather(*(one(run) for run in runs))


async def _attribute(analyst: RunAnalyst, trajectory: Trajectory, *, failed: bool) -> Attribution:
    if failed:
        return analyst.signed(await analyst.attributor(trajectory), trajectory)
    return (await analyst.analyse(trajectory)).attribution


def _show(trajectory: Trajectory, attribution: Attribution, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(to_json(attribution, trajectory))
        return
    screen = console()
    screen.print(run_heading(trajectory), "")
    screen.print(steps_table(trajectory, attribution, width=screen.width), "")
    screen.print(verdict_panel(attribution, trajectory), "")
