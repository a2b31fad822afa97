"""A recurring failure as its page tells it: what breaks, how often, what changed, what to do. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analyzer.issues.report import AgentShare
from analyzer.issues.store import DAY_NS
from analyzer.measuring.significance import Interval, wilson
from analyzer.modes import FailureMode
from analyzer.present import counted
from analyzer.recurrence import Issue, Share
from analyzer.web.run_view import telling
from analyzer.web.sources import RunRow, ShownIssue
from analyzer.web.trend import draw_trend

WEEK: Final = 7
MOST_EXAMPLES: Final = 10
_KINDS: Final = {"llm": "a model call", "tool": "a tool call", "handoff": "a handoff"}
_ADVICE: Final[Mapping[str, str]] = {
    FailureMode.WRONG_COMPUTATION: "Let a tool compute, and have the agent state what the tool gave.",
    FailureMode.UNHANDLED_ERROR: (
        "Handle the error where it comes up: try again, take another way, or say that it failed."
    ),
    FailureMode.IGNORED_RESULT: "See that what came back is in the agent's context, and that it must use it.",
    FailureMode.UNSUPPORTED_CLAIM: "Have claims name their source, and check that the source says so.",
    FailureMode.MISREAD_INPUT: "Make what it reads shorter or more regular, and have it repeat what it read.",
    FailureMode.WRONG_TOOL_USE: "Describe the tool and its arguments more closely; refuse what does not fit.",
    FailureMode.BAD_PLAN: "Give the plan a check before it is carried out.",
    FailureMode.BAD_HANDOFF: "Say in the handoff what is wanted, and hand over what is needed for it.",
    FailureMode.INCOMPLETE_WORK: "State when the work is done, and check that before the run ends.",
    FailureMode.UNVERIFIED_RESULT: "Check the result before it goes on.",
    FailureMode.LOOP: "Bound how often a step may be repeated, and what happens then.",
    FailureMode.GAVE_UP: "Say what to try before giving up.",
    FailureMode.OFF_TASK: "Put the task into every prompt, and check the answer against it.",
}
"""What usually mends a mode; the runs say whether it would here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A run that it broke."""

    row: RunRow
    quote: str
    """What shows it, of the decisive step; empty where the verdict has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueView:
    """What the page tells of one recurring failure."""

    one: ShownIssue
    what: str
    trend: str
    """SVG, safe as it stands."""
    week: int
    """Failures of the last seven days, today among them."""
    week_before: int
    blamed: Interval | None
    """In what share of its runs the method blamed the agent in that week; ``None`` where it is not known."""
    changes: tuple[str, ...]
    fix: str
    """What would have been right in the last run; a verdict's words."""
    advice: str
    examples: tuple[Example, ...]
    forgotten: tuple[str, ...]
    """Runs it broke that are not kept any more."""
    good: RunRow | None
    """A run of the service that went well."""


def issue_view(one: ShownIssue, rows: Sequence[RunRow], good: RunRow | None, now_ns: int) -> IssueView:
    """Return what is told of an issue.

    Args:
        one: the issue.
        rows: its last runs as far as they are kept, the newest first.
        good: a run of its service that went well.
        now_ns: the time.
    """
    known = {row.key.run_id for row in rows}
    share = one.share
    return IssueView(
        one=one,
        what=_what(one.issue),
        trend=draw_trend(one.trend, now_ns // DAY_NS) if one.trend else "",
        week=sum(one.trend[-WEEK:]),
        week_before=sum(one.trend[-2 * WEEK : -WEEK]),
        blamed=wilson(share.blamed.hits, share.blamed.n) if share is not None and share.blamed.n else None,
        changes=_changes(share) if share is not None else (),
        fix=next((str(row.document["fix"]) for row in rows if row.document.get("fix")), ""),
        advice=_ADVICE.get(one.issue.fingerprint.mode, ""),
        examples=tuple(Example(row=row, quote=_quote(row.document)) for row in rows),
        forgotten=tuple(run_id for run_id in one.issue.runs if run_id not in known),
        good=good,
    )


def _what(issue: Issue) -> str:
    """Return in a sentence what breaks; its words are the traces' own."""
    mark = issue.fingerprint
    where = _KINDS.get(mark.kind, "a step")
    at = f"{where} to {mark.tool}" if mark.tool else where
    how = f" with {mark.error}" if mark.error else ""
    named = f" ({mark.mode.replace('_', ' ')})" if mark.mode else ""
    return f"{mark.agent} of {mark.service} breaks runs at {at}{how}{named}."


def _changes(share: AgentShare) -> tuple[str, ...]:
    """Return how this week compares, where it can be compared at all."""
    if not share.blamed.n:
        return ()
    told = [
        f"Against its own four weeks before: {_times(share.against_past)}.",
        f"Against the other agents of its service: {_times(share.against_fellows)}.",
    ]
    if share.is_alarm:
        told.insert(0, "It fails more often than it did: an alarm stands.")
    return tuple(told)


def _times(ratio: Share) -> str:
    often = f"blamed {ratio.estimate:.1f} times as often [{ratio.low:.1f}, {ratio.high:.1f}]"
    return often if ratio.low > 1 or ratio.high < 1 else f"{often}, which may be chance"


def _quote(verdict: Mapping[str, Any]) -> str:
    """Return the quote that shows it best: the longest of the decisive step's."""
    found = [one["quote"] for one in telling(verdict.get("evidence") or ()) if one["step"] == verdict["step"]]
    return max(found, key=len, default="")


def said_of_share(share: AgentShare) -> str:
    """Return how sure the share is, by people's labels."""
    if not share.labelled:
        return "by the method alone: nobody has said yet how often it is right"
    true = share.share
    return (
        f"by {counted(share.labelled, 'label')}, it was truly to blame in"
        f" {true.estimate:.0%} [{true.low:.0%}, {true.high:.0%}]"
    )
