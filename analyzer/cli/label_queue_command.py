"""``blamespan label --queue``: the runs most worth a person's label, read from the store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from analyzer.cli.output import CommandFailed, OutputFormat, print_json
from analyzer.inquiry.present import console, counted, plain
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.queue import Why
from analyzer.issues.recurrence.issue import Issue
from analyzer.web.json_records import QueuedRun
from analyzer.web.pages.queue_pages import queued_run
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.label_queue import LabelQueue, Queue
from analyzer.web.reads.page_records import RunName
from collector_processor.otlp import Tenant
from collector_processor.settings import load_settings
from collector_processor.store.database.places import open_database
from semconv.model import agent_label

_WHY = {Why.RANDOM: "random", Why.DISAGREEMENT: "methods disagree", Why.UNCERTAIN: "uncertain"}


def list_queue(tenant: str | None, data_dir: Path | None, limit: int, output: OutputFormat) -> None:
    """Print the next questions.

    Raises:
        CommandFailed: there is no store yet.
        CollectorError: it cannot be used.
    """
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    place = settings.store_place
    if isinstance(place, Path) and not place.is_file():
        raise CommandFailed(
            f"{place.parent}: holds no runs: expected the data directory of `blamespan serve`"
        )
    with closing(open_database(place)) as database, closing(database.connect()) as db:
        store = IssueStore(db)

        async def issues_of(names: Sequence[RunName]) -> Mapping[RunName, Issue]:
            return _issues(store, names)

        with closing(RunArchive(database)) as archive:
            found = asyncio.run(LabelQueue(archive, issues_of).read(Tenant(tenant or ""), limit))
    runs = [queued_run(each) for each in found.questions]
    if output is OutputFormat.JSON:
        for run in runs:
            print_json(asdict(run))
        return
    _show(runs, found)


def _issues(store: IssueStore, names: Sequence[RunName]) -> dict[RunName, Issue]:
    ids = store.issue_ids(names)
    known = {
        (owner, issue.fingerprint.id): issue
        for owner, issue in store.issues_of(sorted({(name[0], issue_id) for name, issue_id in ids.items()}))
    }
    found = {name: known.get((name[0], issue_id)) for name, issue_id in ids.items()}
    return {name: issue for name, issue in found.items() if issue is not None}


def _show(runs: Sequence[QueuedRun], found: Queue) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("run", "asked because", "verdict", "task"):
        table.add_column(name, overflow="fold")
    for run in runs:
        table.add_row(plain(run.run_id, 80), _WHY[run.why], _verdict(run), plain(run.task, 80))
    screen = console()
    if runs:
        screen.print(table)
        screen.print(
            "Answer with `blamespan label RUN --step N`, `confirm`, `reject`, or on the page /queue."
        )
    answers = f"{counted(found.answered, 'newest failed run')} with an answer"
    screen.print(f"{answers}, {found.proved} of them from an experiment." if found.proved else f"{answers}.")


def _verdict(run: QueuedRun) -> str:
    if run.blind:
        return "hidden until you answer"
    if run.agent is None:
        return "" if run.status is None else run.status.value
    return f"{plain(agent_label(run.agent), 40)}, step {run.step}"
