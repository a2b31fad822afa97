"""Parts of traces that stay open for long, kept so that a partition's next owner has them without Kafka.

One table of the store. A part is the spans, or log records, of one trace in neighbouring records of one
partition; the number of the first record is part of its key, so writing it twice keeps it once. Synchronous;
used on the store's thread. Every call raises ``StoreError`` if the store refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from collector_processor.core.records import SpilledPart
from collector_processor.otlp import Tenant, TraceKey
from collector_processor.store.database.connection import StoreConnection, upsert
from semconv.model import TraceId

KEPT_S: Final = 2 * 86_400
"""Seconds after which a part is deleted anyway: twice as long as the journal keeps a trace."""
_NS: Final = 1_000_000_000
_KEY: Final = "topic, partition, first_offset, tenant, trace_id"
_WRITE: Final = (
    upsert("spilled_part", f"{_KEY}, last_offset, spilled_ns, packed", keys=5)
    # A suspended process may write late, with only the first of these records: that must not replace more.
    + " WHERE excluded.last_offset >= spilled_part.last_offset"
)
_PAGE_BYTES: Final = 8 << 20
"""Compressed bytes read at once; one larger part is read alone."""


class SpilledPartRows:
    """Rows of ``spilled_part``."""

    def __init__(self, db: StoreConnection) -> None:
        self._db: Final = db

    def keep(self, parts: Sequence[SpilledPart], now_ns: int) -> None:
        """Write parts durably, all or none; delete those of all processes that are too old."""
        rows = [
            (
                part.topic,
                part.partition,
                part.first,
                part.key.tenant,
                part.key.trace_id,
                part.last,
                now_ns,
                part.packed,
            )
            for part in parts
        ]
        with self._db.transaction():
            self._db.execute("DELETE FROM spilled_part WHERE spilled_ns < ?", (now_ns - KEPT_S * _NS,))
            self._db.write_rows(_WRITE, rows)

    def of(
        self, topic: str, partition: int, below: int, after: SpilledPart | None, most: int
    ) -> list[SpilledPart]:
        """Return a partition's parts whose first record is below an offset, in order of their keys.

        Args:
            topic: the topic.
            partition: its partition.
            below: the offset.
            after: the last part that was read, ``None`` for the first page.
            most: parts to read, fewer if they are large.
        """
        last = (-1, "", "") if after is None else (after.first, after.key.tenant, after.key.trace_id)
        order = "ORDER BY first_offset, tenant, trace_id"
        rows = self._db.execute(
            f"SELECT {_KEY}, last_offset, packed FROM (SELECT *,"  # noqa: S608 - our own words
            f" sum(length(packed)) OVER ({order}) - length(packed) AS bytes_before FROM ("
            "SELECT * FROM spilled_part WHERE topic = ? AND partition = ? AND first_offset < ?"
            f" AND (first_offset, tenant, trace_id) > (?, ?, ?) {order} LIMIT ?) AS page) AS summed"
            f" WHERE bytes_before < ? {order}",
            (topic, partition, below, *last, most, _PAGE_BYTES),
        )
        return [
            SpilledPart(
                topic=row[0],
                partition=row[1],
                first=row[2],
                last=row[5],
                key=TraceKey(Tenant(row[3]), TraceId(row[4])),
                packed=bytes(row[6]),
            )
            for row in rows
        ]

    def drop(self, topic: str, partition: int, from_offset: int, until_ns: int) -> None:
        """Delete a partition's parts from an offset on: Kafka still has their records, which are read again.

        Args:
            topic: the topic.
            partition: its partition.
            from_offset: the offset.
            until_ns: Unix ns; parts written later are kept: the next owner wrote them before this call came.
        """
        self._db.execute(
            "DELETE FROM spilled_part"
            " WHERE topic = ? AND partition = ? AND first_offset >= ? AND spilled_ns <= ?",
            (topic, partition, from_offset, until_ns),
        )

    def forget(self, keys: Iterable[TraceKey]) -> None:
        """Delete all parts of traces."""
        with self._db.transaction():
            self._db.executemany("DELETE FROM spilled_part WHERE tenant = ? AND trace_id = ?", list(keys))
