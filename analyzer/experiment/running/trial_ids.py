"""Ids of trials, stored so that the service does not treat their runs as production. Not pure.

An id is 128 random bits, stored before its trial starts. The service looks up the ids in spans: an id that is
unknown, expired or another tenant's hides nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final

from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreError
from collector_processor.store.small_tables import TrialRows
from semconv.record import record

logger = logging.getLogger(__name__)

_LATE_S: Final = 86_400.0
"""Seconds that an id outlives its trial: a killed trial's root never arrives, and the journal may return its
spans for a day."""
_NS: Final = 1_000_000_000


@record
class TrialIds:
    """Issues the ids of one experiment."""

    rows: TrialRows
    tenant: Tenant
    timeout_s: float
    """Time limit of a trial."""
    now_ns: Callable[[], int]

    async def __call__(self) -> str:
        """Issue an id; empty if the store refuses: then the trial must not send telemetry."""
        trial, now = secrets.token_hex(16), self.now_ns()
        expires = now + int((self.timeout_s + _LATE_S) * _NS)
        try:
            await asyncio.to_thread(self.rows.issue, self.tenant, trial, expires, now)
        except StoreError as error:
            logger.warning("trial sends no telemetry: the store refuses", extra={"reason": str(error)})
            return ""
        return trial
