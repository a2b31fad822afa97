"""The issue desk tells how each run is counted."""

from __future__ import annotations

from pathlib import Path

from analyzer.issue_desk import DeskParts, IssueDesk
from analyzer.issues.counting import CountingRules
from analyzer.issues.store import open_issues
from analyzer.labels.store import open_labels
from analyzer.tallies import Move, RunCount
from collector_processor.otlp import NO_TENANT
from collector_processor.runstore import RUNS, RunStore
from collector_processor.stored import Commit, StoredVerdict
from collector_processor.writeback import Gist
from tests.issues import START, judged
from tests.verdicts import stored, stored_without_blame

UNREAD = Gist(acting=(), ended_ns=0, decided_ns=START)


def commit(folder: Path, verdict: StoredVerdict) -> None:
    store = RunStore(folder / RUNS)
    store.commit(Commit(analysed=(), verdicts=(verdict,)))
    store.close()


async def test_a_run_that_could_not_be_read_counts_once_and_moves_when_it_is_analysed_after_all(
    tmp_path: Path,
) -> None:
    moves: list[Move] = []
    parts = DeskParts(
        store=open_issues(tmp_path), rules=CountingRules(), moved=moves.append, now_ns=lambda: START
    )
    desk = IssueDesk(parts, lambda: RunStore(tmp_path / RUNS), open_labels(tmp_path))
    try:
        evicted = stored_without_blame("error", decided_ns=START, service="")
        commit(tmp_path, evicted)
        desk.committed(UNREAD, evicted)
        await desk.count_some()
        await desk.count_some()
        assert moves == [Move(before=None, after=RunCount(service="", status="error"))]
        await desk.keep(NO_TENANT, [judged(1, "clerk")])
        commit(tmp_path, stored(decided_ns=START, version=2, step=0))
        await desk.count_some()
        (_, moved) = moves
        assert moved.before == RunCount(service="", status="error")
        assert (moved.after.service, moved.after.status, moved.after.blamed) == (
            "shop",
            "attributed",
            "clerk",
        )
    finally:
        desk.close()
