"""A recurring failure: its identity, its life cycle, and the notices about it. Pure.

An issue is new, ongoing, resolved or regressed; any of these can be muted. A state machine over values: each
function takes an issue and returns the next. Alerts are for changes (a new issue, one that came back), never
for repetitions.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Final

from semconv.model import (
    Blame,
    Status,
    Step,
    agent_in_prose,
)

VERSION: Final = 1
"""Version of the hash's inputs; issues of another version are different issues."""
_MAX_WORDS: Final = 8
_ERROR_TYPE: Final = re.compile(r"\b[A-Za-z_][\w.]*(?:Error|Exception|Exceeded|Timeout|Interrupt|Failure)\b")
_STATUS: Final = re.compile(r"\b(?:HTTP|status|code)\W{0,3}(\d{3})\b", re.IGNORECASE)
_VARIABLE: Final = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+(?:[.,]\d+)*|'[^']*'|\"[^\"]*\"", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The identity of a recurring failure."""

    service: str
    agent: str
    mode: str
    """The failure mode; empty if the method names none."""
    kind: str
    """Kind of the decisive step."""
    tool: str
    """The tool called or the agent handed over to; empty for other kinds."""
    error: str
    """The type of error, without its variable parts; empty if there was no error."""
    version: int = VERSION
    is_suspected: bool = False
    """Whether its runs reported no failure and are only suspected; such issues are kept apart."""

    @property
    def id(self) -> str:
        """The issue's id: 16 hex digits, always the same for the same failure."""
        parts: tuple[str, ...] = (
            str(self.version),
            self.service,
            self.agent,
            self.mode,
            self.kind,
            self.tool,
            self.error,
        )
        parts += ("suspected",) if self.is_suspected else ()
        return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def title(self) -> str:
        """One line for people."""
        return _title(self, self.error)


def fingerprint(service: str, blame: Blame, step: Step) -> Fingerprint:
    """Return the identity of a failure.

    Args:
        service: the service that emitted the run.
        blame: the verdict; only its agent, its mode and whether it is a suspicion count.
        step: the decisive step.
    """
    return Fingerprint(
        service=service,
        agent=blame.agent,
        mode=blame.mode,
        kind=step.kind.value,
        tool=step.target or "",
        error=error_type(step.error),
        is_suspected=blame.status is Status.SUSPECTED,
    )


def error_type(error: str) -> str:
    """Return the kind of an error: its class or HTTP status, else its first words without variable parts."""
    if found := _ERROR_TYPE.search(error):
        return found[0].rpartition(".")[2]
    if found := _STATUS.search(error):
        return f"HTTP {found[1]}"
    return " ".join(_VARIABLE.sub("#", error).lower().split()[:_MAX_WORDS])


EXAMPLES: Final = 10
_FRESH_NS: Final = 86_400 * 10**9
"""Time for which an issue is new or regressed before it becomes ongoing."""
_QUIET_NS: Final = 14 * _FRESH_NS
"""Time without failures after which an issue is resolved automatically."""


class IssueState(StrEnum):
    """State of an issue."""

    NEW = "new"
    ONGOING = "ongoing"
    RESOLVED = "resolved"
    REGRESSED = "regressed"


class Change(StrEnum):
    """A change of an issue that receivers are notified of."""

    NEW = "new"
    REGRESSED = "regressed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One recurring failure."""

    fingerprint: Fingerprint
    state: IssueState = IssueState.NEW
    since_ns: int
    """Time at which it entered its state."""
    first_ns: int
    last_ns: int
    count: int = 1
    """Number of runs that it broke since it was opened."""
    runs: tuple[str, ...] = ()
    """The latest of these runs, newest first."""
    muted_until_ns: int = 0

    def is_muted(self, now_ns: int) -> bool:
        """Return whether the issue is muted now."""
        return now_ns < self.muted_until_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An issue after one more failure, and the notice it causes."""

    issue: Issue
    change: Change | None = None


def seen(issue: Issue | None, mark: Fingerprint, run_id: str, now_ns: int) -> Seen:
    """Add one more failure; adding the same run again changes nothing."""
    if issue is None:
        first = Issue(fingerprint=mark, since_ns=now_ns, first_ns=now_ns, last_ns=now_ns, runs=(run_id,))
        return Seen(issue=first, change=Change.NEW)
    if run_id in issue.runs:
        return Seen(issue=issue)
    aged = age(issue, now_ns)
    counted = replace(
        aged, count=aged.count + 1, last_ns=max(aged.last_ns, now_ns), runs=(run_id, *aged.runs)[:EXAMPLES]
    )
    if aged.state is not IssueState.RESOLVED:
        return Seen(issue=counted)
    back = replace(counted, state=IssueState.REGRESSED, since_ns=now_ns)
    return Seen(issue=back, change=None if back.is_muted(now_ns) else Change.REGRESSED)


def age(issue: Issue, now_ns: int) -> Issue:
    """Return the issue in its present state, after the changes that are due by now."""
    if issue.state is IssueState.RESOLVED:
        return issue
    if now_ns - issue.last_ns >= _QUIET_NS:
        return replace(issue, state=IssueState.RESOLVED, since_ns=issue.last_ns + _QUIET_NS)
    if issue.state is not IssueState.ONGOING and now_ns - issue.since_ns >= _FRESH_NS:
        return replace(issue, state=IssueState.ONGOING, since_ns=issue.since_ns + _FRESH_NS)
    return issue


def is_open(issue: Issue, now_ns: int) -> bool:
    """Whether another failure of the issue is neither new nor a regression."""
    return age(issue, now_ns).state is not IssueState.RESOLVED


def is_resolved_by_hand(issue: Issue) -> bool:
    """Whether a person resolved the issue, not the time without failures."""
    return issue.state is IssueState.RESOLVED and issue.since_ns - issue.last_ns != _QUIET_NS


def withdrawn(issue: Issue, run_id: str) -> Issue | None:
    """Remove a counted failure whose verdict changed; return ``None`` if it was the only one."""
    if issue.count == 1:
        return None
    return replace(issue, count=issue.count - 1, runs=tuple(run for run in issue.runs if run != run_id))


def resolve(issue: Issue, now_ns: int) -> Issue:
    """Resolve the issue: a person says that it is fixed; another such failure is a regression."""
    return replace(issue, state=IssueState.RESOLVED, since_ns=now_ns)


def mute(issue: Issue, until_ns: int) -> Issue:
    """Mute the issue until the given time: no notices are sent, but failures are still counted."""
    return replace(issue, muted_until_ns=until_ns)


class NoticeKind(StrEnum):
    """The event that a notice reports."""

    NEW = "new"
    REGRESSED = "regressed"
    FAILS_MORE = "fails_more"
    """The watch on an agent raised its alarm."""
    CALM_AGAIN = "calm_again"
    """The watch on an agent ended its alarm."""
    EARLY = "early_warning"
    """A run that has not ended is likely to fail."""
    MORE = "more"
    """Further events, too many for a notice each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One notice."""

    kind: NoticeKind
    tenant: str
    at_ns: int
    service: str = ""
    agent: str = ""
    issue_id: str = ""
    """Id of the issue; empty if the notice is about an agent as a whole."""
    title: str = ""
    mode: str = ""
    run_id: str = ""
    text: str = ""
    """The verdict's prose, as far as the settings allow it to be sent."""
    count: int = 1
    """Number of failures of the issue; for ``MORE``, number of notices that it represents."""

    def to_json(self) -> str:
        """Return the notice as text to be stored."""
        return json.dumps(asdict(self), ensure_ascii=False)


def read_notice(text: str) -> Notice:
    """Read a notice written by ``to_json``."""
    document = json.loads(text)
    return Notice(**(document | {"kind": NoticeKind(document["kind"])}))


def safe_title(mark: Fingerprint) -> str:
    """Return the title without an error's text, except its class or status."""
    is_word = mark.error.isidentifier() or mark.error.startswith("HTTP ")
    return _title(mark, mark.error if is_word else "")


def _title(mark: Fingerprint, error: str) -> str:
    what = error or mark.mode.replace("_", " ") or "wrong step"
    where = f" in {mark.tool}" if mark.tool else ""
    return f"{agent_in_prose(mark.agent)}: {'suspected ' if mark.is_suspected else ''}{what}{where}"
