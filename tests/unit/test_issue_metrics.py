"""Issues by state are read at intervals; the values stay until the next reading."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from analyzer.issues.issue_service import IssueCounts, IssueCountsReader, alarms_of, lows_of, standing_of
from analyzer.issues.recurrence import Fingerprint, Issue, IssueState
from analyzer.telemetry.metric_table import MAX_STANDING
from collector_processor.core.disk import StoreError


async def test_the_last_counts_stay_while_the_store_refuses(caplog: pytest.LogCaptureFixture) -> None:
    first = IssueCounts(states={"new": 1, "regressed": 0})
    last = IssueCounts(states={"new": 0, "regressed": 1})
    answers: list[IssueCounts | StoreError] = [first, StoreError("disk full"), last]
    read_all, seen = asyncio.Event(), list[IssueCounts]()

    async def read() -> IssueCounts:
        seen.append(gauge.counts())
        if not answers:
            read_all.set()
            await asyncio.Event().wait()
        answer = answers.pop(0)
        if isinstance(answer, StoreError):
            raise answer
        return answer

    gauge = IssueCountsReader(read=read, every_s=0)
    task = asyncio.create_task(gauge.run())
    await read_all.wait()
    task.cancel()
    assert seen == [IssueCounts(), first, first, last]
    assert [record.message for record in caplog.records] == ["issues cannot be counted"]


NOW_NS = 10**18
ISSUE = Issue(
    fingerprint=Fingerprint(
        service="shop", agent="clerk", mode="loop", kind="tool", tool="add", error="ValueError"
    ),
    since_ns=NOW_NS - 1,
    first_ns=1,
    last_ns=1,
)


def test_each_new_issue_has_a_series_until_it_is_old_or_muted() -> None:
    back = replace(ISSUE, fingerprint=replace(ISSUE.fingerprint, tool="divide"), state=IssueState.REGRESSED)
    quiet = [
        replace(ISSUE, state=IssueState.ONGOING),
        replace(ISSUE, state=IssueState.RESOLVED),
        replace(ISSUE, muted_until_ns=NOW_NS + 1),
    ]
    assert standing_of([*quiet, ISSUE, back], NOW_NS) == {
        ("shop", "clerk", "loop", ISSUE.fingerprint.id, "new"): 1,
        ("shop", "clerk", "loop", back.fingerprint.id, "regressed"): 1,
    }


def test_hostile_names_stay_short_on_one_line_and_few() -> None:
    hostile = "x" * 10_000 + "\n"
    marks = [
        replace(ISSUE.fingerprint, service=hostile, agent=hostile, mode=hostile, tool=str(number))
        for number in range(3 * MAX_STANDING)
    ]
    issues = [replace(ISSUE, fingerprint=mark, since_ns=place) for place, mark in enumerate(marks)]
    series = standing_of(issues, NOW_NS)
    assert len(series) == MAX_STANDING
    assert {labels[3] for labels in series} == {mark.id for mark in marks[-MAX_STANDING:]}, "the newest"
    assert {labels[2] for labels in series} == {"other"}
    assert max(len(text) for labels in series for text in labels) <= 80
    assert len(alarms_of((hostile, str(number)) for number in range(3 * MAX_STANDING))) == MAX_STANDING


def test_the_same_issue_of_two_tenants_is_one_series() -> None:
    assert list(standing_of([ISSUE, ISSUE], NOW_NS).values()) == [1]
    assert alarms_of([("shop", "clerk"), ("shop", "clerk")]) == {("shop", "clerk"): 1}


def test_agents_of_one_name_in_two_tenants_show_the_larger_share() -> None:
    assert lows_of([("shop", "clerk", 0.1), ("shop", "clerk", 0.3)]) == {("shop", "clerk"): 0.3}
    assert len(lows_of(("shop", str(number), 0.1) for number in range(3 * MAX_STANDING))) == MAX_STANDING
