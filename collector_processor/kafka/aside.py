"""Folder for unreadable Kafka records; reading them again would not help. Not pure."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from collector_processor.kafka.record_form import Record

logger = logging.getLogger(__name__)

_MOST: Final = 1_000
"""Records kept in files; further ones are only logged."""
_MOST_BYTES: Final = 64 << 20
"""Likewise in bytes: a client that writes to a topic must not fill the disk."""


class Aside:
    """Unreadable records, the first ones in files."""

    def __init__(self, folder: Path) -> None:
        """Start without records; the first one creates the folder."""
        self._folder: Final = folder
        self._count = 0
        self._bytes = 0

    def keep(self, record: Record, reason: str) -> None:
        """Log a record, and keep it if there is room."""
        self._count += 1
        name = f"{record.place.topic}-{record.place.partition}-{record.offset}"
        context = {"record": name, "bytes": len(record.value), "reason": reason}
        logger.error("record cannot be read: set aside", extra=context)
        size = self._bytes + len(record.value)
        if self._count <= _MOST and size <= _MOST_BYTES:
            self._bytes = size
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                (self._folder / name).touch(mode=0o600)
                (self._folder / name).write_bytes(record.value)
            except OSError as error:
                logger.warning("record cannot be kept aside", extra={"record": name, "reason": str(error)})
