"""Opening and expiry of the durable files: the journal and the stores."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from analyzer.issues.issue_store import IssueStore
from analyzer.issues.labels.label_store import LabelStore
from analyzer.service.lifetime import Lifetime
from collector_processor.core.disk import MEND, Condition, StoreError, refusing
from collector_processor.journal import Journal, RelaxedDisk, clear_journal, open_journal
from collector_processor.journal.chunks import JournalLimits
from collector_processor.otlp import CollectorError
from collector_processor.settings import Settings
from collector_processor.store.database.connection import (
    Database,
    StoreConnection,
    StoreThread,
    open_database,
)
from collector_processor.store.small_tables import KeepLimits
from collector_processor.store.verdicts import RunStore

logger = logging.getLogger(__name__)

MAX_VERDICTS: Final = 100_000
"""Verdicts kept in the store; older ones are deleted, but stay in the backend."""
_EXPIRE_EVERY_S: Final = 60.0
_BETWEEN_S: Final = 0.1
"""Pause between two deletions of old verdicts, for the store's other calls."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The open files of a service."""

    journal: Journal
    database: Database
    """Opens further connections for reading."""
    db: StoreConnection
    """The connection that writes; the next three use it."""
    thread: StoreThread
    """Makes all calls on this connection."""
    store: RunStore
    labels: LabelStore
    issues: IssueStore


async def open_files(settings: Settings, lifetime: Lifetime) -> Files:
    """Open or create the files.

    Raises:
        CollectorError: a file is not available; the message says which.
    """
    limits = JournalLimits(
        max_pending_bytes=settings.max_pending_bytes, max_retained_bytes=settings.max_retained_bytes
    )
    journal = await _open_journal(settings, limits)
    lifetime.stack.push_async_callback(journal.close)
    lifetime.background(_fails_with(journal.failure))
    database = open_database(settings.store_place)
    lifetime.stack.callback(database.close)
    db = database.own() if settings.kafka is None else database.share()
    lifetime.stack.callback(db.close)
    thread = StoreThread()
    lifetime.stack.callback(thread.close)
    return Files(
        journal=journal,
        database=database,
        db=db,
        thread=thread,
        store=RunStore(db, keep_limits(settings)),
        labels=LabelStore(db),
        issues=IssueStore(db),
    )


async def _open_journal(settings: Settings, limits: JournalLimits) -> Journal:
    """Open the journal; with Kafka, an empty one: what an earlier process had not finished is read again."""
    if settings.kafka is None:
        return await open_journal(settings.data_dir / "ingest", limits)
    folder = settings.data_dir / "kafka"
    clear_journal(folder)
    return await open_journal(folder, limits, RelaxedDisk())


def conditions(files: Files) -> dict[str, Condition]:
    """Return the conditions of the journal and of the store of verdicts, by name."""
    return {"journal": files.journal.condition, "verdicts": files.thread.condition}


def keep_limits(settings: Settings) -> KeepLimits:
    """Return the quotas of kept runs."""
    return KeepLimits(
        failed_bytes=settings.keep_failed_bytes,
        passed_bytes=settings.keep_passed_bytes,
        days=settings.keep_days,
    )


async def look_for_damage(files: Files, place: Path | str) -> None:
    """Read the whole store once in the background and log damage, which SQLite may never notice."""

    def look() -> str | None:
        with closing(files.database.connect()) as db:
            return db.damage()

    try:
        damage = await asyncio.to_thread(refusing, look)
    except CollectorError as error:
        damage = str(error)
    if damage is not None:
        logger.error(
            "the store is damaged",
            extra={
                "store": place.name if isinstance(place, Path) else "PostgreSQL",
                "reason": damage,
                "mend": MEND,
            },
        )


def steady_clock() -> Callable[[], int]:
    """Return a wall clock that ignores later adjustments; ages are measured by it.

    A clock correction (such as after booting in 1970) must not make open traces look as if they had been
    silent for years, or never.
    """
    began_ns = time.time_ns() - time.monotonic_ns()
    return lambda: began_ns + time.monotonic_ns()


async def expire(files: Files, now_ns: Callable[[], int]) -> None:
    """Delete old data periodically until cancelled."""
    await _patiently(files.thread, files.store.spans.prune_all)
    while True:
        files.journal.expire(now_ns())
        is_more: bool | None = True
        while is_more:
            is_more = await _patiently(files.thread, files.store.prune, MAX_VERDICTS)
            await asyncio.sleep(_BETWEEN_S)
        await _patiently(files.thread, files.store.spans.expire, now_ns())
        await asyncio.sleep(_EXPIRE_EVERY_S)


async def _patiently(thread: StoreThread, delete: Callable[..., T], *values: int) -> T | None:
    """Delete old data; if the store refuses, leave it to the next round."""
    try:
        return await thread.run(delete, *values)
    except StoreError as error:
        logger.warning("old verdicts cannot be pruned", extra={"reason": str(error)})
        return None


async def _fails_with(failure: asyncio.Future[None]) -> None:
    await failure
