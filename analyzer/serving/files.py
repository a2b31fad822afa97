"""What is durable: the journal and the stores, opened, and what has grown too old in them forgotten."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from analyzer.labels.store import LabelStore, open_labels
from analyzer.serving.lifetime import Lifetime
from collector_processor.examine import Examiner
from collector_processor.journal import Journal, open_journal
from collector_processor.journal.chunks import JournalLimits
from collector_processor.runstore import RUNS, RunStore
from collector_processor.settings import Settings
from collector_processor.stores import StoreError

logger = logging.getLogger(__name__)

MAX_VERDICTS: Final = 100_000
"""The store forgets older ones; backends keep theirs."""
_EXPIRE_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files of a service, open."""

    journal: Journal
    store: RunStore
    labels: LabelStore


async def open_files(settings: Settings, lifetime: Lifetime) -> Files:
    """Open them, or make them.

    Raises:
        CollectorError: one cannot be had; the message says which.
    """
    limits = JournalLimits(
        max_pending_bytes=settings.max_pending_bytes, max_retained_bytes=settings.max_retained_bytes
    )
    journal = await open_journal(settings.data_dir / "ingest", limits)
    lifetime.stack.push_async_callback(journal.close)
    lifetime.background(_fails_with(journal.failure))
    store = RunStore(settings.data_dir / RUNS)
    lifetime.stack.callback(store.close)
    labels = open_labels(settings.data_dir)
    lifetime.stack.callback(labels.close)
    return Files(journal=journal, store=store, labels=labels)


def steady_clock() -> Callable[[], int]:
    """Return the wall clock as if nobody had set it since now: ages are told by it.

    A clock put right (a machine that woke up in 1970) must not make every open trace look silent
    for years, nor for ever.
    """
    began_ns = time.time_ns() - time.monotonic_ns()
    return lambda: began_ns + time.monotonic_ns()


async def expire(files: Files, examiner: Examiner, now_ns: Callable[[], int]) -> None:
    """Forget what is too old, now and then, until cancelled."""
    while True:
        files.journal.expire(now_ns())
        try:
            await examiner.in_db(files.store.prune, MAX_VERDICTS)
        except StoreError as error:
            logger.warning("old verdicts cannot be pruned", extra={"reason": str(error)})
        await asyncio.sleep(_EXPIRE_EVERY_S)


async def _fails_with(failure: asyncio.Future[None]) -> None:
    await failure
