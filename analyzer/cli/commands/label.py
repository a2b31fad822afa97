"""``blamespan label``: a person's judgement on a verdict, or with ``--queue`` the runs most worth one."""

from __future__ import annotations

import asyncio
import getpass
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from analyzer.cli.kept_runs import DataDirOption, TenantOption, opened_store
from analyzer.cli.output import CommandFailed, FormatOption, OutputFormat, WrongUsage, optional, print_json
from analyzer.inquiry.present import counted, plain
from analyzer.inquiry.terminal import console
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.labels.labelling import AcceptedLabel, accept_label, find_run
from analyzer.issues.labels.queue import Why
from analyzer.issues.labels.run_label import LabelKind, Statement
from analyzer.issues.recurrence import Issue
from analyzer.records.json_records import QueuedRun
from analyzer.web.pages.queue_page import LabelQueue, Queue, queued_run
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.run_query import RunName
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import Tenant
from collector_processor.rebuild.redaction import make_redactor, read_kinds
from collector_processor.settings import load_settings
from collector_processor.store.database.connection import open_database
from collector_processor.store.verdicts import RunStore
from semconv.model import UNKNOWN_AGENT, agent_label


class Judgement(StrEnum):
    """A person's word on a verdict."""

    RIGHT = "right"
    WRONG = "wrong"


def label_run(
    run: str, statement: Statement, *, tenant: str | None, data_dir: Path | None, output: OutputFormat
) -> None:
    """Label a run of the data directory, and print the stored label.

    Raises:
        NoSuchRun: the id matches no run or several.
        LabelRefused: the label does not fit the run.
        CommandFailed: there is no run yet.
    """
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    clean = make_redactor(read_kinds(settings.redact), settings.redact_patterns).redact
    with opened_store(settings, "verdicts") as db:
        verdicts, labels = RunStore(db), LabelStore(db)
        verdict = find_run(verdicts, run, None if tenant is None else Tenant(tenant))
        accepted_label = accept_label(
            labels, verdict, statement, time.time_ns(), verdicts=verdicts, clean=clean
        )
    if output is OutputFormat.JSON:
        print_json(accepted_label.to_json())
    else:
        _show(accepted_label, verdict)


def user_name() -> str:
    """Return the name of the user who runs the command; empty if the system knows none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run under a number without a name
        return ""


def _show(accepted_label: AcceptedLabel, verdict: StoredVerdict) -> None:
    label, screen = accepted_label.label, console()
    screen.print(plain(f"{label.run_id}: {_in_words(accepted_label, verdict)}", 500))
    if label.kind in {LabelKind.CONFIRMED, LabelKind.CORRECTED} and accepted_label.obstacle:
        screen.print(
            f"The label is stored, but no ranker can learn from it: {accepted_label.obstacle}.", style="dim"
        )
    if accepted_label.trace_obstacle:
        screen.print(f"The trace is not corrected: {accepted_label.trace_obstacle}.", style="dim")
    elif label.kind is not LabelKind.CONFIRMED:
        screen.print("The service corrects the trace within seconds, or when it starts again.", style="dim")


def _in_words(accepted_label: AcceptedLabel, verdict: StoredVerdict) -> str:
    label = accepted_label.label
    blamed = agent_label(label.agent or UNKNOWN_AGENT) + (
        "" if label.step is None else f", step {label.step}"
    )
    former = "no failure" if verdict.agent is None else agent_label(verdict.agent)
    former += "" if verdict.step is None else f", step {verdict.step}"
    words: dict[LabelKind, Any] = {
        LabelKind.CONFIRMED: f"confirmed: {blamed}",
        LabelKind.CORRECTED: f"corrected: {blamed} (the verdict said {former})",
        LabelKind.REJECTED: f"rejected: not {former}; what is right is not known",
        LabelKind.NOT_A_FAILURE: "not a failure",
    }
    return str(words[label.kind])


def label(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="The run's id, or the beginning of it.", show_default=False),
    ] = None,
    judgement: Annotated[
        Judgement | None,
        typer.Argument(
            metavar="VERDICT",
            help="`right` or `wrong`, if you name no other agent or step.",
            show_default=False,
        ),
    ] = None,
    agent: Annotated[str | None, optional("NAME", "The agent to blame.")] = None,
    step: Annotated[int | None, optional("N", "The decisive step, counted from 0.", min=0)] = None,
    did_not_fail: Annotated[bool, typer.Option("--did-not-fail", help="The run succeeded.")] = False,
    why: Annotated[
        str, optional("TEXT", "The reason, kept with the label, on the page and in the corrected trace.")
    ] = "",
    queue: Annotated[
        bool, typer.Option("--queue", help="List the runs most worth a label, in place of labelling one.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=50, help="Runs that --queue lists.")] = 10,
    tenant: TenantOption = None,
    data_dir: DataDirOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Say whether the verdict on a run is right, or which agent or step was to blame.

    `right` confirms agent and step, or that the run did not fail. `wrong` is for a verdict that you cannot
    correct: rankers learn nothing from it. They learn from labels with a step ([bold]blamespan train --out
    FILE[/bold]). Works whether or not the service runs; the newest label of a run counts.

    Example: [bold]blamespan label --queue[/bold], [bold]blamespan label 4bf92f35 right[/bold],
    [bold]blamespan label 4bf92f35 --step 7 --why "it swapped two digits"[/bold]
    """
    names_one = agent is not None or step is not None
    if queue:
        if run is not None or judgement is not None or names_one or did_not_fail or why:
            raise WrongUsage("--queue lists runs: it excludes RUN, --agent, --step, --did-not-fail and --why")
        list_queue(tenant, data_dir, limit, output)
        return
    if run is None:
        raise WrongUsage("expected RUN, the id of the run to label, or --queue")
    if [judgement is not None, names_one, did_not_fail].count(True) != 1:
        raise WrongUsage("expected one of right, wrong, --agent or --step or both, --did-not-fail")
    kind = LabelKind.NOT_A_FAILURE if did_not_fail else _KINDS[judgement]
    statement = Statement(kind=kind, agent=agent, step=step, why=why, author=user_name())
    label_run(run, statement, tenant=tenant, data_dir=data_dir, output=output)


_KINDS: Final = {
    Judgement.RIGHT: LabelKind.CONFIRMED,
    Judgement.WRONG: LabelKind.REJECTED,
    None: LabelKind.CORRECTED,
}


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
            queue = asyncio.run(LabelQueue(archive, issues_of).read(Tenant(tenant or ""), limit))
    runs = [queued_run(question) for question in queue.questions]
    if output is OutputFormat.JSON:
        for run in runs:
            print_json(asdict(run))
        return
    _show_queue(runs, queue)


def _issues(store: IssueStore, names: Sequence[RunName]) -> dict[RunName, Issue]:
    ids = store.issue_ids(names)
    known = {
        (owner, issue.fingerprint.id): issue
        for owner, issue in store.issues_of(sorted({(name[0], issue_id) for name, issue_id in ids.items()}))
    }
    found = {name: known.get((name[0], issue_id)) for name, issue_id in ids.items()}
    return {name: issue for name, issue in found.items() if issue is not None}


def _show_queue(runs: Sequence[QueuedRun], queue: Queue) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("run", "asked because", "verdict", "task"):
        table.add_column(name, overflow="fold")
    for run in runs:
        table.add_row(plain(run.run_id, 80), _WHY[run.why], _verdict(run), plain(run.task, 80))
    screen = console()
    if runs:
        screen.print(table)
        screen.print(
            "Answer with `blamespan label RUN --step N`, `label RUN right`, `label RUN wrong`,"
            " or on the page /queue."
        )
    answers = f"{counted(queue.answered, 'newest failed run')} with an answer"
    screen.print(f"{answers}, {queue.proved} of them from an experiment." if queue.proved else f"{answers}.")


def _verdict(run: QueuedRun) -> str:
    if run.blind:
        return "hidden until you answer"
    if run.agent is None:
        return "" if run.status is None else run.status.value
    return f"{plain(agent_label(run.agent), 40)}, step {run.step}"
