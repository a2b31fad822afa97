"""``blamespan issues``: recurring failures, and what people decide of them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from analyzer.commands.labelling import DataDirOption
from analyzer.commands.output import CommandFailed, FormatOption, OutputFormat, WrongUsage, print_json
from analyzer.issues.counting import CountingRules, IssueCounting, Sources
from analyzer.issues.report import IssueReports, Wanted, to_json
from analyzer.issues.store import FILE, IssueStore, open_issues
from analyzer.labels.store import open_labels
from analyzer.present import console, plain
from analyzer.recurrence import Issue, IssueState
from collector_processor.otlp import Tenant
from collector_processor.runstore import RUNS, RunStore
from collector_processor.settings import Settings, load_settings

_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LONGEST_S: Final = 366 * 86_400
_BARS: Final = " ▁▂▃▄▅▆▇█"
_SHOWN: Final = 8
"""Letters of an id: enough to name an issue by."""
_NOTE: Final = (
    "Share: of the runs in which the agent took part, those that it broke, with the 95 % interval; narrower"
    " the more verdicts are confirmed or corrected (blamespan confirm, label, reject)."
)
_WIDE: Final = 110
"""Columns of a terminal that has room for the bars beside the words."""
_STYLES: Final = {"regressed": "bold red", "new": "red", "ongoing": "yellow", "resolved": "green"}


class Deed(StrEnum):
    """What is done with an issue."""

    RESOLVE = "resolve"
    MUTE = "mute"
    UNMUTE = "unmute"


def issues(
    deed: Annotated[
        Deed | None,
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
        IssueState | None, typer.Option(help="Only those in this state.", show_default=False)
    ] = None,
    service: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this service's.", show_default=False)
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this agent's.", show_default=False)
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(metavar="TENANT", help="Only this tenant's.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most that are listed.")] = 100,
    data_dir: DataDirOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """List the failures that come again, or resolve or mute one.

    Works while the service runs and when it does not. A failure that comes back after its issue was
    resolved is a regression, and told again.

    Example: [bold]blamespan issues --state new[/bold], [bold]blamespan issues mute 3f2a --for 7d[/bold]
    """
    owner = None if tenant is None else Tenant(tenant)
    if (deed is None) != (issue is None):
        raise WrongUsage("expected an id after resolve, mute or unmute")
    with _opened(data_dir) as (settings, sources):
        counting = IssueCounting(sources, CountingRules(is_fair_sample=settings.is_fair_sample))
        counting.heed_labels()
        found: Issue | None = None
        if deed is not None and issue is not None:
            found_tenant, found = _find(sources.issues, issue, owner)
            _do(counting, deed, found_tenant, found, _until(deed, for_))
            wanted = Wanted(tenant=found_tenant, limit=10_000)
        else:
            wanted = Wanted(tenant=owner, state=state, service=service, agent=agent, limit=limit)
        now_ns = time.time_ns()
        reports = IssueReports(sources.issues, is_fair_sample=settings.is_fair_sample).reports(wanted, now_ns)
        documents = [to_json(report, now_ns) for report in reports if _is_meant(report.issue, found)]
    _show(documents, output)


def _is_meant(issue: Issue, found: Issue | None) -> bool:
    return found is None or issue.fingerprint == found.fingerprint


@contextmanager
def _opened(data_dir: Path | None) -> Iterator[tuple[Settings, Sources]]:
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    folder = settings.data_dir
    if not (folder / FILE).is_file() or not (folder / RUNS).is_file():
        raise CommandFailed(f"{folder}: holds no issues: expected the data directory of `blamespan serve`")
    with (
        closing(open_issues(folder)) as kept,
        closing(RunStore(folder / RUNS)) as verdicts,
        closing(open_labels(folder)) as labels,
    ):
        yield settings, Sources(issues=kept, verdicts=verdicts, labels=labels)


def _find(store: IssueStore, prefix: str, tenant: Tenant | None) -> tuple[Tenant, Issue]:
    found = store.starting_with(prefix, tenant) if re.fullmatch("[0-9a-f]{1,16}", prefix) else []
    match found:
        case [one]:
            return one
        case []:
            raise CommandFailed(f"no issue {prefix!r}: expected an id that `blamespan issues` lists")
        case _ if len({issue.fingerprint.id for _, issue in found}) == 1:
            shown = ", ".join(repr(owner) for owner, _ in found)
            raise CommandFailed(f"several tenants have issue {prefix}: say which with --tenant, of {shown}")
        case _:
            ids = ", ".join(issue.fingerprint.id for _, issue in found)
            raise CommandFailed(f"several issues begin with {prefix!r}: {ids}")


def _do(counting: IssueCounting, deed: Deed, tenant: Tenant, issue: Issue, until_ns: int) -> None:
    if deed is Deed.RESOLVE:
        counting.resolve(tenant, issue.fingerprint.id, time.time_ns())
    else:
        counting.mute(tenant, issue.fingerprint.id, until_ns)


def _until(deed: Deed, text: str) -> int:
    if deed is not Deed.MUTE:
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
    off = next((document["share_off"] for document in documents if document["share_off"]), None)
    note = f"Shares are {off}." if off else _NOTE
    screen.print(note, style="dim")


def _table(documents: list[dict[str, Any]], *, is_wide: bool) -> Table:
    """Return the issues as a table; where room is scarce, what failed goes before how it went."""
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
        return "off"
    alarm = ", more than before" if share["alarm"] else ""
    return f"{share['estimate']:.0%} ({share['low']:.0%} to {share['high']:.0%}){alarm}"
