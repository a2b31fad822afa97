"""``blamespan issues``: list, resolve and mute recurring failures."""

from __future__ import annotations

import os
import re
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from analyzer.cli.kept_runs import DataDirOption, find_issue, opened_store
from analyzer.cli.output import FormatOption, OutputFormat, WrongUsage, optional, print_json
from analyzer.inquiry.present import plain
from analyzer.inquiry.terminal import console
from analyzer.issues.counting import CountingRules, IssueCounting
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.recurrence import Issue, IssueState
from analyzer.issues.report import SAMPLED, IssueReports, Wanted, to_json
from collector_processor.otlp import Tenant
from collector_processor.settings import load_settings

_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LONGEST_S: Final = 366 * 86_400
_BARS: Final = " ▁▂▃▄▅▆▇█"
_SHOWN: Final = 8
"""Shown characters of an id: enough to identify an issue."""
_NOTE: Final = (
    "Share: the part of the agent's runs that it broke, with the 95 % interval; by the method alone, or"
    " corrected by the labels of its service (blamespan label)."
)
_WIDE: Final = 110
"""Terminal width from which the bar column is shown."""
_STYLES: Final = {"regressed": "bold red", "new": "red", "ongoing": "yellow", "resolved": "green"}


class IssueAction(StrEnum):
    """An action on an issue."""

    RESOLVE = "resolve"
    MUTE = "mute"
    UNMUTE = "unmute"


def issues(
    action: Annotated[
        IssueAction | None,
        typer.Argument(
            metavar="[resolve|mute|unmute]", help="Without an action: list the issues.", show_default=False
        ),
    ] = None,
    issue: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The issue's id, or the beginning of it.", show_default=False),
    ] = None,
    for_: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long to mute: 30m, 12h, 7d, 2w.")
    ] = "7d",
    state: Annotated[
        IssueState | None, optional("STATE", f"Only those in this state: {', '.join(IssueState)}.")
    ] = None,
    service: Annotated[str | None, optional("NAME", "Only this service's.")] = None,
    agent: Annotated[str | None, optional("NAME", "Only this agent's.")] = None,
    tenant: Annotated[str | None, optional("TENANT", "Only this tenant's.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number listed.")] = 100,
    data_dir: DataDirOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """List recurring failures, or resolve or mute one.

    Works whether or not the service runs. A failure that comes back after its issue was resolved is
    a regression, and you are notified again.

    Example: [bold]blamespan issues --state new[/bold], [bold]blamespan issues mute 3f2a --for 7d[/bold]
    """
    owner = None if tenant is None else Tenant(tenant)
    if (action is None) != (issue is None):
        raise WrongUsage("expected an id after resolve, mute or unmute")
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    with opened_store(settings, "issues") as db:
        store = IssueStore(db)
        rules = CountingRules(is_fair_sample=settings.is_fair_sample)
        counting = IssueCounting(store, LabelStore(db), rules)
        counting.apply_labels()
        found: Issue | None = None
        if action is not None and issue is not None:
            found_tenant, found = find_issue(store, issue, owner)
            _do(counting, action, found_tenant, found, _until(action, for_))
            wanted = Wanted(tenant=found_tenant, limit=10_000)
        else:
            wanted = Wanted(tenant=owner, state=state, service=service, agent=agent, limit=limit)
        now_ns = time.time_ns()
        reports = IssueReports(store, is_fair_sample=settings.is_fair_sample).reports(wanted, now_ns)
        documents = [to_json(report, now_ns) for report in reports if _is_meant(report.issue, found)]
    _show(documents, output)


def _is_meant(issue: Issue, found: Issue | None) -> bool:
    return found is None or issue.fingerprint == found.fingerprint


def _do(counting: IssueCounting, action: IssueAction, tenant: Tenant, issue: Issue, until_ns: int) -> None:
    if action is IssueAction.RESOLVE:
        counting.resolve(tenant, issue.fingerprint.id, time.time_ns())
    else:
        counting.mute(tenant, issue.fingerprint.id, until_ns)


def _until(action: IssueAction, text: str) -> int:
    if action is not IssueAction.MUTE:
        return 0
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip())
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST_S:
        raise WrongUsage(f"--for {text}: expected a time up to a year, such as 30m, 12h, 7d or 2w")
    return time.time_ns() + seconds * 10**9


def _show(documents: list[dict[str, Any]], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        for document in documents:
            print_json(document)
        return
    screen = console()
    if not documents:
        screen.print("No issues.", style="dim")
        return
    screen.print(_table(documents, is_wide=screen.width >= _WIDE))
    is_off = any(document["share_off"] == SAMPLED for document in documents)
    note = f"Shares are {SAMPLED}." if is_off else _NOTE
    screen.print(note, style="dim")


def _table(documents: list[dict[str, Any]], *, is_wide: bool) -> Table:
    """Return the issues as a table; without bars on narrow terminals."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("id", no_wrap=True)
    table.add_column("state", no_wrap=is_wide)
    table.add_column("what", overflow="fold", min_width=24)
    table.add_column("times", justify="right", no_wrap=True)
    for column in ("14 days", "last") if is_wide else ():
        table.add_column(column, no_wrap=True)
    table.add_column("its share, 7 days")
    for document in documents:
        state = document["state"] + (", muted" if document["muted"] else "")
        bars = _bars([day["count"] for day in document["trend"]])
        table.add_row(
            document["id"][:_SHOWN],
            Text(state, style=_STYLES[document["state"]]),
            Text(plain(f"{document['title']} ({document['service']})", 110)),
            str(document["count"]),
            *((bars, document["last_seen"][:10]) if is_wide else ()),
            _share(document),
        )
    return table


def _bars(counts: list[int]) -> str:
    most = max(counts, default=0)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] if most else " " for count in counts)


def _share(document: dict[str, Any]) -> str:
    share = document["share"]
    if share is None:
        return "off" if document["share_off"] == SAMPLED else "-"
    return f"{share['told']}{', more than before' if share['alarm'] else ''}"
