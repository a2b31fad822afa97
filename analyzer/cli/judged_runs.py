"""Verdicts on recorded runs, each beside the others, as commands judge and show them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.composition import open_analyst, open_cleaner
from analyzer.cli.output import OutputFormat, complain, print_json, progress_bar
from analyzer.cli.recorded_runs import RecordedRun
from analyzer.cli.repeated_runs import Judged
from analyzer.inquiry.terminal import console, run_heading, steps_table, verdict_panel
from analyzer.inquiry.verdict import to_json
from analyzer.methods.pooling import trust_of
from analyzer.signals.triage import triage
from collector_processor.core.analysis import UNKNOWN
from collector_processor.otlp import CollectorError
from collector_processor.settings import Settings, load_settings
from semconv.model import Attribution, Status, Trajectory

if TYPE_CHECKING:
    from analyzer.issues.labels.kept_trace import KeptTrace


def settings_here(
    method: str | None, model: str | None, budget_usd: float | None, floor: float | None
) -> Settings:
    """Return the settings of the environment and of this directory, with a command's options."""
    return load_settings(
        os.environ,
        directory=Path.cwd(),
        method=method,
        model=model,
        budget_usd_per_run=budget_usd,
        precision=floor or 0.0,  # the setting is for the service: a run's best candidate is always shown
    )


def judge(
    recorded: Sequence[RecordedRun], analyst: RunAnalyst, settings: Settings, *, failed: bool = False
) -> list[Judged]:
    """Return the runs, without what the settings redact, with their verdicts, in order.

    Args:
        recorded: the runs, which are also compared with each other.
        analyst: the analyst that the settings describe.
        settings: with the concurrency, and what is to be redacted.
        failed: whether to take the runs as failed without checking.
    """
    clean = open_cleaner(settings)
    runs = [replace(run, trajectory=clean(run.trajectory)) for run in recorded]
    known = _beside_each_other(as_labels_say(analyst, settings), runs)
    verdicts = asyncio.run(_attribute_all(known, runs, settings.concurrency, failed=failed))
    return [
        Judged(trajectory=run.trajectory, attribution=verdict)
        for run, verdict in zip(runs, verdicts, strict=True)
    ]


def as_labels_say(analyst: RunAnalyst, settings: Settings) -> RunAnalyst:
    """Return the analyst, which believes its model and its evidence as labels and proofs in the store say.

    Without a store or labels it is unchanged. If the store cannot be read, the user is told.
    """
    place = settings.store_place
    if isinstance(place, Path) and not place.is_file():
        return analyst
    from analyzer.cli.kept_runs import read_records  # noqa: PLC0415 - most commands open no store

    model = analyst.attributor.model
    try:
        earned, worths = read_records(settings)
    except (CollectorError, sqlite3.Error) as error:
        complain(f"the labels of earlier runs are left out: {error}")
        return analyst
    trust = trust_of(UNKNOWN if model is None else earned.get(model.name, UNKNOWN))
    return replace(analyst, attributor=replace(analyst.attributor, trust=trust, worths=worths))


def known_or_judged(
    run: RecordedRun, kept: KeptTrace | None, settings: Settings
) -> tuple[dict[str, Any], Trajectory]:
    """Return the verdict as JSON, and the run without secrets: a kept run has its stored verdict.

    Args:
        run: the run.
        kept: the same run in the store; ``None`` for one of a file.
        settings: the model and method of a new verdict, and what is redacted.
    """
    if kept is not None:
        from analyzer.web.reads.documents import read_document  # noqa: PLC0415 - most commands read files

        return read_document(kept.verdict.document, kept.verdict.run_id), run.trajectory
    (judged,) = judge([run], open_analyst(settings), settings)
    return to_json(judged.attribution, judged.trajectory), judged.trajectory


def some_failed(verdicts: Sequence[Attribution]) -> bool:
    """Report the runs that could not be attributed; return whether the command fails."""
    errors = [verdict.error for verdict in verdicts if verdict.status is Status.ERROR]
    if errors:
        complain(f"{len(errors)} of {len(verdicts)} runs could not be attributed: {errors[0]}")
    unread = [verdict for verdict in verdicts if verdict.status is Status.UNREADABLE]
    return bool(errors) or bool(unread and len(unread) == len(verdicts))


def show(run: Judged, output: OutputFormat) -> None:
    """Print a run's steps and verdict, or its verdict as one object."""
    if output is OutputFormat.JSON:
        print_json(to_json(run.attribution, run.trajectory))
        return
    screen = console()
    screen.print(run_heading(run.trajectory), "")
    screen.print(steps_table(run.trajectory, run.attribution, width=screen.width), "")
    screen.print(verdict_panel(run.attribution, run.trajectory), "")


def _beside_each_other(analyst: RunAnalyst, runs: Sequence[RecordedRun]) -> RunAnalyst:
    """Return the analyst, which also compares each run with the others."""
    if len(runs) == 1:
        return analyst
    from analyzer.history.known_runs import KnownRuns, known_run, said_of  # noqa: PLC0415 - of several runs

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
    with progress_bar("attributing", len(runs)) as advance:

        async def one(run: RecordedRun) -> Attribution:
            async with slots:
                attribution = await _attribute(analyst, run.trajectory, failed=failed)
            advance()
            return attribution

        return await asyncio.gather(*(one(run) for run in runs))


async def _attribute(analyst: RunAnalyst, trajectory: Trajectory, *, failed: bool) -> Attribution:
    if failed:
        return analyst.signed(await analyst.attributor(trajectory), trajectory)
    return (await analyst.analyse(trajectory)).attribution
