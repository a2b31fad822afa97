"""Issues over real stores in a folder: a test says what is judged and labelled, and reads what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analyzer.issues.counting import CountingRules, IssueCounting, Sources
from analyzer.issues.report import IssueReports, Wanted
from analyzer.issues.store import IssueStore, open_issues
from analyzer.labels import Label, LabelKind
from analyzer.labels.store import LabelStore, open_labels
from analyzer.recurrence import Issue
from collector_processor.analyst import Analysis
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.runstore import RUNS, RunStore
from collector_processor.stored import Commit
from semconv.model import Abstention, Attribution, Blame, Status, StepKind, Trajectory
from tests.runs import run, step
from tests.verdicts import stored

DAY = 86_400 * 10**9
START = 20_000 * DAY
"""A moment in 2024."""


@dataclass(slots=True)
class Bench:
    """All stores of a data directory, and what writes into them."""

    folder: Path
    rules: CountingRules = field(default_factory=CountingRules)
    issues: IssueStore = field(init=False)
    verdicts: RunStore = field(init=False)
    labels: LabelStore = field(init=False)
    counting: IssueCounting = field(init=False)

    def __post_init__(self) -> None:
        self.issues = open_issues(self.folder)
        self.verdicts = RunStore(self.folder / RUNS)
        self.labels = open_labels(self.folder)
        sources = Sources(issues=self.issues, verdicts=self.verdicts, labels=self.labels)
        self.counting = IssueCounting(sources, self.rules)

    def close(self) -> None:
        for store in (self.issues, self.verdicts, self.labels):
            store.close()

    def again(self) -> Bench:
        """As after a restart."""
        self.close()
        return Bench(folder=self.folder, rules=self.rules)

    def note(self, number: int, agent: str | None, *, at: int = START, **fields: Any) -> None:
        rows = self.counting.rows_of(fields.get("tenant", NO_TENANT), [judged(number, agent)])
        self.counting.note(rows, at)

    def commit(self, number: int, agent: str | None, *, at: int = START, **fields: Any) -> None:
        status = Status.NO_FAILURE if agent is None else Status.ATTRIBUTED
        verdict = stored(
            run_id=f"run-{number}", agent=agent, status=status.value, decided_ns=at, step=0, **fields
        )
        self.verdicts.commit(Commit(analysed=(), verdicts=(verdict,)))

    def judge(self, number: int, agent: str | None, *, at: int = START, **fields: Any) -> None:
        """Analyse, commit and count a run that an agent broke, or nobody."""
        self.note(number, agent, at=at, **fields)
        self.commit(number, agent, at=at, **fields)
        self.counting.settle(at)

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
        self.counting.heed_labels()

    def all(self, at: int = START, tenant: Tenant | None = None) -> Sequence[Issue]:
        reports = IssueReports(self.issues, is_fair_sample=self.rules.is_fair_sample)
        return [issue for _, issue in reports.issues(Wanted(tenant=tenant), at)]

    def counted(self) -> dict[str, int]:
        return {issue.fingerprint.agent: issue.count for issue in self.all()}


def judged(number: int, agent: str | None) -> tuple[Trajectory, Analysis]:
    """Return a run of planner and clerk, and a verdict that blames one of them, or nobody."""
    first = replace(step("clerk", kind=StepKind.TOOL), target="add", error="ValueError: 12 is not 13")
    trajectory = replace(run(first, step("planner")), run_id=f"run-{number}")
    if agent is None:
        verdict: Blame | Abstention = Abstention(status=Status.NO_FAILURE, reason="it did its task")
    else:
        place = next(one.index for one in trajectory.steps if one.agent == agent)
        verdict = Blame(agent=agent, step=place, reason="<b>It misread & lost it</b>", confidence=0.8)
    attribution = Attribution(run_id=trajectory.run_id, verdict=verdict, method="signals")
    return trajectory, Analysis(attribution=attribution, document="{}")
