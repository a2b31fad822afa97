"""Writes the searched texts of runs behind their verdicts, in transactions of their own. Not pure.

A verdict never waits for more than ``_AT_ONCE`` texts. After a crash, the texts of the last seconds are
missing, until ``blamespan runs index`` writes them. The same task deletes the texts of expired runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Final

from analyzer.issues.notifier import InDb
from collector_processor.core.disk import StoreError
from collector_processor.otlp import Tenant
from collector_processor.store.run_text import RunText, RunTextRows

logger = logging.getLogger(__name__)

_EVERY_S: Final = 5.0
"""Seconds between rounds. The next verdict's flush writes their pages too: more rounds delay more of them."""
_AT_ONCE: Final = 4
"""Texts in one transaction: some 8 ms, for which the store's other calls wait."""
_MOST_WAITING: Final = 4_000
"""Texts in memory, 16 MB; the oldest are dropped."""
_LAST: Final = 50
"""Transactions at the end of the service: 0.4 s."""
_SWEPT: Final = 1_000
"""Rows looked at in one call, in about 2 ms."""
_SLICES: Final = 4
"""Such calls in a round: 100,000 rows are looked at in two minutes."""
NO_INDEX: Final = (
    "the store cannot have an index of trigrams: searches look through the newest 2,000 runs"
    " (PostgreSQL: install the extension pg_trgm, then run `blamespan runs index`)"
)


class TextsBehind:
    """Texts of committed runs that wait to be written."""

    def __init__(self, rows: RunTextRows) -> None:
        """Create it; ``rows`` are those of the connection on which verdicts are committed."""
        self._rows: Final = rows
        self._waiting: Final[OrderedDict[tuple[Tenant, str], RunText]] = OrderedDict()
        self._lock: Final = Lock()
        self._after = 0

    def add(self, texts: Sequence[RunText]) -> None:
        """Hand over the texts of runs whose verdicts are committed; callable from any thread."""
        with self._lock:
            for one in texts:
                self._waiting.pop((one.tenant, one.run_id), None)
                self._waiting[one.tenant, one.run_id] = one
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.popitem(last=False)

    async def run(self, in_db: InDb) -> None:
        """Write and delete texts until cancelled; ``in_db`` makes a call on the store's thread."""
        is_told = False
        while True:
            try:
                if await in_db(self._rows.create_index):
                    while await in_db(self.write):
                        pass
                    for _ in range(_SLICES):
                        while await in_db(self.sweep):
                            pass
                elif not is_told:
                    is_told = True
                    logger.warning(NO_INDEX)
            except StoreError as error:
                logger.warning("searched texts cannot be written", extra={"reason": str(error)})
            await asyncio.sleep(_EVERY_S)

    def close(self) -> None:
        """Write what still waits, a few seconds' texts, after the store's thread has ended."""
        try:
            for _ in range(_LAST):
                if not (self._rows.is_indexed() and self.write()):
                    return
        except StoreError as error:
            logger.warning("searched texts cannot be written", extra={"reason": str(error)})

    def write(self) -> bool:
        """Write some texts; return whether more wait.

        Raises:
            StoreError: the store refuses, and they keep waiting.
        """
        with self._lock:
            some = list(self._waiting.values())[:_AT_ONCE]
        if some:
            self._rows.write(some)
        with self._lock:
            for one in some:
                if self._waiting.get((one.tenant, one.run_id)) is one:
                    del self._waiting[one.tenant, one.run_id]
            return bool(self._waiting)

    def sweep(self) -> bool:
        """Delete some texts of runs that were deleted or have expired; return whether more are to go.

        Raises:
            StoreError: the store refuses.
        """
        swept = self._rows.sweep(self._after, _SWEPT, _AT_ONCE)
        self._after = swept.after
        return swept.has_stopped
