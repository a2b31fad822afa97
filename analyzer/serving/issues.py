"""Recurring failures in the service: who counts them and has people told."""

from __future__ import annotations

from collections.abc import Callable

from analyzer.issue_desk import DeskParts, IssueDesk
from analyzer.issue_gauge import IssueCounts, IssueGauge
from analyzer.issues.store import open_issues
from analyzer.labels.store import open_labels
from analyzer.notifiers.opening import counting_rules, receivers_of
from analyzer.serving.lifetime import Lifetime
from analyzer.tallies import Move
from collector_processor.runstore import RUNS, RunStore
from collector_processor.settings import Settings


def start_issues(settings: Settings, lifetime: Lifetime, moved: Callable[[Move], None]) -> IssueDesk:
    """Start the desk; its thread has connections of its own to every store.

    Args:
        settings: all of them.
        lifetime: ends it.
        moved: called for each run counted or moved.
    """
    receivers = receivers_of(settings)
    desk = IssueDesk(
        DeskParts(
            store=open_issues(settings.data_dir),
            rules=counting_rules(settings, receivers),
            receivers=receivers,
            moved=moved,
        ),
        lambda: RunStore(settings.data_dir / RUNS),
        open_labels(settings.data_dir),
    )
    lifetime.stack.callback(desk.close)
    lifetime.background(desk.run())
    return desk


def count_issues(lifetime: Lifetime, desk: IssueDesk) -> Callable[[], IssueCounts]:
    """Have issues counted now and then; return what reads the counts."""
    gauge = IssueGauge(read=desk.counts)
    lifetime.background(gauge.run())
    return gauge.counts
