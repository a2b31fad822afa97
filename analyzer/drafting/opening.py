"""Settings → what drafts. Called by the service, and by its process beside it."""

from __future__ import annotations

import json
from typing import Final

from analyzer.analyst import RunAnalyst
from analyzer.composition import carrier_policy, kept_texts, notice_text
from analyzer.drafting.drafter import Drafter
from analyzer.drafting.executor import DraftExecutor, StartWorker
from analyzer.drafting.tally import DraftTally
from analyzer.drafting.worker_process import WorkerProcess
from collector_processor.cleaning import Cleaner
from collector_processor.settings import Settings

NEEDED: Final = frozenset(
    {
        "carrier_min_confidence",
        "carrier_status",
        "carriers",
        "export_text",
        "failure_pattern",
        "method",
        "model",
        "notify_text",
        "redact",
        "redact_patterns",
        "web_url",
    }
)
"""The settings that the process beside the service is told: none is a secret, and it asks no model."""


def open_executor(
    settings: Settings, analyst: RunAnalyst, cleaner: Cleaner, tally: DraftTally
) -> DraftExecutor:
    """Return who drafts, and counts in ``tally``."""
    drafter = open_drafter(settings, analyst, cleaner)
    return DraftExecutor(drafter, _start_worker(settings), tally=tally)


def _start_worker(settings: Settings) -> StartWorker | None:
    """Return what starts processes; ``None`` where all is done in this one.

    A ranker's file may be another by the time that a process reads it.
    """
    if settings.analysis_process == "never" or settings.ranker is not None:
        return None
    told = told_settings(settings)

    async def start_worker() -> WorkerProcess:
        return await WorkerProcess.start(told)

    return start_worker


def told_settings(settings: Settings) -> bytes:
    """Return the settings for an analysis process as JSON, with the forwarded signals but no endpoints."""
    needed = settings.model_dump(mode="json", include=set(NEEDED))
    goes_on = {signal.value: {"endpoint": ""} for signal in settings.endpoints}
    return json.dumps({**needed, "endpoints": goes_on}).encode()


def open_drafter(settings: Settings, analyst: RunAnalyst, cleaner: Cleaner) -> Drafter:
    """Return what drafts verdicts without asking a model."""
    return Drafter(
        analyst=analyst,
        cleaner=cleaner,
        policy=carrier_policy(settings),
        kept=kept_texts(settings),
        noticed=notice_text(settings),
    )
