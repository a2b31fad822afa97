"""Recurring failures: identity, life cycle and notices, and a detector of agents that fail more often. Pure.

An issue is new, ongoing, resolved or regressed; any of these can be muted. A state machine over values: each
function takes an issue and returns the next. Alerts are for changes (a new issue, one that came back), never
for repetitions.

The detector tests after every run, with bounded false alarms. A test that is repeated after each run needs a
stricter threshold, or it raises a false alarm sooner or later. This is the e-detector of J. Shin, A. Ramdas
and A. Rinaldo ("E-detectors", arXiv 2203.03532, section 3), of Shiryaev-Roberts kind: a bet is begun at every
run, and all bets are added up. While each bet is fair, the sum after n runs is n on average, so that the
chance that it ever reaches c within n runs is at most n / c (Ville's inequality for the sum
less n). ``threshold`` chooses c accordingly.

The normal share of failures is unknown; only the past share is known. Each bet is against the share predicted
for the next run from all runs so far, past and current (the predictive share under Jeffreys' prior): it is
fair on average over all shares that could have produced such a past, of any size. For a single share it is
only approximately fair, hence the margin in ``threshold``; ``benchmarks/alerting/alert_delay.py`` measures
the result.

The detector counts the method's verdicts. In a stable system the method is wrong in a
stable share of runs: its errors delay an alarm and never cause one.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
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


_DRAWS: Final = 2000
_SEED: Final = 1970
_Z_95: Final = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A number of hits in a number of trials."""

    hits: int = 0
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """An estimate with its 95 % interval."""

    estimate: float
    low: float
    high: float


def share_of(blamed: Count, rightly: Count, missed: Count) -> Share:
    """Return the share of runs in which an agent was to blame.

    Args:
        blamed: runs in which the method blames it, out of those in which it took part.
        rightly: runs in which it was to blame, out of the labelled ones in which the method blames it.
        missed: runs in which it was to blame, out of the labelled ones in which the method does not
            blame it.
    """
    chance = random.Random(_SEED)  # noqa: S311 - draws for an interval, not secrets
    draws = sorted(_draw(chance, blamed, rightly, missed) for _ in range(_DRAWS))
    return Share(estimate=draws[_DRAWS // 2], low=draws[int(_DRAWS * 0.025)], high=draws[int(_DRAWS * 0.975)])


def observed(blamed: Count) -> Share:
    """Return the share of runs in which the method blamed an agent, with its 95 % interval."""
    chance = random.Random(_SEED)  # noqa: S311 - draws for an interval, not secrets
    draws = sorted(_beta(chance, blamed) for _ in range(_DRAWS))
    share = blamed.hits / blamed.n if blamed.n else draws[_DRAWS // 2]
    return Share(
        estimate=share,
        low=min(share, draws[int(_DRAWS * 0.025)]),
        high=max(share, draws[int(_DRAWS * 0.975)]),
    )


def _draw(chance: random.Random, blamed: Count, rightly: Count, missed: Count) -> float:
    said = _beta(chance, blamed)
    return said * _beta(chance, rightly) + (1 - said) * _beta(chance, missed)


def _beta(chance: random.Random, count: Count) -> float:
    return chance.betavariate(count.hits + 0.5, count.n - count.hits + 0.5)


def compared(one: Count, other: Count) -> Share:
    """Return the ratio of two shares, with its 95 % interval.

    The ratio of two shares after D. Katz et al. (Biometrics 34, 1978), half a hit added to each, so that none
    is infinite. Used for an agent against its own past or against other agents, counted by the same method:
    its mistakes are in both counts, so a ratio of 1 stays 1.
    """
    first, second = (one.hits + 0.5) / (one.n + 1), (other.hits + 0.5) / (other.n + 1)
    spread = math.sqrt(1 / (one.hits + 0.5) - 1 / (one.n + 1) + 1 / (other.hits + 0.5) - 1 / (other.n + 1))
    ratio = first / second
    return Share(estimate=ratio, low=ratio * math.exp(-_Z_95 * spread), high=ratio * math.exp(_Z_95 * spread))


RATIOS: Final = (1.25, 1.5, 2.0, 3.0, 5.0)
"""Growth factors of the share that are bet on together, because the actual one is unknown."""
FALSE_ALARMS: Final = 0.03
"""Share of periods with a false alarm that the threshold is designed for; 0.05 is promised."""
_DOUBT: Final = 0.02
"""Highest probability of ending an alarm while the share is still doubled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One agent under watch."""

    known: Count
    """Runs in which the method blamed it, of those in which it took part: before the watch and during it."""
    sums: tuple[float, ...] = tuple(0.0 for _ in RATIOS)
    """Sums of the bets, one for each ratio."""
    is_alarm: bool = False
    calm_runs: int = 0
    """Runs since the agent was last blamed, during an alarm."""

    @property
    def expected(self) -> float:
        """The chance that it is blamed in the next run, if nothing has changed; above 0, below 1."""
        return (self.known.hits + 0.5) / (self.known.n + 1)

    @property
    def evidence(self) -> float:
        """The evidence of a change: about 1 per run without a change; grows without bound after one."""
        return sum(self.sums) / len(self.sums)


def observe(watch: Watch, limit: float, *, is_blamed: bool) -> Watch:
    """Add one more run in which the agent took part.

    Args:
        watch: the watch so far.
        limit: the evidence at which an alarm is raised (``threshold``).
        is_blamed: whether the method blames it.
    """
    if watch.is_alarm:
        return _in_alarm(watch, is_blamed=is_blamed)
    base = watch.expected
    sums = []
    for ratio, before in zip(RATIOS, watch.sums, strict=True):
        bet = min(base * ratio, (base + 1) / 2)
        factor = bet / base if is_blamed else (1 - bet) / (1 - base)
        sums.append((before + 1) * factor)
    known = Count(hits=watch.known.hits + is_blamed, n=watch.known.n + 1)
    after = replace(watch, sums=tuple(sums), known=known)
    return replace(after, is_alarm=after.evidence >= limit)


def _in_alarm(watch: Watch, *, is_blamed: bool) -> Watch:
    """End the alarm after a series of runs without blame that a doubled share would make improbable.

    The expected share is frozen when the alarm is raised, so that the failures do not become normal.
    """
    calm = 0 if is_blamed else watch.calm_runs + 1
    doubled = min(2 * watch.expected, (watch.expected + 1) / 2)
    if calm * math.log1p(-doubled) > math.log(_DOUBT):
        return replace(watch, calm_runs=calm)
    return Watch(known=watch.known)


def threshold(runs: int, agents: int) -> float:
    """Return the evidence at which to raise an alarm.

    Args:
        runs: expected number per agent, in the period for which false alarms are bounded.
        agents: number of agents watched together; a false alarm for any of them counts.
    """
    return max(runs, 1) * max(agents, 1) / FALSE_ALARMS
