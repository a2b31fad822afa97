"""Sources of runs for coding agents: a running service, or a data directory without one. Not pure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from analyzer.api.client import Client, ServiceError
from analyzer.history.facts import Facts
from analyzer.history.run_diff import compare_runs
from analyzer.inquiry.whole_run import WholeRun
from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.kept_trace import NotKept, kept_trace, otlp_json, rebuilt
from analyzer.issues.labels.label_store import LabelStore
from analyzer.issues.labels.labelling import accept_label, find_run
from analyzer.issues.labels.run_label import Statement
from analyzer.issues.report import IssueReports, Wanted, to_json
from analyzer.issues.workflow_reports import (
    NO_WORKFLOW,
    NOT_FAIR,
    WorkflowRefused,
    WorkflowReports,
    listed_json,
    passing_facts,
)
from analyzer.issues.workflow_reports import to_json as workflow_json
from analyzer.recordings.read_files import read_recording
from analyzer.web.api import page_document, read_steps, run_document, versions_document
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.run_query import read_filters
from analyzer.web.reads.whole_runs import WholeRuns, find_nearest, require_short
from collector_processor.core.records import StoredVerdict
from collector_processor.core.runs import Run, workflow_of
from collector_processor.otlp import NO_TENANT, Signal, Tenant
from collector_processor.rebuild.kept_spans import KeptSpans
from collector_processor.rebuild.redaction import ALL_KINDS, Cleaner, Redact, make_redactor, redact
from collector_processor.store.database.connection import Database, StoreConnection, open_database
from collector_processor.store.verdicts import RunStore
from semconv.dialects import USUAL, Reader

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A run's spans, without their secrets."""

    otlp: bytes
    """One line of OTLP/JSON."""
    run: Run
    """The same, read."""


class RunSource(Protocol):
    """What a service knows, as JSON; methods raise ``AnalyzerError`` or ``CollectorError``."""

    async def runs(self, filters: Mapping[str, str]) -> Document:
        """Return a page of runs, by the filters of the API."""
        ...

    async def run(self, run_id: str) -> Document:
        """Return a run's verdict."""
        ...

    async def steps(self, run_id: str, first: int, limit: int) -> Document:
        """Return a run with some of its steps."""
        ...

    async def kept(self, run_id: str) -> KeptRun:
        """Return a run's spans."""
        ...

    async def compare(self, left: str, right: str | None) -> Document:
        """Return two runs compared; without ``right``, with the nearest run of the workflow."""
        ...

    async def issues(self, limit: int) -> Document:
        """Return recurring failures."""
        ...

    async def workflows(self) -> Document:
        """Return how often workflows succeed."""
        ...

    async def workflow(self, service: str, workflow: str) -> Document:
        """Return a workflow with what it always does."""
        ...

    async def passing_facts(self, run_id: str, run: Run) -> Sequence[Facts] | None:
        """Return facts about the passing runs of a kept run's workflow; ``None`` if they are out of reach."""
        ...

    async def label(self, run_id: str, statement: Statement) -> Document:
        """Store a label."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSource:
    """A running service."""

    client: Client
    reader: Reader = USUAL
    """Reads the spans of kept runs."""

    async def runs(self, filters: Mapping[str, str]) -> Document:
        """As ``RunSource.runs``."""
        return asdict(await asyncio.to_thread(lambda: self.client.runs(**filters)))

    async def run(self, run_id: str) -> Document:
        """As ``RunSource.run``."""
        return asdict(await asyncio.to_thread(self.client.run, run_id))

    async def steps(self, run_id: str, first: int, limit: int) -> Document:
        """As ``RunSource.steps``."""
        return asdict(await asyncio.to_thread(lambda: self.client.steps(run_id, first=first, limit=limit)))

    async def kept(self, run_id: str) -> KeptRun:
        """As ``RunSource.kept``."""
        return await asyncio.to_thread(self._kept, run_id)

    def _kept(self, run_id: str) -> KeptRun:
        otlp = self.client.otlp(run_id)
        recording = read_recording(otlp)
        bodies = (recording.bodies(signal) for signal in (Signal.TRACES, Signal.LOGS))
        traces, logs = (b"".join(body) for body in bodies)
        run = rebuilt(KeptSpans(traces=traces, logs=logs), run_id, self.reader)
        if run is None:
            raise NotKept(f"run {run_id}: the kept spans hold no run")
        return KeptRun(otlp=otlp, run=run)

    async def compare(self, left: str, right: str | None) -> Document:
        """As ``RunSource.compare``."""
        return asdict(await asyncio.to_thread(self.client.compare, left, right))

    async def issues(self, limit: int) -> Document:
        """As ``RunSource.issues``."""
        return {
            "issues": [
                asdict(issue) for issue in await asyncio.to_thread(lambda: self.client.issues(limit=limit))
            ]
        }

    async def workflows(self) -> Document:
        """As ``RunSource.workflows``."""
        return {"workflows": [asdict(one) for one in await asyncio.to_thread(self.client.workflows)]}

    async def workflow(self, service: str, workflow: str) -> Document:
        """As ``RunSource.workflow``."""
        return asdict(await asyncio.to_thread(self.client.workflow, service, workflow))

    async def passing_facts(self, run_id: str, run: Run) -> Sequence[Facts] | None:  # noqa: ARG002
        """As ``RunSource.passing_facts``: the API serves rules in words, and no facts."""
        return None

    async def label(self, run_id: str, statement: Statement) -> Document:
        """As ``RunSource.label``."""
        is_failure = statement.agent is not None or statement.step is not None
        return asdict(
            await asyncio.to_thread(
                lambda: self.client.label(
                    run_id,
                    agent=statement.agent,
                    step=statement.step,
                    failed=is_failure,
                    why=statement.why or None,
                )
            )
        )


class StoreSource:
    """The store of a data directory; other processes may have it open too."""

    def __init__(
        self,
        place: Path | str,
        *,
        is_fair_sample: bool,
        tenant: Tenant = NO_TENANT,
        reader: Reader = USUAL,
        clean: Redact = redact,
    ) -> None:
        """Open the store.

        Args:
            place: the store.
            is_fair_sample: whether failures are not over-represented, so that shares are true.
            tenant: only its runs are read and labelled; empty for all tenants.
            reader: reads the spans of kept runs.
            clean: removes secrets from a person's reason.

        Raises:
            CollectorError: it cannot be used.
        """
        self._tenant = tenant
        self._reader = reader
        self._clean = clean
        self._database: Database = open_database(place)
        self._archive = RunArchive(self._database)
        self._kept_runs = WholeRuns(self._archive, Cleaner(make_redactor(ALL_KINDS, ())), reader)
        self._is_fair_sample = is_fair_sample

    def close(self) -> None:
        """Close the store."""
        self._archive.close()
        self._database.close()

    async def runs(self, filters: Mapping[str, str]) -> Document:
        """As ``RunSource.runs``."""
        query = read_filters(filters, self._tenant, time.time_ns())
        return page_document(await self._archive.page(query), query.sort)

    async def run(self, run_id: str) -> Document:
        """As ``RunSource.run``."""
        verdict = await asyncio.to_thread(self._find, run_id)
        versions = await self._archive.versions(verdict.tenant, verdict.run_id)
        return {**run_document(verdict), **versions_document(versions)}

    async def steps(self, run_id: str, first: int, limit: int) -> Document:
        """As ``RunSource.steps``."""
        verdict = await asyncio.to_thread(self._find, run_id)
        document = await read_steps(self._kept_runs, verdict, first, first + limit)
        if document is None:
            raise ServiceError(_NO_STEPS, 404)
        return document

    async def kept(self, run_id: str) -> KeptRun:
        """As ``RunSource.kept``."""

        def read() -> KeptRun:
            with _opened(self._database) as db:
                found = kept_trace(db, run_id, self._tenant or None, self._reader)
            return KeptRun(otlp=otlp_json(found.spans), run=found.run())

        return await asyncio.to_thread(read)

    async def compare(self, left: str, right: str | None) -> Document:
        """As ``RunSource.compare``."""
        verdict, first = await self._whole(left)
        if right is None:
            nearest = await find_nearest(self._archive, self._kept_runs, verdict, first)
            second, compared = nearest.whole, nearest.compared
        else:
            _, second = await self._whole(right)
            require_short(first, second)
            compared = 1
        return (await asyncio.to_thread(compare_runs, first, second, compared)).to_json()

    async def _whole(self, run_id: str) -> tuple[StoredVerdict, WholeRun]:
        verdict = await asyncio.to_thread(self._find, run_id)
        found = await self._kept_runs.of(verdict)
        if found is None:
            raise ServiceError(f"{_NO_STEPS}: {verdict.run_id}", 404)
        return verdict, found.whole

    async def issues(self, limit: int) -> Document:
        """As ``RunSource.issues``."""

        def read() -> Document:
            with _opened(self._database) as db:
                now_ns = time.time_ns()
                reports = IssueReports(IssueStore(db), is_fair_sample=self._is_fair_sample)
                issue_reports = reports.reports(Wanted(tenant=self._tenant or None, limit=limit), now_ns)
                return {"issues": [to_json(report, now_ns) for report in issue_reports]}

        return await asyncio.to_thread(read)

    async def workflows(self) -> Document:
        """As ``RunSource.workflows``."""
        return await asyncio.to_thread(self._workflows)

    async def workflow(self, service: str, workflow: str) -> Document:
        """As ``RunSource.workflow``."""
        return await asyncio.to_thread(self._workflow, service, workflow)

    async def passing_facts(self, run_id: str, run: Run) -> Sequence[Facts] | None:
        """As ``RunSource.passing_facts``."""

        def read() -> Sequence[Facts]:
            with _opened(self._database) as db:
                verdict = find_run(RunStore(db), run_id, self._tenant or None)
                return passing_facts(db, verdict.tenant, verdict.service, workflow_of(run.trace.spans))

        return await asyncio.to_thread(read)

    async def label(self, run_id: str, statement: Statement) -> Document:
        """As ``RunSource.label``."""

        def write() -> Document:
            with _opened(self._database) as db:
                verdicts, labels = RunStore(db), LabelStore(db)
                verdict = find_run(verdicts, run_id, self._tenant or None)
                label = accept_label(
                    labels, verdict, statement, time.time_ns(), verdicts=verdicts, clean=self._clean
                )
                return label.to_json()

        return await asyncio.to_thread(write)

    def _workflows(self) -> Document:
        with self._workflow_reports() as reports:
            workflow_reports = reports.reports(time.time_ns(), self._tenant or None)
            return {"workflows": [listed_json(report) for report in workflow_reports]}

    def _workflow(self, service: str, workflow: str) -> Document:
        with self._workflow_reports() as reports:
            now_ns = time.time_ns()
            row = reports.only(service, workflow, now_ns, self._tenant or None)
            if row is None:
                raise ServiceError(NO_WORKFLOW, 404)
            return workflow_json(reports.with_always(reports.report(row, now_ns)))

    @contextmanager
    def _workflow_reports(self) -> Iterator[WorkflowReports]:
        if not self._is_fair_sample:
            raise WorkflowRefused(NOT_FAIR)
        with _opened(self._database) as db:
            yield WorkflowReports(IssueStore(db))

    def _find(self, run_id: str) -> StoredVerdict:
        with _opened(self._database) as db:
            return find_run(RunStore(db), run_id, self._tenant or None)


_NO_STEPS: Final = "the steps of this run are not kept"


def _opened(database: Database) -> closing[StoreConnection]:
    return closing(database.connect())
