"""Issues as metrics read at intervals, as counts of runs, and as a table on any terminal."""

from __future__ import annotations

import asyncio
import io
import json
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from rich.console import Console

from analyzer.cli.commands.issues import _table
from analyzer.cli.main import run
from analyzer.issues.issue_service import IssueCounts, IssueCountsReader, alarms_of, lows_of, standing_of
from analyzer.issues.recurrence import Fingerprint, Issue, IssueState
from analyzer.telemetry.metric_table import MAX_STANDING
from analyzer.telemetry.verdict_counters import Move, RunCount
from collector_processor.core.disk import StoreError
from collector_processor.core.records import Commit, VerdictSummary
from tests.issues import START, Bench, opened_issue_service
from tests.verdicts import stored_without_blame


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


UNREAD = VerdictSummary(ended_ns=0, decided_ns=START)


async def test_an_unreadable_run_counts_once_and_moves_when_it_is_analysed_later(
    tmp_path: Path,
) -> None:
    moves: list[Move] = []
    bench = Bench(folder=tmp_path)
    with opened_issue_service(bench, moved=moves.append, now_ns=lambda: START) as service:
        evicted = stored_without_blame("error", decided_ns=START, service="")
        for _ in range(2):
            bench.verdicts.commit(Commit(analysed=(), verdicts=(evicted,)))
            service.committed(UNREAD, evicted)
        assert moves == [Move(before=None, after=RunCount(service="", status="error"))]
        bench.judge(1, "clerk", version=2)
        service.committed(UNREAD, evicted)
        (_, moved) = moves
        assert moved.before == RunCount(service="", status="error")
        assert (moved.after.service, moved.after.status, moved.after.blamed) == (
            "shop",
            "attributed",
            "clerk",
        )
    bench.close()


DOCUMENT = {
    "id": "0123456789abcdef",
    "state": "new",
    "muted": False,
    "title": "researcher: made_up_data in web_search",
    "service": "solar",
    "count": 12,
    "trend": [{"count": number} for number in range(14)],
    "last_seen": "2026-11-21T18:00:00Z",
    "share": {
        "told": "25% [10%, 40%], by the method alone",
        "estimate": 0.25,
        "low": 0.1,
        "high": 0.4,
        "alarm": True,
    },
}


@pytest.mark.parametrize(("width", "has_bars"), [(80, False), (140, True)])
def test_a_narrow_terminal_shows_whole_agent_names_and_shorter_bars(width: int, has_bars: bool) -> None:
    screen = Console(file=io.StringIO(), width=width)
    screen.print(_table([DOCUMENT], is_wide=has_bars))
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    assert "researcher" in text
    assert ("14 days" in text) is has_bars


@pytest.mark.parametrize(("told", "seconds"), [("30m", 1_800), ("12h", 43_200), ("2w", 14 * 86_400)])
def test_a_muted_issue_is_muted_for_as_long_as_was_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], told: str, seconds: int
) -> None:
    bench = Bench(folder=tmp_path)
    bench.judge(1, "clerk", at=time.time_ns())
    (issue,) = bench.all(time.time_ns())
    bench.close()
    begun_ns = time.time_ns()
    asked = ["issues", "mute", issue.fingerprint.id, "--for", told, "--format", "json"]
    assert run([*asked, "--data-dir", str(tmp_path)]) == 0
    until = datetime.fromisoformat(json.loads(capsys.readouterr().out)["muted_until"]).timestamp()
    assert 0 <= until - begun_ns / 10**9 - seconds + 1 < 60
