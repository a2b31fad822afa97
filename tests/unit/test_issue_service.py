"""The issue service announces how each run is counted."""

from __future__ import annotations

from pathlib import Path

from analyzer.telemetry.verdict_counters import Move, RunCount
from collector_processor.core.records import Commit, VerdictSummary
from tests.issues import START, Bench, opened_issue_service
from tests.verdicts import stored_without_blame

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
