"""Counts runs in issues: the effect of a verdict, a later verdict and a person's label.

A run is counted in one issue at most, and once in the metrics, in the transaction of its verdict. A
superseding verdict or a label moves it: its old count is withdrawn, and it is counted again.
Synchronous; the caller passes the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from prometheus_client.samples import Exemplar

from analyzer.inquiry.match_agents import same_agent
from analyzer.issues.agent_counts import AgentCounts
from analyzer.issues.issue_store import DAY_NS, CountedRows, CountedRun, IssueStore, NotedRun
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.labels.run_label import Label, LabelKind
from analyzer.issues.recurrence import (
    Change,
    Fingerprint,
    Issue,
    Notice,
    NoticeKind,
    fingerprint,
    is_open,
    mute,
    resolve,
    safe_title,
    seen,
    withdrawn,
)
from analyzer.telemetry.verdict_counters import Move, RunCount, exemplar_of
from collector_processor.core.analysis import Analysis
from collector_processor.core.records import StoredVerdict
from collector_processor.otlp import Tenant
from semconv.model import UNFINISHED, Blame, Status, Trajectory

_LABELS: Final = "labels"
_KINDS: Final = {Change.NEW: NoticeKind.NEW, Change.REGRESSED: NoticeKind.REGRESSED}
MOVED_WITHIN_NS: Final = DAY_NS
"""Maximum age of a run's first settled verdict for a correction to move its counts in the metrics.

Counters have no past: if a person labels an old run today, Prometheus would count it as a run of today.
Issues and shares are stored by day and always corrected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingRules:
    """Rules for counting runs and notifying receivers."""

    is_fair_sample: bool = True
    """Whether runs arrive regardless of how they end; if not, no shares and no watches are kept."""
    targets: tuple[str, ...] = ()
    """Names of the receivers; each is notified of each change once."""


class IssueCounting:
    """Keeps issues in step with verdicts and labels, on one connection to the store."""

    def __init__(self, issues: IssueStore, labels: LabelStore, rules: CountingRules) -> None:
        self._issues: Final = issues
        self._labels: Final = labels
        self.rules: Final = rules
        self.counts: Final = AgentCounts(issues)
        self._moves: Final[deque[Move]] = deque()
        self.repetitions = 0
        """Number of failures without a notice, because their issue had already been reported."""

    def count(self, decided: Iterable[tuple[NotedRun, StoredVerdict]]) -> None:
        """Count analysed runs with their verdicts; call it in the transaction of the verdicts.

        Neither provisional verdicts nor analyses that led to no verdict are counted.
        """
        settled = [
            (noted, verdict)
            for noted, verdict in decided
            if not verdict.is_provisional and (_is_of(noted, verdict) or verdict.is_by_person)
        ]
        if not settled:
            return
        before, moves = self.repetitions, list[Move]()
        try:
            moves += self._count_settled(settled)
        finally:
            repeated, self.repetitions = self.repetitions - before, before
        self._issues.db.after_commit(partial(self._committed, moves, repeated))

    def _count_settled(self, settled: Sequence[tuple[NotedRun, StoredVerdict]]) -> Iterator[Move]:
        keys = list(dict.fromkeys((noted.tenant, noted.run_id) for noted, _ in settled))
        rows, said = CountedRows(self._issues, keys), self._labels.current(keys)
        runs = [_said_of(_run(*one), said.get((one[0].tenant, one[0].run_id))) for one in settled]
        rows.read_issues(_issues_of(runs))
        changes: list[tuple[CountedRun | None, CountedRun]] = []
        for (noted, verdict), run in zip(settled, runs, strict=True):
            before = rows.run((run.tenant, run.run_id))
            after = run if before is None else replace(run, settled_ns=before.settled_ns)
            self._place(rows, before, after, noted.text)
            changes.append((before, after))
            yield from self._moved(before, after, after.decided_ns, exemplar_of(verdict))
        rows.write()
        if self.rules.is_fair_sample:
            self._queue(self.counts.move(changes))
        self._queue(self.counts.recompute_corrected())

    def apply_labels(self) -> int:
        """Move the runs labelled since the last call to their new issues; return the number of labels.

        Raises:
            StoreError: the disk refuses.
        """
        with self._issues.transaction():
            said = self._labels.since(self._issues.cursor(_LABELS))
            rows = CountedRows(self._issues, [(label.tenant, label.run_id) for _, label in said])
            moves: list[Move] = []
            for number, label in said:
                run = rows.run((label.tenant, label.run_id))
                if run is not None:
                    after = _said_of(run, label)
                    self._place(rows, run, after)
                    self.counts.relabel(run, after)
                    moves += self._moved(run, after, label.labelled_ns)
                self._issues.move_cursor(_LABELS, number)
            rows.write()
            if said and self.rules.is_fair_sample:
                self._queue(self.counts.recompute_corrected())
            self._issues.db.after_commit(partial(self._committed, moves, 0))
        return len(said)

    def take_moves(self) -> list[Move]:
        """Return the changes to the metrics' counts since the last call; callable from any thread."""
        return [self._moves.popleft() for _ in range(len(self._moves))]

    def resolve(self, tenant: Tenant, issue_id: str, now_ns: int) -> Issue | None:
        """Close an issue; ``None`` if there is no issue with this id.

        Raises:
            StoreError: the disk refuses.
        """
        return self._change(tenant, issue_id, lambda issue: resolve(issue, now_ns))

    def mute(self, tenant: Tenant, issue_id: str, until_ns: int) -> Issue | None:
        """Mute an issue until the given time; ``None`` if there is no issue with this id.

        Raises:
            StoreError: the disk refuses.
        """
        return self._change(tenant, issue_id, lambda issue: mute(issue, until_ns))

    def _change(self, tenant: Tenant, issue_id: str, change: Callable[[Issue], Issue]) -> Issue | None:
        with self._issues.transaction():
            issue = self._issues.issue(tenant, issue_id)
            if issue is None:
                return None
            changed = change(issue)
            self._issues.write_issues([(tenant, changed)])
            return changed

    def _committed(self, moves: Iterable[Move], repetitions: int) -> None:
        self._moves.extend(moves)
        self.repetitions += repetitions

    def _moved(
        self, before: CountedRun | None, after: CountedRun, now_ns: int, exemplar: Exemplar | None = None
    ) -> Iterator[Move]:
        if now_ns - after.settled_ns > MOVED_WITHIN_NS:
            return
        was, is_now = None if before is None else counts_as(before), counts_as(after)
        if was != is_now:
            yield Move(before=was, after=is_now, exemplar=exemplar)

    def _place(self, rows: CountedRows, before: CountedRun | None, run: CountedRun, text: str = "") -> None:
        """Count a run in the issue it belongs to and in no other, and store it.

        A verdict that only newer rules move is counted in an open issue; it opens and reopens none.
        """
        mark = where_it_belongs(run)
        was = None if before is None else before.issue_id
        if mark is not None and was != mark.id and _is_moved_by_rules(before, run, mark):
            issue = rows.issue((run.tenant, mark.id))
            mark = mark if issue is not None and is_open(issue, run.decided_ns) else None
        place = None if mark is None else mark.id
        if was is not None and was != place:
            _withdraw(rows, (run.tenant, was), run.run_id)
        if mark is not None and was != place:
            self._see(rows, run, mark, text)
        rows.set_run(replace(run, issue_id=place))

    def _see(self, rows: CountedRows, run: CountedRun, mark: Fingerprint, text: str) -> None:
        before = rows.issue((run.tenant, mark.id))
        found = seen(before, mark, run.run_id, run.decided_ns)
        rows.set_issue(run.tenant, found.issue)
        if found.change is None:
            self.repetitions += 1
            return
        notice = Notice(
            kind=_KINDS[found.change],
            tenant=run.tenant,
            at_ns=run.decided_ns,
            service=mark.service,
            agent=mark.agent,
            issue_id=mark.id,
            title=safe_title(mark),
            mode=mark.mode,
            run_id=run.run_id,
            text=text,
            count=found.issue.count,
        )
        self._queue([notice])

    def _queue(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            for target in self.rules.targets:
                self._issues.queue_notice(target, notice)


def _withdraw(rows: CountedRows, key: tuple[Tenant, str], run_id: str) -> None:
    issue = rows.issue(key)
    left = None if issue is None else withdrawn(issue, run_id)
    if left is None:
        rows.drop_issue(key)
    else:
        rows.set_issue(key[0], left)


def _is_moved_by_rules(before: CountedRun | None, run: CountedRun, mark: Fingerprint) -> bool:
    """Tell whether a run may count elsewhere only because newer rules judged it, now or the last time."""
    if before is None or _statement(before) != _statement(run):
        return False
    if before.rules and run.rules and before.rules != run.rules:
        return True
    was = where_it_belongs(before)
    return before.issue_id is None and was is not None and was.id == mark.id


def _statement(run: CountedRun) -> tuple[str | None, str | None, int | None]:
    return run.label, run.label_agent, run.label_step


def _issues_of(runs: Iterable[CountedRun]) -> Iterator[tuple[Tenant, str]]:
    """Yield the issues that runs belong to."""
    for run in runs:
        mark = where_it_belongs(run)
        if mark is not None:
            yield run.tenant, mark.id


def where_it_belongs(run: CountedRun) -> Fingerprint | None:
    """Return the failure that a run counts as, given any person's label; ``None`` if it is not a failure.

    A correction to another agent or step names no failure mode, so the run is withdrawn from its issue and
    counted in no other.
    """
    match run.label:
        case None:
            return run.mark
        case LabelKind.CONFIRMED:
            return _proved(run.mark)
        case LabelKind.CORRECTED:
            is_agent = run.label_agent is not None and same_agent(run.label_agent, run.blamed or "")
            return _proved(run.mark) if is_agent and run.label_step in {None, run.step} else None
        case _:
            return None


def _proved(mark: Fingerprint | None) -> Fingerprint | None:
    """Return a failure that a person confirmed: it is no longer a suspicion."""
    return None if mark is None else replace(mark, is_suspected=False)


def counts_as(run: CountedRun) -> RunCount:
    """Return the label values under which the metrics count a run, its label included."""
    agent, status = run.blamed, run.status
    mode = "" if run.mark is None else run.mark.mode
    match run.label:
        case LabelKind.CORRECTED:
            named = run.label_agent or run.blamed
            agent = next((one for one in run.agents if named and same_agent(one, named)), named)
            mode = mode if agent == run.blamed and run.label_step in {None, run.step} else ""
            status = Status.ATTRIBUTED.value
        case LabelKind.CONFIRMED if status == Status.SUSPECTED:
            status = Status.ATTRIBUTED.value
        case LabelKind.REJECTED:
            agent, status = None, Status.UNDETERMINED.value
        case LabelKind.NOT_A_FAILURE:
            agent, status = None, Status.NO_FAILURE.value
        case _:
            pass
    return RunCount(service=run.service, status=status, agents=run.agents, blamed=agent, mode=mode)


def _said_of(run: CountedRun, label: Label | None) -> CountedRun:
    if label is None:
        return run
    return replace(run, label=label.kind, label_agent=label.agent, label_step=label.step)


def noted_run(
    tenant: Tenant, trajectory: Trajectory, analysis: Analysis, clean: Callable[[str], str]
) -> NotedRun:
    """Return the counted part of an analysis, with the prose that receivers may read."""
    attribution = analysis.attribution
    verdict = attribution.verdict
    # Not analysed, or without a result: it says nothing about any agent.
    is_without_result = attribution.status in {Status.ERROR, *UNFINISHED}
    acted = dict.fromkeys(step.agent for step in trajectory.steps)
    if not isinstance(verdict, Blame) or not 0 <= verdict.step < len(trajectory.steps):
        return NotedRun(
            tenant=tenant,
            run_id=trajectory.run_id,
            status=attribution.status.value,
            agents=() if is_without_result else tuple(acted),
            blamed=verdict.agent if isinstance(verdict, Blame) else None,
            rules=attribution.rules,
        )
    return NotedRun(
        tenant=tenant,
        run_id=trajectory.run_id,
        status=attribution.status.value,
        agents=tuple(dict.fromkeys((verdict.agent, *acted))),
        blamed=verdict.agent,
        step=verdict.step,
        mark=fingerprint("", verdict, trajectory.steps[verdict.step]),
        text=clean(verdict.reason),
        rules=attribution.rules,
    )


def _is_of(noted: NotedRun, verdict: StoredVerdict) -> bool:
    return (noted.status, noted.blamed) == (verdict.status, verdict.agent)


def _run(noted: NotedRun, verdict: StoredVerdict) -> CountedRun:
    return CountedRun(
        tenant=noted.tenant,
        run_id=noted.run_id,
        service=verdict.service,
        agents=noted.agents,
        blamed=noted.blamed,
        step=noted.step,
        mark=None if noted.mark is None else replace(noted.mark, service=verdict.service),
        issue_id=None,
        decided_ns=verdict.decided_ns,
        status=noted.status,
        settled_ns=verdict.decided_ns,
        rules=noted.rules,
    )
