"""The executor, built from the settings, and the settings for its worker processes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.consulting import ThreadSteps
from analyzer.analyses.executor import Executor
from analyzer.analyses.job_client import JobAnalyst
from analyzer.analyses.pool import Pool, PoolSteps
from analyzer.analyses.prepare import Look
from analyzer.analyses.preparing import passed_by, preparer_of
from analyzer.analyses.worker_process import WorkerProcess, command_of
from analyzer.methods.learned.model_file import write_model
from analyzer.methods.learned.ranker import Ranker
from collector_processor.core.analysis import Analyst
from collector_processor.rebuild.redaction import Cleaner
from collector_processor.settings import Settings
from collector_processor.settings.machine import usable_cores

AnyAnalyst = TypeVar("AnyAnalyst", bound=Analyst)

COMMAND: Final = command_of("analyzer.analyses.preparing")
MOST_PROCESSES: Final = 8
"""Limit of the default; the setting may exceed it."""
NEEDED: Final = frozenset(
    {
        "asks_analyzers", "budget_usd_per_run", "early_false_alarms", "export_text", "failure_pattern",
        "keep_failed_bytes", "keep_passed_bytes", "mappings", "method", "model", "notify_text", "precision",
        "redact", "redact_patterns", "suspect_false_alarms",
    }
)  # fmt: skip
"""Settings that worker processes get: none is a secret. Worker processes call no model, but must
know whether there is one."""


def open_pool(settings: Settings, analyst: Analyst) -> Pool:
    """Return the pool of worker processes; none is started yet."""
    return Pool(_start_worker(settings, analyst), size=processes(settings))


def open_executor(settings: Settings, analyst: Analyst, cleaner: Cleaner, pool: Pool) -> Executor:
    """Return the executor that prepares traces, in threads and in worker processes."""
    return Executor(preparer_of(settings, analyst, _look_of(analyst), cleaner), pool)


def stepping_in(pool: Pool, analyst: AnyAnalyst) -> AnyAnalyst:
    """Return the analyst with the steps of its analyses in the pool."""
    if not isinstance(analyst, RunAnalyst):
        return analyst
    return replace(analyst, stepping=PoolSteps(pool, ThreadSteps(analyst.steps)))


def processes(settings: Settings, cores: Callable[[], float] = usable_cores) -> int:
    """Return the number of worker processes, without the one for large traces.

    By default one fewer than cores, 1 to 8, and not above ``concurrency``.
    """
    if settings.analysis_processes is not None:
        return settings.analysis_processes
    return max(1, min(MOST_PROCESSES, settings.concurrency, int(cores()) - 1))


def worker_settings(settings: Settings, ranker: Ranker | None = None) -> bytes:
    """Return the settings for a worker process as JSON, with the ranker itself: its file may change."""
    needed = settings.model_dump(mode="json", include=set(NEEDED))
    return json.dumps([needed, None if ranker is None else write_model(ranker)]).encode()


def _look_of(analyst: Analyst) -> Look:
    match analyst:
        case RunAnalyst():
            return analyst.unasked
        case JobAnalyst():
            return passed_by(analyst.local.unasked)
        case _:
            return lambda _trajectory: None


def _start_worker(settings: Settings, analyst: Analyst) -> Callable[[], Awaitable[WorkerProcess]] | None:
    """Return a function that starts worker processes; ``None`` for an analyst that they do not know."""
    match analyst:
        case RunAnalyst():
            ranker = analyst.attributor.ranker
        case JobAnalyst():
            ranker = analyst.local.attributor.ranker
        case _:
            return None
    document = worker_settings(settings, ranker)

    async def start_worker() -> WorkerProcess:
        return await WorkerProcess.start(document, COMMAND)

    return start_worker
