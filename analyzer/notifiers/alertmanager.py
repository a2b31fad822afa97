"""What stands now, as Alertmanager's API v2 takes it. Pure.

An alert is a state, not a message: it is said again and again while it holds, with an end
a few minutes off, so that one that nobody says any longer ends by itself (as Prometheus does).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from analyzer.issues.agent_counts import Watched
from analyzer.notifiers.links import Links
from analyzer.present import plain
from analyzer.recurrence import Issue, IssueState
from analyzer.recurrence.notice import safe_title

MAX_ALERTS: Final = 500
"""In one request; the newest."""
_LABEL: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert that stands."""

    labels: tuple[tuple[str, str], ...]
    """What it is known by: the same labels are the same alert."""
    summary: str
    since_ns: int
    run_id: str


def of_issue(tenant: str, issue: Issue, now_ns: int) -> Alert | None:
    """Return the alert of an issue: while it is new, or has come back, and nobody muted it."""
    if issue.state not in {IssueState.NEW, IssueState.REGRESSED} or issue.is_muted(now_ns):
        return None
    mark = issue.fingerprint
    known_by = {
        "alertname": "BlamespanIssue",
        "severity": "ticket",
        "issue": mark.id,
        "tenant": tenant,
        "service": mark.service,
        "agent": mark.agent,
        "mode": mark.mode,
    }
    word = "new" if issue.state is IssueState.NEW else "came back"
    return Alert(
        labels=_labels(known_by),
        summary=plain(f"{safe_title(mark)} ({word})", 300),
        since_ns=issue.since_ns,
        run_id=issue.runs[0] if issue.runs else "",
    )


def of_watch(watched: Watched) -> Alert:
    """Return the alert of an agent that fails more than it did."""
    place = watched.place
    known_by = {
        "alertname": "BlamespanAgentFailsMore",
        "severity": "page",
        "tenant": place.tenant,
        "service": place.service,
        "agent": place.agent,
    }
    return Alert(
        labels=_labels(known_by),
        summary=plain(f"{place.agent} is to blame more often than it was", 300),
        since_ns=watched.alarm_ns,
        run_id=watched.run_id,
    )


def alerts_message(
    standing: Sequence[Alert], ended: Iterable[Alert], now_ns: int, hold_ns: int, links: Links
) -> bytes:
    """Return the body that says what stands and what has ended.

    Args:
        standing: what stands; it ends ``hold_ns`` from now unless it is said again.
        ended: what stood when this was last said.
        now_ns: now.
        hold_ns: as above.
        links: to our pages.
    """
    documents = [_document(alert, now_ns + hold_ns, links) for alert in standing[:MAX_ALERTS]]
    documents += [_document(alert, now_ns, links) for alert in ended]
    return json.dumps(documents).encode()


def _document(alert: Alert, ends_ns: int, links: Links) -> dict[str, Any]:
    document: dict[str, Any] = {
        "labels": dict(alert.labels),
        "annotations": {"summary": alert.summary},
        "startsAt": _iso(alert.since_ns),
        "endsAt": _iso(ends_ns),
    }
    if link := links.run(alert.run_id):
        document["generatorURL"] = link
        document["annotations"]["run"] = link
    return document


def _labels(known_by: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, shown) for name, value in known_by.items() if (shown := plain(value, _LABEL)))


def _iso(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, tz=UTC).isoformat(timespec="milliseconds")
