"""The life of a recurring failure: new, ongoing, resolved, regressed; muted beside any of them.

A state machine over values: each function takes an issue and returns the next.
Alerts are for changes (a new issue, one that came back), never for repetitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from analyzer.recurrence.fingerprint import Fingerprint

EXAMPLES: Final = 10
_DAY_NS: Final = 86_400 * 10**9


class IssueState(StrEnum):
    """Where an issue stands."""

    NEW = "new"
    ONGOING = "ongoing"
    RESOLVED = "resolved"
    REGRESSED = "regressed"


class Change(StrEnum):
    """What somebody is to be told."""

    NEW = "new"
    REGRESSED = "regressed"


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueRules:
    """When one state becomes another by itself."""

    fresh_ns: int = _DAY_NS
    """How long an issue is new, or regressed, before it is ongoing."""
    quiet_ns: int = 14 * _DAY_NS
    """After so long without a failure it is resolved by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One recurring failure."""

    fingerprint: Fingerprint
    state: IssueState = IssueState.NEW
    since_ns: int
    """When it came into its state."""
    first_ns: int
    last_ns: int
    count: int = 1
    """Runs it broke, over all its life."""
    runs: tuple[str, ...] = ()
    """The last of them, newest first."""
    muted_until_ns: int = 0

    def is_muted(self, now_ns: int) -> bool:
        """Whether nobody wants to hear of it now."""
        return now_ns < self.muted_until_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An issue after one more failure, and what is to be told of it."""

    issue: Issue
    change: Change | None = None


def seen(issue: Issue | None, mark: Fingerprint, run_id: str, now_ns: int, rules: IssueRules) -> Seen:
    """Take note of one more failure; the same run again changes nothing.

    Args:
        issue: as it was; ``None`` if it was never seen.
        mark: what the failure is known by.
        run_id: the run it broke.
        now_ns: when.
        rules: when states change by themselves.
    """
    if issue is None:
        first = Issue(fingerprint=mark, since_ns=now_ns, first_ns=now_ns, last_ns=now_ns, runs=(run_id,))
        return Seen(issue=first, change=Change.NEW)
    if run_id in issue.runs:
        return Seen(issue=issue)
    aged = age(issue, now_ns, rules)
    counted = replace(
        aged,
        count=aged.count + 1,
        last_ns=max(aged.last_ns, now_ns),
        runs=(run_id, *aged.runs)[:EXAMPLES],
    )
    if aged.state is not IssueState.RESOLVED:
        return Seen(issue=counted)
    back = replace(counted, state=IssueState.REGRESSED, since_ns=now_ns)
    return Seen(issue=back, change=None if back.is_muted(now_ns) else Change.REGRESSED)


def age(issue: Issue, now_ns: int, rules: IssueRules) -> Issue:
    """Return the issue as it stands now, whatever time has done to it."""
    if issue.state is IssueState.RESOLVED:
        return issue
    if now_ns - issue.last_ns >= rules.quiet_ns:
        return replace(issue, state=IssueState.RESOLVED, since_ns=issue.last_ns + rules.quiet_ns)
    if issue.state is not IssueState.ONGOING and now_ns - issue.since_ns >= rules.fresh_ns:
        return replace(issue, state=IssueState.ONGOING, since_ns=issue.since_ns + rules.fresh_ns)
    return issue


def withdrawn(issue: Issue, run_id: str) -> Issue | None:
    """Take back a failure that was counted and whose verdict changed; ``None`` if it was the only one."""
    if issue.count == 1:
        return None
    return replace(issue, count=issue.count - 1, runs=tuple(run for run in issue.runs if run != run_id))


def resolve(issue: Issue, now_ns: int) -> Issue:
    """Somebody has mended it; another failure of the kind is a regression."""
    return replace(issue, state=IssueState.RESOLVED, since_ns=now_ns)


def mute(issue: Issue, until_ns: int) -> Issue:
    """Nobody is told of it until then; it is counted all the same."""
    return replace(issue, muted_until_ns=until_ns)
