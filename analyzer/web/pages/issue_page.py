"""Pages of recurring failures: their list, and one with its frequency, changes, advice and proofs. Not pure.

The trend is drawn as SVG: a bar per day with its count above, the first day and today below. Colours are the
style sheet's, as for the picture of a run (``picture.py``); it contains only our own numbers and dates.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from analyzer.history.changes import ChangePoint
from analyzer.inquiry.explanation import proof_command
from analyzer.inquiry.intervals import Interval
from analyzer.inquiry.verdict import FailureMode
from analyzer.issues.issue_store import DAY_NS
from analyzer.issues.recurrence import Issue, Share
from analyzer.issues.report import AgentShare, share_text
from analyzer.issues.workflow_reports import FixedWorkflow
from analyzer.records.proof_records import Remembered, Report, given_in, read_report
from analyzer.web.front import PageContext, routed
from analyzer.web.guard import require_stated_origin
from analyzer.web.reads.documents import RunRow
from analyzer.web.reads.issue_reads import ShownIssue
from analyzer.web.reads.run_query import MOST_ASKED, RunQuery
from analyzer.web.rendering import telling
from collector_processor.core.analysis import FILE
from collector_processor.otlp import Tenant
from collector_processor.store.small_tables import StoredProof
from semconv.model import Status, agent_in_prose

_MUTED_NS: Final = 7 * 24 * 3600 * 10**9
_MOST_ISSUES: Final = 200
_MOST_GOOD: Final = 20
WEEK: Final = 7
MOST_EXAMPLES: Final = 10
_KINDS: Final = {"llm": "a model call", "tool": "a tool call", "handoff": "a handoff"}
_ADVICE: Final[Mapping[str, str]] = {
    FailureMode.WRONG_COMPUTATION: "Let a tool compute, and have the agent state what the tool gave.",
    FailureMode.UNHANDLED_ERROR: (
        "Handle the error where it comes up: try again, try another way, or report the failure."
    ),
    FailureMode.IGNORED_RESULT: "See that the result is in the context, and that the agent must use it.",
    FailureMode.UNSUPPORTED_CLAIM: "Have claims name their source, and check that the source says so.",
    FailureMode.MISREAD_INPUT: "Make its input shorter or more regular, and have the agent restate it.",
    FailureMode.WRONG_TOOL_USE: "Describe the tool and its arguments more closely; refuse what does not fit.",
    FailureMode.BAD_PLAN: "Give the plan a check before it is carried out.",
    FailureMode.BAD_HANDOFF: "Say in the handoff what is wanted, and hand over what is needed for it.",
    FailureMode.INCOMPLETE_WORK: "State when the work is done, and check that before the run ends.",
    FailureMode.UNVERIFIED_RESULT: "Check the result before the agent goes on.",
    FailureMode.LOOP: "Limit how often a step may be repeated, and say what happens at the limit.",
    FailureMode.GAVE_UP: "Say what to try before giving up.",
    FailureMode.OFF_TASK: "Put the task into every prompt, and check the answer against it.",
}
"""General advice by failure mode; whether it applies depends on the runs."""
_DAY: Final = 24
_GAP: Final = 4
_TALLEST: Final = 72
_ABOVE: Final = 16
_BELOW: Final = 20
_DAY_S: Final = 86_400


def issue_pages(context: PageContext) -> list[web.RouteDef]:
    """Return the routes of the page of recurring failures."""
    return routed(
        context,
        ("GET", "/issues", _issues),
        ("GET", "/issues/{issue_id}", _issue),
        ("POST", "/issues/{issue_id}/resolve", _resolve),
        ("POST", "/issues/{issue_id}/mute", _mute),
    )


async def _issues(context: PageContext, request: web.Request) -> web.StreamResponse:
    source = context.pages.issues
    issues = None if source is None else await source.issues(context.tenant(request), _MOST_ISSUES)
    shown = issues or ()
    last = await context.pages.runs.rows([(one.tenant, one.issue.runs[0]) for one in shown if one.issue.runs])
    return await context.front.show(
        request,
        "issues.html",
        issues=issues,
        recurring=[issue for issue in shown if issue.issue.count > 1],
        single=[issue for issue in shown if issue.issue.count <= 1],
        last_runs={(row.key.tenant, row.key.run_id): row for row in last},
        now_ns=context.pages.now_ns(),
    )


async def _issue(context: PageContext, request: web.Request) -> web.StreamResponse:
    """Show one recurring failure; lists, runs and alerts link here."""
    source = context.pages.issues
    since = request.query.get("since", "").strip()
    wanted = context.tenant(request), request.match_info["issue_id"], since
    issues = await source.issue(*wanted) if source else ()
    if not issues:
        raise web.HTTPNotFound(text="no such issue\n")
    now_ns = context.pages.now_ns()
    views = [await _read_view(context, issue, now_ns) for issue in issues]
    return await context.front.show(request, "issue.html", views=views, now_ns=now_ns)


async def _read_view(context: PageContext, issue: ShownIssue, now_ns: int) -> IssueView:
    runs, mark = context.pages.runs, issue.issue.fingerprint
    proofs = Proofs(
        of_issue=await runs.proofs(issue.tenant, mark.id),
        of_service=await runs.proofs_of_service(issue.tenant, mark.service),
    )
    return issue_view(issue, await _examples(context, issue), await _good(context, issue), proofs, now_ns)


async def _examples(context: PageContext, issue: ShownIssue) -> Sequence[RunRow]:
    names = [(issue.tenant, run_id) for run_id in issue.issue.runs[:MOST_EXAMPLES]]
    return await context.pages.runs.rows(names)


async def _good(context: PageContext, issue: ShownIssue) -> RunRow | None:
    """Return the service's last run without a failure, if it is among the newest runs."""
    service = issue.issue.fingerprint.service
    asked = RunQuery(
        tenant=issue.tenant, statuses=(Status.NO_FAILURE,), service=service[:MOST_ASKED], limit=_MOST_GOOD
    )
    page = await context.pages.runs.page(asked)
    return next((row for row in page.rows if row.verdict.service == service), None)


async def _resolve(context: PageContext, request: web.Request) -> web.StreamResponse:
    require_stated_origin(request)
    source, form = context.pages.issues, await request.post()
    issue_id = request.match_info["issue_id"]
    if source is None or not await source.resolve(_owner(context, request, form), issue_id):
        raise web.HTTPNotFound(text="no such issue\n")
    raise web.HTTPSeeOther(_back(form, issue_id, "resolved"))


async def _mute(context: PageContext, request: web.Request) -> web.StreamResponse:
    """Mute an issue for a week; ``until=0`` in the form unmutes it."""
    require_stated_origin(request)
    source, form = context.pages.issues, await request.post()
    is_over = form.get("until") == "0"
    until_ns = 0 if is_over else context.pages.now_ns() + _MUTED_NS
    issue_id = request.match_info["issue_id"]
    if source is None or not await source.mute(_owner(context, request, form), issue_id, until_ns):
        raise web.HTTPNotFound(text="no such issue\n")
    raise web.HTTPSeeOther(_back(form, issue_id, "unmuted" if is_over else "muted"))


def _owner(context: PageContext, request: web.Request, form: Mapping[str, object]) -> Tenant:
    """Return the issue's tenant: from the request's header, else from the form."""
    return context.tenant(request) or Tenant(str(form.get("tenant", "")))


def _back(form: Mapping[str, object], issue_id: str, said: str) -> str:
    """Return the URL of the form's page, with the message to show."""
    page = f"/issues/{quote(issue_id, safe='')}" if form.get("on") == "issue" else "/issues"
    return f"{page}?said={said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command line to copy."""

    line: str
    is_whole: bool
    """Whether command and check are those of the last time; else the reader fills in placeholders."""
    is_kept: bool = True
    """Whether the run can be read; else the reader has to save one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownProof:
    """One result."""

    kind: str
    ended_ns: int
    report: Report


def shown_proofs(stored: Sequence[StoredProof]) -> tuple[ShownProof, ...]:
    """Return the results that can be read, in the given order."""
    found = ((proof, read_report(proof.fields)) for proof in stored)
    return tuple(
        ShownProof(kind=one.kind, ended_ns=one.ended_ns, report=report) for one, report in found if report
    )


UNSAVED: Final = "FILE"
"""Source of a run that is kept nowhere: a placeholder in commands."""


def source_of(document: Mapping[str, Any], name: str) -> str:
    """Return what a command reads a run from: ``name``, an id in the service's store, or a file.

    The store of ``blamespan run --open`` is gone with its page; there the document says where the run was
    saved, or that it was not.
    """
    return str(document[FILE] or UNSAVED) if FILE in document else name


def experiment_command(source: str, of_service: Sequence[StoredProof]) -> Command:
    """Return the command that proves the verdict on a run; ``of_service`` has the newest results first."""
    given = _given(of_service)
    line = proof_command(source) if given is None else given.line(source)
    return Command(line=line, is_whole=given is not None, is_kept=source != UNSAVED)


def backtest_command(source: str, of_service: Sequence[StoredProof]) -> Command:
    """Return the command that tries a fix on the runs of an issue, or of a file."""
    given = _given(of_service)
    if given is None:
        line = f"blamespan backtest {shlex.quote(source)} --check CHECK -- COMMAND"
        return Command(line=line, is_whole=False, is_kept=source != UNSAVED)
    return Command(line=shlex.join(["blamespan", *given.backtest(source)]), is_whole=True)


def _given(of_service: Sequence[StoredProof]) -> Remembered | None:
    return next((given for proof in of_service if (given := given_in(proof.fields)) is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A run broken by the failure."""

    row: RunRow
    quote: str
    """Evidence from the decisive step; empty if the verdict has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedRow:
    """A workflow before and after a fix, as text."""

    workflow: str
    at_ns: int
    passed: Compared
    broken: Compared
    verdict: str
    """``better``, ``worse`` or ``unclear``."""
    change: str
    """The change point among the runs around the fix; empty if there is none."""
    changed_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A share before and after a fix, as text."""

    before: str
    after: str
    difference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """Stored results of experiments and backtests, newest first."""

    of_issue: Sequence[StoredProof] = ()
    of_service: Sequence[StoredProof] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueView:
    """The page's data on one recurring failure."""

    one: ShownIssue
    what: str
    trend: str
    """SVG with all text escaped."""
    week: int
    """Failures of the last seven days, including today."""
    week_before: int
    share: str
    """Share of that week's runs that the agent broke, as text; empty if unknown."""
    changes: tuple[str, ...]
    fixed: tuple[FixedRow, ...]
    """Its workflows before and after a fix."""
    fix: str
    """The fix in the last run's verdict."""
    advice: str
    examples: tuple[Example, ...]
    forgotten: tuple[str, ...]
    """Broken runs that are no longer kept."""
    good: RunRow | None
    """A successful run of the service."""
    proofs: tuple[ShownProof, ...]
    """The last backtest of the issue."""
    experiment: Command
    """Proves the verdict on the last run."""
    backtest: Command
    """Tries a fix on the runs of the issue."""


def issue_view(
    issue: ShownIssue, rows: Sequence[RunRow], good: RunRow | None, proofs: Proofs, now_ns: int
) -> IssueView:
    """Return the view of an issue: its last kept runs, newest first, and a good run of its service."""
    known = {row.key.run_id for row in rows}
    share = issue.share
    last = rows[0].document if rows else {}
    return IssueView(
        one=issue,
        what=_what(issue.issue),
        trend=draw_trend(issue.trend, now_ns // DAY_NS) if issue.trend else "",
        week=sum(issue.trend[-WEEK:]),
        week_before=sum(issue.trend[-2 * WEEK : -WEEK]),
        share=share_text(share) if share is not None and share.blamed.n else "",
        changes=_changes(share) if share is not None else (),
        fixed=tuple(map(_fixed, issue.fix.workflows)) if issue.fix is not None else (),
        fix=next((str(row.document["fix"]) for row in rows if row.document.get("fix")), ""),
        advice=_ADVICE.get(issue.issue.fingerprint.mode, ""),
        examples=tuple(Example(row=row, quote=_quote(row.document)) for row in rows),
        forgotten=tuple(run_id for run_id in issue.issue.runs if run_id not in known),
        good=good,
        proofs=shown_proofs(proofs.of_issue),
        experiment=experiment_command(source_of(last, next(iter(issue.issue.runs), "")), proofs.of_service),
        backtest=backtest_command(source_of(last, issue.issue.fingerprint.id), proofs.of_service),
    )


def _what(issue: Issue) -> str:
    """Describe the failure in a sentence; the names come from the traces."""
    mark = issue.fingerprint
    where = _KINDS.get(mark.kind, "a step")
    at = f"{where} to {mark.tool}" if mark.tool else where
    how = f" with {mark.error}" if mark.error else ""
    named = f" ({mark.mode.replace('_', ' ')})" if mark.mode else ""
    does = "is suspected of breaking runs that report no failure" if mark.is_suspected else "breaks runs"
    return f"{agent_in_prose(mark.agent)} of {mark.service} {does} at {at}{how}{named}."


def _changes(share: AgentShare) -> tuple[str, ...]:
    """Compare this week with earlier ones and with other agents, if there is enough data."""
    if not share.blamed.n:
        return ()
    sentences = [
        f"Against its own four weeks before: {_times(share.against_past)}.",
        f"Against the other agents of its service: {_times(share.against_fellows)}.",
    ]
    if share.is_alarm:
        sentences.insert(0, "It fails more often than before: an alarm is active.")
    return tuple(sentences)


def _times(ratio: Share) -> str:
    often = f"blamed {ratio.estimate:.1f} times as often [{ratio.low:.1f}, {ratio.high:.1f}]"
    return often if ratio.low > 1 or ratio.high < 1 else f"{often}, not significant"


def _fixed(workflow: FixedWorkflow) -> FixedRow:
    """Return the texts of one workflow; the issue's own share is that of the runs that it breaks."""
    (spared, n), (later, more) = workflow.spared.before, workflow.spared.after
    interval = workflow.spared.difference
    return FixedRow(
        workflow=workflow.workflow,
        at_ns=workflow.at_ns,
        passed=_compared(workflow.whole.before, workflow.whole.after, workflow.whole.difference),
        broken=_compared(
            (n - spared, n), (more - later, more), Interval(low=-interval.high, high=-interval.low)
        ),
        verdict=workflow.whole.verdict,
        change=change_words(workflow.change) if workflow.change is not None else "",
        changed_ns=workflow.changed_ns,
    )


def _compared(before: tuple[int, int], after: tuple[int, int], difference: Interval) -> Compared:
    if not before[1] or not after[1]:
        told = "not known: no run with a known outcome on one side"
    else:
        points = 100 * (after[0] / after[1] - before[0] / before[1])
        told = f"{points:+.0f} points [{100 * difference.low:+.0f}, {100 * difference.high:+.0f}]"
    return Compared(before=share_words(before), after=share_words(after), difference=told)


def share_words(count: tuple[int, int]) -> str:
    """Return a count out of all runs with its share: ``20 of 30 (67 %)``."""
    return f"{count[0]:,} of {count[1]:,}" + (f" ({100 * count[0] / count[1]:.0f} %)" if count[1] else "")


def change_words(point: ChangePoint) -> str:
    """Return how the share of passing runs changes at a change point."""
    way = "fell" if point.is_drop else "rose"
    return f"{way} from {share_words(point.before)} to {share_words(point.after)}"


def _quote(verdict: Mapping[str, Any]) -> str:
    """Return the longest quote of the decisive step."""
    found = [one["quote"] for one in telling(verdict.get("evidence") or ()) if one["step"] == verdict["step"]]
    return max(found, key=len, default="")


def draw_trend(counts: Sequence[int], today: int) -> str:
    """Return failures per day as SVG, oldest first; the last is ``today``, in days since the epoch."""
    days = range(today - len(counts) + 1, today + 1)
    width, floor = _DAY * len(counts), _ABOVE + _TALLEST
    said = ", ".join(f"{_date(day)}: {count}" for day, count in zip(days, counts, strict=True))
    most = max([*counts, 1])
    bars = "".join(
        _bar(place * _DAY, count, round(_TALLEST * count / most)) for place, count in enumerate(counts)
    )
    return (
        f'<svg class="trend" width="{width}" height="{floor + _BELOW}" viewBox="0 0 {width} {floor + _BELOW}"'
        f' role="img" aria-label="failures a day: {said}">'
        f'<line x1="0" y1="{floor}" x2="{width}" y2="{floor}"/>{bars}'
        f'<text class="first" x="0" y="{floor + 15}">{_date(days[0])}</text>'
        f'<text class="last" x="{width}" y="{floor + 15}">today</text></svg>'
    )


def _bar(left: int, count: int, tall: int) -> str:
    if not count:
        return ""
    top = _ABOVE + _TALLEST - max(tall, 2)
    middle = left + _DAY // 2
    return (
        f'<rect x="{left + _GAP // 2}" y="{top}" width="{_DAY - _GAP}" height="{max(tall, 2)}" rx="2"/>'
        f'<text class="count" x="{middle}" y="{top - 4}">{_short_number(count)}</text>'
    )


def _short_number(count: int) -> str:
    """Format a count to fit above a bar."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 10_000 else f"{count // 1_000}k"


def _date(day: int) -> str:
    moment = datetime.fromtimestamp(day * _DAY_S, UTC)
    return f"{moment:%b} {moment.day}"
