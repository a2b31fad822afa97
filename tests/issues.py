"""Issues over a real store: tests decide verdicts and labels, and read the counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analyzer.issues.beside_verdicts import AnalysedRun, BesideVerdicts
from analyzer.issues.counting import CountingRules, IssueCounting, noted_run
from analyzer.issues.issue_service import IssueService
from analyzer.issues.issue_store import IssueStore, NotedRun
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.labels.run_label import Label, LabelKind
from analyzer.issues.recurrence import Issue
from analyzer.issues.report import IssueReports, Wanted
from analyzer.web.reads.issue_reads import IssueReader
from collector_processor.core.analysis import Analysis
from collector_processor.core.disk import RUNS
from collector_processor.core.records import Commit, StoredVerdict
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.store.database.connection import StoreConnection, StorePlace, connected
from collector_processor.store.verdicts import RunStore
from semconv.model import Abstention, Attribution, Blame, Status, StepKind, Trajectory
from tests.runs import run, step
from tests.verdicts import stored

DAY = 86_400 * 10**9
START = 20_000 * DAY
"""A moment in 2024."""


@dataclass(slots=True)
class Bench:
    """The store of a data directory, and the components that write to it."""

    folder: Path
    place: StorePlace | None = None
    """Place of the store; by default the file in the folder."""
    rules: CountingRules = field(default_factory=CountingRules)
    clean: Callable[[str], str] = lambda _text: ""
    """The part of a verdict's prose that receivers may read."""
    db: StoreConnection = field(init=False)
    issues: IssueStore = field(init=False)
    verdicts: RunStore = field(init=False)
    labels: LabelStore = field(init=False)
    counting: IssueCounting = field(init=False)
    beside: BesideVerdicts = field(init=False)

    def __post_init__(self) -> None:
        self.db = connected(self.place or self.folder / RUNS)
        self.issues, self.verdicts, self.labels = IssueStore(self.db), RunStore(self.db), LabelStore(self.db)
        self.counting = IssueCounting(self.issues, self.labels, self.rules)
        self.beside = BesideVerdicts(self.db, self.labels, self.counting, lambda: START)
        self.verdicts.also = self.beside.write

    def close(self) -> None:
        self.db.close()

    def again(self) -> Bench:
        """Open it again, as after a restart."""
        self.close()
        return Bench(folder=self.folder, rules=self.rules, clean=self.clean)

    def noted(self, tenant: Tenant, trajectory: Trajectory, analysis: Analysis) -> NotedRun:
        """Return the counted part of an analysed run."""
        return noted_run(tenant, trajectory, analysis, self.clean)

    def note(self, number: int, agent: str | None, **fields: Any) -> None:
        trajectory, analysis = judged(number, agent, fields.get("judged_by", ""))
        noted = self.noted(fields.get("tenant", NO_TENANT), trajectory, analysis)
        self.beside.add(AnalysedRun(noted=noted, packed=None))

    def decided(
        self, number: int, agent: str | None, version: int, at: int
    ) -> tuple[NotedRun, StoredVerdict]:
        """Return an analysed run and its verdict, not counted yet."""
        status = Status.NO_FAILURE if agent is None else Status.ATTRIBUTED
        noted = self.noted(NO_TENANT, *judged(number, agent))
        return noted, stored(
            run_id=f"run-{number}",
            agent=agent,
            status=status.value,
            decided_ns=at,
            step=0,
            version=version,
        )

    def commit(self, number: int, agent: str | None, *, at: int = START, **fields: Any) -> None:
        status = Status.NO_FAILURE if agent is None else Status.ATTRIBUTED
        verdict = stored(
            run_id=f"run-{number}", agent=agent, status=status.value, decided_ns=at, step=0, **fields
        )
        self.verdicts.commit(Commit(analysed=(), verdicts=(verdict,)))

    def judge(self, number: int, agent: str | None, *, at: int = START, **fields: Any) -> None:
        """Analyse, commit and count a run that fails because of an agent, or succeeds."""
        self.note(number, agent, **fields)
        fields.pop("judged_by", None)
        self.commit(number, agent, at=at, **fields)

    def say(self, number: int, kind: LabelKind, agent: str | None = None, step: int | None = None) -> None:
        label = Label(
            tenant=NO_TENANT,
            run_id=f"run-{number}",
            kind=kind,
            version=1,
            service="shop",
            labelled_ns=START,
            agent=agent,
            step=step,
        )
        self.labels.add(label)
        self.counting.apply_labels()

    def all(self, at: int = START, tenant: Tenant | None = None) -> Sequence[Issue]:
        reports = IssueReports(self.issues, is_fair_sample=self.rules.is_fair_sample)
        return [issue for _, issue in reports.issues(Wanted(tenant=tenant), at)]

    def counted(self) -> dict[str, int]:
        return {issue.fingerprint.agent: issue.count for issue in self.all()}


def judged(number: int, agent: str | None, rules: str = "") -> tuple[Trajectory, Analysis]:
    """Return a run of planner and clerk with a verdict that blames one of them, or none."""
    first = replace(step("clerk", kind=StepKind.TOOL), target="add", error="ValueError: 12 is not 13")
    trajectory = replace(run(first, step("planner")), run_id=f"run-{number}")
    if agent is None:
        verdict: Blame | Abstention = Abstention(status=Status.NO_FAILURE, reason="it did its task")
    else:
        place = next(one.index for one in trajectory.steps if one.agent == agent)
        verdict = Blame(agent=agent, step=place, reason="<b>It misread & lost it</b>", confidence=0.8)
    attribution = Attribution(run_id=trajectory.run_id, verdict=verdict, method="signals", rules=rules)
    return trajectory, Analysis(attribution=attribution, document="{}")


async def in_db(call: Callable[..., Any], *args: Any) -> Any:
    """Write at once, on this thread."""
    return call(*args)


@contextmanager
def opened_issue_reader(bench: Bench, now_ns: Callable[[], int]) -> Iterator[IssueReader]:
    """Open what pages and API read of the bench's issues."""
    opened = IssueReader(bench.counting, IssueStore(bench.folder / RUNS), in_db, now_ns)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def opened_issue_service(bench: Bench, **fields: Any) -> Iterator[IssueService]:
    """Open the issue service over the bench's store."""
    service = IssueService(
        counting=bench.counting,
        store=bench.issues,
        reader=IssueStore(bench.folder / RUNS),
        in_db=in_db,
        **fields,
    )
    try:
        yield service
    finally:
        service.close()
