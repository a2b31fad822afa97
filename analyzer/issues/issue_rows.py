"""Rows of the issue tables as values, and conversion in both directions. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from analyzer.issues.recurrence.issue import Fingerprint, Issue, IssueState, Notice
from collector_processor.otlp import Tenant
from semconv.model import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedRun:
    """The counted part of an analysed run."""

    tenant: Tenant
    run_id: str
    status: str
    agents: tuple[str, ...]
    blamed: str | None = None
    step: int | None = None
    mark: Fingerprint | None = None
    """The identity of the failure; ``None`` if the run did not fail."""
    text: str = ""
    rules: str = ""
    """As ``Attribution.rules``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRun:
    """A run in the form in which it is counted."""

    tenant: Tenant
    run_id: str
    service: str
    agents: tuple[str, ...]
    blamed: str | None
    step: int | None
    mark: Fingerprint | None
    issue_id: str | None
    """The issue in which it is counted; ``None`` if it is in none."""
    decided_ns: int
    label: str | None = None
    label_agent: str | None = None
    label_step: int | None = None
    status: str = ""
    """The method's verdict."""
    settled_ns: int = 0
    """Time at which its first verdict was settled; a correction keeps it."""
    rules: str = ""
    """Version of the rules that judged it; empty if unknown."""

    @property
    def failed_agent(self) -> str | None:
        """The agent to which a failure is attributed; none for suspected failures."""
        return None if self.status == Status.SUSPECTED else self.blamed


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentNotice:
    """An unsent notice for one receiver."""

    id: int
    notice: Notice


_COUNTED: Final = tuple(field.name for field in fields(CountedRun))
_ISSUE: Final = tuple(field.name for field in fields(Issue))


def noted_document(run: NotedRun) -> str:
    """Return the columns of an uncounted run, except tenant and id."""
    document = asdict(run)
    del document["tenant"], document["run_id"]
    return json.dumps(document)


def as_noted(tenant: str, run_id: str, text: str) -> NotedRun:
    """Read a stored uncounted run."""
    document = json.loads(text)
    decoded = {"mark": _mark(document["mark"]), "agents": tuple(document["agents"])}
    return NotedRun(tenant=Tenant(tenant), run_id=run_id, **(document | decoded))


def counted_row(run: CountedRun) -> tuple[object, ...]:
    """Return the columns of a counted run, in the order of its fields."""
    row = {name: getattr(run, name) for name in _COUNTED}
    encoded = {
        "agents": json.dumps(run.agents),
        "mark": None if run.mark is None else json.dumps(asdict(run.mark)),
    }
    return tuple((row | encoded).values())


def as_counted(row: Sequence[Any]) -> CountedRun:
    """Read the columns of a counted run."""
    values = dict(zip(_COUNTED, row, strict=True))
    mark = None if values["mark"] is None else _mark(json.loads(values["mark"]))
    return CountedRun(**(values | {"agents": tuple(json.loads(values["agents"])), "mark": mark}))


def issue_row(tenant: Tenant, issue: Issue) -> tuple[object, ...]:
    """Return the columns of an issue: tenant and id, then its fields in their order."""
    row = {name: getattr(issue, name) for name in _ISSUE}
    encoded = {"fingerprint": json.dumps(asdict(issue.fingerprint)), "runs": json.dumps(issue.runs)}
    return (tenant, issue.fingerprint.id, *(row | encoded).values())


def as_issue(row: Sequence[Any]) -> Issue:
    """Read the columns of an issue, except tenant and id."""
    values = dict(zip(_ISSUE, row, strict=True))
    decoded = {
        "fingerprint": Fingerprint(**json.loads(values["fingerprint"])),
        "state": IssueState(values["state"]),
        "runs": tuple(json.loads(values["runs"])),
    }
    return Issue(**(values | decoded))


def _mark(document: dict[str, Any] | None) -> Fingerprint | None:
    return None if document is None else Fingerprint(**document)
