"""The pages with runs: real recordings, analysed, in real stores, behind the real server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from prometheus_client.registry import CollectorRegistry

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.opinions import LocalOpinions
from analyzer.inquiry.verdict import to_json
from analyzer.issues.beside_verdicts import text_row
from analyzer.issues.issue_store import DAY_NS, IssueStore
from analyzer.issues.labels.kept_run import pack, searched_text
from analyzer.issues.labels.label_store import LabelStore, PackedRun
from analyzer.issues.labels.labelling import AcceptedLabel, accept_label
from analyzer.issues.labels.run_label import Label, Statement
from analyzer.issues.recurrence import Fingerprint, Issue, IssueState, mute, resolve
from analyzer.issues.report import AgentShare
from analyzer.issues.workflow_reports import IssueFix
from analyzer.methods.attribution import Attributor
from analyzer.recordings.read_files import read_recording
from analyzer.recordings.uploads import read_runs, unpacked
from analyzer.web.api import Deleting
from analyzer.web.app import WebParts, web_server
from analyzer.web.front import Labels, Pages, TraceLink, shown_settings
from analyzer.web.probes import Probes
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.issue_reads import IssueReader, ShownIssue, WorkflowReader
from analyzer.web.reads.run_query import RunName
from analyzer.web.requested_analyses import Jobs
from collector_processor.core.disk import RUNS
from collector_processor.core.records import Commit, StoredVerdict
from collector_processor.core.runs import Run, RunTotals
from collector_processor.otlp import NO_TENANT, Address, Signal, Tenant
from collector_processor.rebuild.runs import total_up
from collector_processor.rebuild.stages import rebuild
from collector_processor.settings import load_settings
from collector_processor.store.database.connection import open_database
from collector_processor.store.deletion import delete_run, delete_tenant
from collector_processor.store.run_text import RunTextRows
from collector_processor.store.verdicts import RunStore
from semconv.model import Attribution, Blame, Status, Trace, Trajectory
from tests.shown import fixtures

NOW_NS: Final = 1_790_000_000 * 10**9
_APART_NS: Final = 97 * 10**9
TRACES: Final = TraceLink(template="http://jaeger.example:16686/trace/{trace_id}?uiFind={span_id}")
ANALYST: Final = RunAnalyst(attributor=Attributor())


def read_here(files: Sequence[bytes], reference: str) -> Sequence[Trajectory]:
    """Read uploads in this process, with their secrets."""
    found = unpacked(files)
    return read_runs(found.plain, lambda trajectory: trajectory, reference=reference, refused=found.refused)


@dataclass(slots=True, kw_only=True)
class IssueShelf(IssueReader):
    """Recurring failures in memory."""

    kept: dict[str, ShownIssue] = field(default_factory=dict)

    def add(
        self,
        mark: Fingerprint,
        state: IssueState,
        trend: tuple[int, ...],
        runs: tuple[str, ...],
        share: AgentShare | None = None,
        *,
        fix: IssueFix | None = None,
    ) -> str:
        began = next((day for day, count in enumerate(trend) if count), 0)
        issue = Issue(
            fingerprint=mark, state=state, since_ns=NOW_NS,
            first_ns=NOW_NS - (len(trend) - 1 - began) * DAY_NS, last_ns=NOW_NS,
            count=sum(trend), runs=runs,
        )  # fmt: skip
        self.kept[mark.id] = ShownIssue(tenant=NO_TENANT, issue=issue, trend=trend, share=share, fix=fix)
        return mark.id

    async def issues(self, _tenant: Tenant, limit: int) -> Sequence[ShownIssue]:
        return list(self.kept.values())[:limit]

    async def issue(self, _tenant: Tenant, issue_id: str, _since: str = "") -> Sequence[ShownIssue]:
        return [self.kept[issue_id]] if issue_id in self.kept else []

    async def of_runs(self, runs: Sequence[RunName]) -> Mapping[RunName, Issue]:
        of = {run_id: shown.issue for shown in self.kept.values() for run_id in shown.issue.runs}
        return {name: of[name[1]] for name in runs if name[1] in of}

    async def resolve(self, _tenant: Tenant, issue_id: str) -> bool:
        return self._change(issue_id, lambda issue: resolve(issue, NOW_NS))

    async def mute(self, _tenant: Tenant, issue_id: str, until_ns: int) -> bool:
        return self._change(issue_id, lambda issue: mute(issue, until_ns))

    def _change(self, issue_id: str, change: Any) -> bool:
        shown = self.kept.get(issue_id)
        if shown is not None:
            self.kept[issue_id] = replace(shown, issue=change(shown.issue))
        return shown is not None


@dataclass(slots=True, kw_only=True)
class Stage:
    """A data directory with runs, and the components that read and write it."""

    folder: Path
    verdicts: RunStore
    labels: LabelStore
    shown: int = 0
    issues: IssueShelf = field(default_factory=IssueShelf)

    async def add(
        self,
        trajectory: Trajectory,
        service: str,
        attribution: Attribution | None = None,
        totals: RunTotals | None = None,
        *,
        tenant: Tenant = NO_TENANT,
    ) -> str:
        """Analyse a run and store the result; later ones are newer."""
        told = attribution or (await ANALYST.analyse(trajectory)).attribution
        self.shown += 1
        verdict = replace(verdict_of(trajectory, told, service, self.shown), tenant=tenant)
        self.verdicts.commit(Commit(analysed=(), verdicts=(verdict,)))
        known = totals or total_up(Run(trace=Trace(spans=()), trajectory=trajectory))
        self.verdicts.totals.total([(tenant, trajectory.run_id, known)])
        packed = pack(trajectory, lambda text: text)
        assert packed is not None
        failed = told.status is not Status.NO_FAILURE
        run = PackedRun(tenant=tenant, run_id=trajectory.run_id, is_failure=failed, packed=packed)
        self.labels.keep([run], self.shown)
        self.index(trajectory, verdict)
        return trajectory.run_id

    def index(self, trajectory: Trajectory, verdict: StoredVerdict) -> None:
        """Write the searched text of a run, as the service does some seconds after its verdict."""
        rows = RunTextRows(self.verdicts._db)
        assert rows.create_index()
        rows.write([text_row(verdict, searched_text(trajectory, lambda text: text))])

    def parts(self, **fields: Any) -> WebParts:
        """Return the web server's parts over these stores."""
        database = open_database(self.folder / RUNS)
        pages = Pages(
            runs=RunArchive(database),
            clean=lambda trajectory: trajectory,
            jobs=Jobs(LocalOpinions(analyst=ANALYST), read_here),
            issues=self.issues,
            trace_link=TRACES,
            settings=shown_settings(load_settings({})),
            now_ns=self.now_ns,
        )
        parts = WebParts(
            probe=Probes(is_ready=lambda: True, metrics=CollectorRegistry()),
            find=self._find,
            labels=Labels(give=self._give, of=self._labels_of),
            deleting=Deleting(run=self._delete, tenant=self._delete_tenant),
            workflows=WorkflowReader(IssueStore(database.connect()), self.now_ns, is_fair_sample=True),
            pages=pages,
        )
        return replace(parts, **fields)

    def now_ns(self) -> int:
        """Return the time, later with each run."""
        return NOW_NS + self.shown * _APART_NS

    async def _delete(self, tenant: Tenant, run_id: str) -> bool:
        return delete_run(self.verdicts._db, tenant, run_id)

    async def _delete_tenant(self, tenant: Tenant) -> int:
        return delete_tenant(self.verdicts._db, tenant)

    async def _find(self, run_id: str) -> Sequence[StoredVerdict]:
        return self.verdicts.find(run_id)

    async def _give(self, verdict: StoredVerdict, statement: Statement) -> AcceptedLabel:
        return accept_label(self.labels, verdict, statement, NOW_NS)

    async def _labels_of(self, tenant: Tenant, run_id: str) -> Sequence[Label]:
        return self.labels.labels(tenant, run_id)


def open_stage(folder: Path) -> Stage:
    """Create a data directory without runs."""
    folder.mkdir(parents=True, exist_ok=True)
    return Stage(folder=folder, verdicts=RunStore(folder / RUNS), labels=LabelStore(folder / RUNS))


def verdict_of(trajectory: Trajectory, told: Attribution, service: str, number: int) -> StoredVerdict:
    """Return a stored verdict as the service writes it."""
    document = to_json(told, trajectory)
    blame = told.verdict if isinstance(told.verdict, Blame) else None
    return StoredVerdict(
        tenant=NO_TENANT,
        run_id=trajectory.run_id,
        version=1,
        failure_id=f"f{number}",
        status=told.status.value,
        agent=blame.agent if blame else None,
        step=blame.step if blame else None,
        span_id=document["span_id"],
        trace_id=document["trace_id"],
        service=service,
        is_provisional=False,
        decided_ns=NOW_NS + number * _APART_NS,
        document=json.dumps(document, ensure_ascii=False),
    )


async def with_recordings(stage: Stage, most: int = 60) -> None:
    """Add the frameworks' recorded runs."""
    for path in list(fixtures())[:most]:
        recording = read_recording(path.read_bytes())
        runs = rebuild(recording.traces, recording.bodies(Signal.LOGS))
        for run in runs:
            if run.trajectory.steps:
                service = path.name.partition(".")[0].partition("-")[0]
                await stage.add(run.trajectory, service, totals=total_up(run))


@asynccontextmanager
async def serving(parts: WebParts) -> AsyncIterator[str]:
    """Serve the pages; yields their address."""
    server = web_server(parts, Address(host="127.0.0.1", port=0))
    port = await server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop()
        close_parts(parts)


def close_parts(parts: WebParts) -> None:
    """Close what the server's parts read with."""
    assert parts.workflows is not None
    parts.pages.runs.close()
    parts.workflows.close()
