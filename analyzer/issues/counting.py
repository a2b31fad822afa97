"""What a verdict, a later verdict and a person's label do to the issues: the rules between the stores.

A run is counted in one issue at most, and once in the metrics, as soon as its verdict is
settled. A superseding verdict or a label moves it: its old count is withdrawn, and it is
counted in its new place. Synchronous; the caller passes the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from analyzer.agent_names import same_agent
from analyzer.issues.agent_counts import AgentCounts
from analyzer.issues.rows import CountedRun, NotedRow, NotedRun, noted_row
from analyzer.issues.store import DAY_NS, IssueStore
from analyzer.labels import Label, LabelKind
from analyzer.labels.store import LabelStore
from analyzer.recurrence import (
    Change,
    Fingerprint,
    Issue,
    IssueRules,
    fingerprint,
    mute,
    resolve,
    seen,
    withdrawn,
)
from analyzer.recurrence.notice import Notice, NoticeKind, safe_title
from analyzer.tallies import Exemplar, Move, RunCount
from analyzer.tallies.verdicts import exemplar_of
from collector_processor.analyst import Analysis
from collector_processor.otlp import Tenant
from collector_processor.runstore import RunStore
from collector_processor.stored import StoredVerdict
from collector_processor.stores import Flush, StoreError
from semconv.model import Blame, Status, Trajectory

_LABELS: Final = "labels"
_KINDS: Final = {Change.NEW: NoticeKind.NEW, Change.REGRESSED: NoticeKind.REGRESSED}
_PATIENCE_NS: Final = DAY_NS
"""How long a noted run waits for its verdict; what waits for longer will be analysed, and noted, again."""
MOVED_WITHIN_NS: Final = DAY_NS
"""How old a run's first settled verdict may be for a correction to move its counts in the metrics.

A counter has no past: if a person labels an old run today, Prometheus would count it as a run of today.
Issues and shares are stored by day and always corrected."""
_GROUP: Final = 100
"""Runs counted in one transaction; other processes wait to write meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The stores that runs, verdicts and labels are in."""

    issues: IssueStore
    verdicts: RunStore
    labels: LabelStore


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """A noted run whose verdict is durable."""

    noted: NotedRun
    run: CountedRun
    exemplar: Exemplar | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingRules:
    """How runs are counted, and who is told."""

    rules: IssueRules = field(default_factory=IssueRules)
    is_fair_sample: bool = True
    """Whether runs come in whatever their end; else no shares and no watches are kept."""
    targets: tuple[str, ...] = ()
    """Names of the receivers that are told of each change once."""
    clean: Callable[[str], str] = lambda _text: ""
    """What of a verdict's prose they are told."""


class IssueCounting:
    """Keeps issues in step with verdicts and labels."""

    def __init__(self, sources: Sources, rules: CountingRules) -> None:
        """Make it over the stores."""
        self._issues: Final = sources.issues
        self._verdicts: Final = sources.verdicts
        self._labels: Final = sources.labels
        self._rules: Final = rules
        self.counts: Final = AgentCounts(sources.issues)
        self._moves: list[Move] = []
        self.repetitions = 0
        """Failures of which nobody was told, since their issue had been told of; the process's."""

    def rows_of(
        self, tenant: Tenant, analyses: Iterable[tuple[Trajectory, Analysis]]
    ) -> tuple[NotedRow, ...]:
        """Return what is noted of analysed runs."""
        clean = self._rules.clean
        return tuple(noted_row(noted_run(tenant, *analysed, clean)) for analysed in analyses)

    def note(self, rows: Iterable[NotedRow], now_ns: int) -> None:
        """Remember runs whose verdicts are about to be committed, all or none.

        Raises:
            StoreError: the disk refuses.
        """
        with self._issues.transaction():
            self._issues.note(rows, now_ns)

    def settle(self, now_ns: int) -> int:
        """Count the noted runs whose verdicts are durable by now; return how many.

        Raises:
            StoreError: the disk refuses; what was counted before stays counted.
        """
        decided: list[_Decided] = []
        for noted in self._issues.pending(now_ns - _PATIENCE_NS):
            verdict = self._verdicts.current(noted.tenant, noted.run_id)
            if verdict is None or verdict.is_provisional:
                continue
            if not _is_of(noted, verdict) and not verdict.is_by_person:
                continue
            said = self._labels.labels(noted.tenant, noted.run_id)
            run = _run(noted, verdict)
            run = _said_of(run, said[0]) if said else run
            decided.append(_Decided(noted=noted, run=run, exemplar=exemplar_of(verdict)))
        for begin in range(0, len(decided), _GROUP):
            self._count_all(decided[begin : begin + _GROUP])
        return len(decided)

    def heed_labels(self) -> int:
        """Move the runs that were labelled since this was last done; return how many labels there were.

        Raises:
            StoreError: the disk refuses.
        """
        said = self._labels.since(self._issues.cursor(_LABELS))
        for number, label in said:
            with self._issues.transaction():
                run = self._issues.run(label.tenant, label.run_id)
                after = None if run is None else _said_of(run, label)
                if run is not None and after is not None:
                    self._place(run, after)
                    self.counts.relabel(run, after)
                if number == said[-1][0] and self._rules.is_fair_sample:
                    self._owe(self.counts.put_right())
                self._issues.move_cursor(_LABELS, number)
            if run is not None and after is not None:
                self._moved(run, after, label.labelled_ns)
        return len(said)

    def take_moves(self) -> list[Move]:
        """Return the moves of runs in the metrics since the last call."""
        moves, self._moves = self._moves, []
        return moves

    def resolve(self, tenant: Tenant, issue_id: str, now_ns: int) -> Issue | None:
        """Close an issue; ``None`` where there is none of this id.

        Raises:
            StoreError: the disk refuses.
        """
        return self._change(tenant, issue_id, lambda issue: resolve(issue, now_ns))

    def mute(self, tenant: Tenant, issue_id: str, until_ns: int) -> Issue | None:
        """Tell nobody of an issue until then; ``None`` where there is none of this id.

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
            self._issues.write_issue(tenant, changed)
            return changed

    def _count_all(self, decided: Sequence[_Decided]) -> None:
        repetitions = self.repetitions
        moves: list[tuple[CountedRun | None, CountedRun, Exemplar | None]] = []
        try:
            # What a power cut takes is noted still, and counted then.
            with self._issues.transaction(Flush.LATER):
                for one in decided:
                    moves.append((*self._count(one.run, one.noted.text), one.exemplar))
                    self._issues.forget_pending(one.noted)
                self._owe(self.counts.put_right())
        except StoreError:
            self.repetitions = repetitions
            raise
        for before, after, exemplar in moves:
            self._moved(before, after, after.decided_ns, exemplar)

    def _moved(
        self, before: CountedRun | None, after: CountedRun, now_ns: int, exemplar: Exemplar | None = None
    ) -> None:
        if now_ns - after.settled_ns > MOVED_WITHIN_NS:
            return
        was, is_now = None if before is None else counts_as(before), counts_as(after)
        if was != is_now:
            self._moves.append(Move(before=was, after=is_now, exemplar=exemplar))

    def _count(self, run: CountedRun, text: str) -> tuple[CountedRun | None, CountedRun]:
        before = self._issues.run(run.tenant, run.run_id)
        after = run if before is None else replace(run, settled_ns=before.settled_ns)
        self._place(before, after, text)
        if self._rules.is_fair_sample:
            self._owe(self.counts.move(before, after))
        return before, after

    def _place(self, before: CountedRun | None, run: CountedRun, text: str = "") -> None:
        """Count a run where it belongs and nowhere else, and keep it."""
        mark = where_it_belongs(run)
        place = None if mark is None else mark.id
        was = None if before is None else before.issue_id
        if was is not None and was != place:
            self._withdraw(run.tenant, was, run.run_id)
        if mark is not None and was != place:
            self._see(run, mark, text)
        self._issues.write_run(replace(run, issue_id=place))

    def _withdraw(self, tenant: Tenant, issue_id: str, run_id: str) -> None:
        issue = self._issues.issue(tenant, issue_id)
        left = None if issue is None else withdrawn(issue, run_id)
        if left is None:
            self._issues.drop_issue(tenant, issue_id)
        else:
            self._issues.write_issue(tenant, left)

    def _see(self, run: CountedRun, mark: Fingerprint, text: str) -> None:
        before = self._issues.issue(run.tenant, mark.id)
        found = seen(before, mark, run.run_id, run.decided_ns, self._rules.rules)
        self._issues.write_issue(run.tenant, found.issue)
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
        self._owe([notice])

    def _owe(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            for target in self._rules.targets:
                self._issues.owe(target, notice)


def where_it_belongs(run: CountedRun) -> Fingerprint | None:
    """Return the failure that a run counts as, after what a person said of it; ``None`` for none.

    A correction says who or where it was, not what: the run is withdrawn, and counted nowhere else.
    """
    match run.label:
        case None | LabelKind.CONFIRMED:
            return run.mark
        case LabelKind.CORRECTED:
            is_agent = run.label_agent is not None and same_agent(run.label_agent, run.blamed or "")
            return run.mark if is_agent and run.label_step in {None, run.step} else None
        case _:
            return None


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
        case LabelKind.REJECTED:
            agent, status = None, Status.UNDETERMINED.value
        case LabelKind.NOT_A_FAILURE:
            agent, status = None, Status.NO_FAILURE.value
        case _:
            pass
    return RunCount(service=run.service, status=status, agents=run.agents, blamed=agent, mode=mode)


def _said_of(run: CountedRun, label: Label) -> CountedRun:
    return replace(run, label=label.kind, label_agent=label.agent, label_step=label.step)


def noted_run(
    tenant: Tenant, trajectory: Trajectory, analysis: Analysis, clean: Callable[[str], str]
) -> NotedRun:
    """Return what of an analysis is counted, with what of its prose receivers may read."""
    attribution = analysis.attribution
    verdict = attribution.verdict
    is_error = attribution.status is Status.ERROR  # not looked at: it says nothing of any agent
    acted = dict.fromkeys(step.agent for step in trajectory.steps)
    if not isinstance(verdict, Blame) or not 0 <= verdict.step < len(trajectory.steps):
        return NotedRun(
            tenant=tenant,
            run_id=trajectory.run_id,
            status=attribution.status.value,
            agents=() if is_error else tuple(acted),
            blamed=verdict.agent if isinstance(verdict, Blame) else None,
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
    )
