"""Connection to a store that other processes use too, and announcements to them. Not pure.

``blamespan doctor`` compares the versions and clocks of replicas, and collectors learn from it whether any
analyzer takes jobs.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from analyzer.analyses.job_client import InDb
from collector_processor.core.disk import StoreError
from collector_processor.settings import Settings
from collector_processor.store.database.connection import (
    Database,
    StoreConnection,
    StoreThread,
    open_database,
)
from collector_processor.store.jobs import BEAT_S, ReplicaRows

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStore:
    """A connection of this process to the store, with its thread."""

    database: Database
    """Opens further connections."""
    db: StoreConnection
    thread: StoreThread


def open_shared_store(settings: Settings, stack: AsyncExitStack) -> SharedStore:
    """Connect to the store without keeping others out; closed with the stack.

    Raises:
        CollectorError: the store cannot be used; the message says why.
    """
    database = stack.enter_context(closing(open_database(settings.store_place)))
    db = stack.enter_context(closing(database.connect()))
    thread = StoreThread(name="shared-store")
    stack.callback(thread.close)
    return SharedStore(database=database, db=db, thread=thread)


class Announcer:
    """Announces one process until it is cancelled."""

    def __init__(self, rows: ReplicaRows, in_db: InDb, kind: str, facts: Mapping[str, Any]) -> None:
        """Create it; nothing is announced yet. ``facts`` are JSON."""
        self.id: Final = secrets.token_hex(8)
        self._rows: Final = rows
        self._in_db: Final = in_db
        self._kind: Final = kind
        self._facts: Final = facts

    async def announce(self) -> None:
        """Announce the process once.

        Raises:
            StoreError: the store refuses.
        """
        await self._in_db(
            self._rows.announce, self.id, self._kind, version("blamespan"), time.time_ns(), self._facts
        )

    async def run(self, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Announce it every few seconds; while the store refuses, others consider it gone."""
        while True:
            try:
                await self.announce()
            except StoreError as error:
                logger.warning("cannot record this replica in the store", extra={"reason": str(error)})
            await pause(BEAT_S)

    async def leave(self) -> None:
        """Remove the announcement, so that no other process waits for this one."""
        try:
            await self._in_db(self._rows.leave, self.id)
        except StoreError as error:
            logger.warning("cannot remove this replica from the store", extra={"reason": str(error)})
