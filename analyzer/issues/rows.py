"""What stands in the rows of the issue store, as values, and how one is read from the other. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.recurrence import Fingerprint, Issue, IssueState
from analyzer.recurrence.notice import Notice
from collector_processor.otlp import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedRun:
    """An analysed run whose verdict may not be durable yet."""

    tenant: Tenant
    run_id: str
    status: str
    agents: tuple[str, ...]
    blamed: str | None = None
    step: int | None = None
    mark: Fingerprint | None = None
    """Its service is not known yet."""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedRow:
    """The same, as it is written."""

    tenant: Tenant
    run_id: str
    document: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRun:
    """A run as it is counted."""

    tenant: Tenant
    run_id: str
    service: str
    agents: tuple[str, ...]
    blamed: str | None
    step: int | None
    mark: Fingerprint | None
    issue_id: str | None
    """Where it is counted; ``None`` for nowhere."""
    decided_ns: int
    label: str | None = None
    label_agent: str | None = None
    label_step: int | None = None
    status: str = ""
    """What the method said."""
    settled_ns: int = 0
    """When the first verdict on it was settled: a correction keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """A notice that a receiver does not have yet."""

    id: int
    notice: Notice


def noted_document(run: NotedRun) -> str:
    """Return what stands beside a noted run's tenant and id."""
    document = {
        "status": run.status,
        "agents": run.agents,
        "blamed": run.blamed,
        "step": run.step,
        "mark": None if run.mark is None else _mark_document(run.mark),
        "text": run.text,
    }
    return json.dumps(document)


def noted_row(run: NotedRun) -> NotedRow:
    """Return what is written of a noted run."""
    return NotedRow(tenant=run.tenant, run_id=run.run_id, document=noted_document(run))


def as_noted(tenant: str, run_id: str, text: str) -> NotedRun:
    """Read a noted run."""
    document = json.loads(text)
    mark = document.pop("mark")
    return NotedRun(
        tenant=Tenant(tenant),
        run_id=run_id,
        mark=None if mark is None else Fingerprint(**mark),
        **(document | {"agents": tuple(document["agents"])}),
    )


def counted_row(run: CountedRun) -> tuple[object, ...]:
    """Return the columns of a counted run."""
    return (
        run.tenant,
        run.run_id,
        run.service,
        json.dumps(run.agents),
        run.blamed,
        run.step,
        None if run.mark is None else json.dumps(_mark_document(run.mark)),
        run.issue_id,
        run.decided_ns,
        run.label,
        run.label_agent,
        run.label_step,
        run.status,
        run.settled_ns,
    )


def as_counted(row: Sequence[object]) -> CountedRun:
    """Read the columns of a counted run."""
    tenant, run_id, service, agents, blamed, step, mark, issue, decided_ns, *said = row
    label, label_agent, label_step, status, settled_ns = said
    return CountedRun(
        tenant=Tenant(str(tenant)),
        run_id=str(run_id),
        service=str(service),
        agents=tuple(json.loads(str(agents))),
        blamed=None if blamed is None else str(blamed),
        step=None if step is None else _int(step),
        mark=None if mark is None else Fingerprint(**json.loads(str(mark))),
        issue_id=None if issue is None else str(issue),
        decided_ns=_int(decided_ns),
        label=None if label is None else str(label),
        label_agent=None if label_agent is None else str(label_agent),
        label_step=None if label_step is None else _int(label_step),
        status=str(status),
        settled_ns=_int(settled_ns),
    )


def issue_row(tenant: Tenant, issue: Issue) -> tuple[object, ...]:
    """Return the columns of an issue."""
    return (
        tenant,
        issue.fingerprint.id,
        json.dumps(_mark_document(issue.fingerprint)),
        issue.state,
        issue.since_ns,
        issue.first_ns,
        issue.last_ns,
        issue.count,
        json.dumps(issue.runs),
        issue.muted_until_ns,
    )


def as_issue(row: Sequence[object]) -> Issue:
    """Read the columns of an issue, but for tenant and id."""
    mark, state, since_ns, first_ns, last_ns, count, runs, muted_until_ns = row
    return Issue(
        fingerprint=Fingerprint(**json.loads(str(mark))),
        state=IssueState(str(state)),
        since_ns=_int(since_ns),
        first_ns=_int(first_ns),
        last_ns=_int(last_ns),
        count=_int(count),
        runs=tuple(json.loads(str(runs))),
        muted_until_ns=_int(muted_until_ns),
    )


def _mark_document(mark: Fingerprint) -> dict[str, str | int]:
    return {name: getattr(mark, name) for name in Fingerprint.__dataclass_fields__}


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
