"""``blamespan workflows``: how often workflows succeed over time, by version."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from analyzer.cli.kept_runs import DataDirOption, opened_store
from analyzer.cli.output import CommandFailed, FormatOption, OutputFormat, optional, print_json
from analyzer.inquiry.present import plain
from analyzer.inquiry.terminal import console
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.report import iso
from analyzer.issues.workflow_reports import (
    NOT_FAIR,
    FixReport,
    WorkflowReport,
    WorkflowReports,
    read_fix,
    to_json,
)
from collector_processor.otlp import Tenant
from collector_processor.settings import load_settings

_NOTE: Final = (
    "Passed: an evaluator, a check, a rule or a person said so. Unsaid: nothing says whether the run passed."
)


def workflows(
    service: Annotated[str | None, optional("NAME", "Only this service's.")] = None,
    workflow: Annotated[str | None, optional("NAME", "Only this workflow.")] = None,
    tenant: Annotated[str | None, optional("TENANT", "Only this tenant's.")] = None,
    fix: Annotated[
        str | None,
        optional("TIME|RELEASE", "Compare the runs before and after a fix: a time, or a `service.version`."),
    ] = None,
    data_dir: DataDirOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show how often workflows succeed, when the rate changed, and what their passing runs always do.

    Covers the last 30 days and the newest 1,000 runs of a workflow. A version is a set of prompts, tools,
    models and `service.version`. Works whether or not the service runs.

    Example: [bold]blamespan workflows --service shop --format json[/bold]
    """
    settings = load_settings(os.environ, directory=Path.cwd(), data_dir=data_dir)
    if not settings.is_fair_sample:
        raise CommandFailed(NOT_FAIR)
    with opened_store(settings, "workflows") as db:
        owner = None if tenant is None else Tenant(tenant)
        asked = None if fix is None else read_fix(fix)
        reports = WorkflowReports(IssueStore(db))
        workflow_reports = [
            reports.with_always(report)
            for report in reports.reports(time.time_ns(), owner, asked)
            if service in {None, report.service} and workflow in {None, report.workflow}
        ]
    if output is OutputFormat.JSON:
        for report in workflow_reports:
            print_json(to_json(report))
        return
    screen = console()
    screen.print(
        _table(workflow_reports) if workflow_reports else "No run of a workflow in the last 30 days."
    )
    if fix is not None and not any(report.fix for report in workflow_reports):
        missing = f"No workflow has a run of {plain(fix, 40)}: neither a release nor a time."
        screen.print(missing)
    for line in (line for report in workflow_reports for line in _news(report)):
        screen.print(line)
    screen.print(_NOTE, style="dim")


def _table(reports: list[WorkflowReport]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in ("workflow", "service", "release"):
        table.add_column(column, overflow="fold")
    for column in ("passed", "failed", "unsaid"):
        table.add_column(column, justify="right")
    table.add_column("against the version before", overflow="fold")
    for report in reports:
        for version in report.versions:
            counts = [str(version.said[name]) for name in ("passed", "failed", "unsaid")]
            compared = version.against_before
            told = "" if compared is None else f"{compared.decision}: {compared.reason}"
            table.add_row(
                plain(report.workflow or "(no name)", 60),
                plain(report.service, 40),
                plain(version.release or version.version, 40),
                *counts,
                told,
            )
    return table


def _news(report: WorkflowReport) -> list[str]:
    """Return what changed, as sentences."""
    name = plain(report.workflow or report.service, 60)
    lines = []
    for change in report.changes:
        before, after = change.point.before, change.point.after
        way = "less" if change.point.is_drop else "more"
        parts = "".join(f"; issue {one.issue[:8] or '-'}: {one.part:.0%} of it" for one in change.issues)
        lines.append(
            f"{name}: succeeds {way} often since {iso(change.at_ns)}:"
            f" {after[0]} of {after[1]}, before {before[0]} of {before[1]}{parts}"
        )
    newest = report.newest
    if newest is not None and newest.is_alarm:
        failed, known = newest.after
        lines.append(f"{name}: its newest version fails more often: {failed} of {known} runs")
    if report.fix is not None:
        lines.append(_fixed(name, report.fix))
    lines += [
        f"{name}: in {one.support} of {one.runs} passing runs {plain(one.rule, 300)}" for one in report.always
    ]
    return lines


def _fixed(name: str, fix: FixReport) -> str:
    """Return one sentence: how a workflow does since a fix."""
    before, after, difference = fix.whole.before, fix.whole.after, fix.whole.difference
    fewer = "".join(
        f"; issue {one.issue[:8] or '-'}: {one.before[0]} of {one.before[1]} runs, before {one.after[0]} of"
        f" {one.after[1]}"
        for one in fix.fewer
    )
    return (
        f"{name}: {fix.whole.verdict} since the fix ({iso(fix.at_ns)}): {after[0]} of {after[1]} runs pass,"
        f" before {before[0]} of {before[1]} ({difference.low:+.0%} to {difference.high:+.0%} points){fewer}"
    )
