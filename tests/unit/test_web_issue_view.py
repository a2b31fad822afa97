"""A recurring failure on its page, and the chart of its failures per day."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from analyzer.history.changes import ChangePoint, before_and_after
from analyzer.inquiry.intervals import Interval
from analyzer.issues.issue_store import DAY_NS
from analyzer.issues.recurrence import Count, Fingerprint, Issue, Share
from analyzer.issues.report import AgentShare
from analyzer.issues.workflow_reports import FixedWorkflow, IssueFix
from analyzer.web.pages.issue_page import FixedRow, IssueView, Proofs, draw_trend, issue_view
from analyzer.web.reads.documents import RunRow, row_of
from analyzer.web.reads.issue_reads import ShownIssue
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import NO_TENANT
from tests.web.showcase import FIX

NOW_NS = 20_000 * DAY_NS
MARK = Fingerprint(
    service="ferries", agent="south desk", mode="unhandled_error", kind="tool", tool="seats",
    error="TimeoutError",
)  # fmt: skip
ISSUE = Issue(fingerprint=MARK, since_ns=1, first_ns=1, last_ns=NOW_NS, count=3, runs=("b", "a"))
SHARE = AgentShare(
    blamed=Count(hits=3, n=10), labelled=0, share=Share(estimate=0.2, low=0.0, high=0.6), is_alarm=False,
    against_past=Share(estimate=4.0, low=2.0, high=8.0),
    against_fellows=Share(estimate=1.5, low=0.5, high=4.0),
)  # fmt: skip


def row(run_id: str, **fields: Any) -> RunRow:
    document = {"step": 2, "evidence": [], "fix": None, **fields}
    verdict = StoredVerdict(
        tenant=NO_TENANT, run_id=run_id, version=1, failure_id="f", status="attributed", agent="south desk",
        step=2, span_id=None, trace_id=None, service="ferries", is_provisional=False, decided_ns=NOW_NS,
        document=json.dumps(document),
    )  # fmt: skip
    return row_of(verdict)


def shown(*rows: RunRow, mark: Fingerprint = MARK, **fields: Any) -> IssueView:
    one = ShownIssue(tenant=NO_TENANT, issue=replace(ISSUE, fingerprint=mark), trend=(1,) * 14, **fields)
    return issue_view(one, rows, None, Proofs(), NOW_NS)


def test_one_sentence_says_what_breaks() -> None:
    assert shown().what == (
        "south desk of ferries breaks runs at a tool call to seats with TimeoutError (unhandled error)."
    )
    bare = Fingerprint(service="shop", agent="clerk", mode="", kind="other", tool="", error="")
    assert shown(mark=bare).what == "clerk of shop breaks runs at a step."
    assert shown(mark=bare).advice == ""


def fixed(before: Sequence[bool], after: Sequence[bool], spared: Sequence[bool] = ()) -> FixedRow:
    one = FixedWorkflow(
        service="ferries", workflow="crossings", at_ns=1, whole=before_and_after(before, after),
        spared=before_and_after(spared or before, after), change=None, changed_ns=None,
    )  # fmt: skip
    (row,) = shown(fix=IssueFix(since="2.1", workflows=(one,), releases=())).fixed
    return row


def test_a_fix_is_described_by_both_shares_and_their_difference() -> None:
    row = fixed([True, False] * 20, [True] * 38 + [False] * 2, [True] * 30 + [False] * 10)
    assert (row.passed.before, row.passed.after) == ("20 of 40 (50 %)", "38 of 40 (95 %)")
    assert row.passed.difference.startswith("+45 points [+")
    assert (row.broken.before, row.broken.after) == ("10 of 40 (25 %)", "2 of 40 (5 %)")
    assert row.broken.difference.startswith("-20 points [-")
    assert row.verdict == "better"


def test_a_side_without_runs_is_not_compared() -> None:
    row = fixed([True, False] * 20, [])
    assert (row.passed.after, row.verdict) == ("0 of 0", "unclear")
    assert row.passed.difference.startswith("not known")


def test_a_change_point_is_described_as_a_rise_or_a_fall() -> None:
    (workflow,) = FIX.workflows
    point = ChangePoint(
        place=30, before=(20, 30), after=(39, 40), difference=Interval(low=0.1, high=0.5), p_value=0.002
    )
    (rose,) = shown(fix=replace(FIX, workflows=(replace(workflow, change=point),))).fixed
    assert rose.change == "rose from 20 of 30 (67 %) to 39 of 40 (98 %)"
    fell = replace(point, before=(39, 40), after=(20, 30))
    (row,) = shown(fix=replace(FIX, workflows=(replace(workflow, change=fell),))).fixed
    assert row.change == "fell from 39 of 40 (98 %) to 20 of 30 (67 %)"


def test_weeks_are_counted_from_the_days() -> None:
    one = ShownIssue(tenant=NO_TENANT, issue=ISSUE, trend=(*range(7), *range(10, 17)))
    told = issue_view(one, (), None, Proofs(), NOW_NS)
    assert (told.week, told.week_before) == (sum(range(10, 17)), sum(range(7)))


def test_a_share_has_its_interval_and_says_where_it_comes_from() -> None:
    assert shown(share=SHARE).share == "20% [0%, 60%], by the method alone"
    assert shown(share=replace(SHARE, labelled=1)).share == "20% [0%, 60%], corrected by 1 label"
    assert shown(share=replace(SHARE, blamed=Count())).share == ""


def test_a_difference_that_may_be_chance_is_described_as_such() -> None:
    past, fellows = shown(share=SHARE).changes
    assert past == "Against its own four weeks before: blamed 4.0 times as often [2.0, 8.0]."
    assert fellows.endswith("[0.5, 4.0], not significant.")
    assert shown(share=replace(SHARE, is_alarm=True)).changes[0].startswith("It fails more often")
    assert shown().changes == ()


def test_an_example_is_quoted_from_its_decisive_step() -> None:
    evidence = [
        {"step": 2, "quote": "short"}, {"step": 2, "quote": "the whole line"}, {"step": 1, "quote": "x" * 99}
    ]  # fmt: skip
    told = shown(row("b", evidence=evidence), row("a", fix="Ask again."))
    assert [example.quote for example in told.examples] == ["the whole line", ""]
    assert told.fix == "Ask again."
    assert told.forgotten == ()
    assert shown(row("b")).forgotten == ("a",)


def test_days_are_drawn_with_their_numbers_and_described_in_words() -> None:
    drawing = draw_trend((0, 4, 1234), 20_000)
    heights = [int(tall) for tall in re.findall(r'<rect [^>]*height="(\d+)"', drawing)]
    assert heights == [2, 72]  # the smallest is seen too
    assert ">1.2k</text>" in drawing
    assert 'aria-label="failures a day: Oct 2: 0, Oct 3: 4, Oct 4: 1234"' in drawing
