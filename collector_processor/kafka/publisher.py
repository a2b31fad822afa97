"""Publisher of received requests: one record a trace, acknowledged once the brokers have all of them.

A thread of its own takes the brokers' answers; requests wait on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from threading import Lock, Thread
from typing import Any, Final

from confluent_kafka import KafkaException

from collector_processor.journal.chunks import Chunk, Entry
from collector_processor.kafka.librdkafka import open_producer
from collector_processor.kafka.record_form import headers_of, pieces
from collector_processor.otlp import RefusedError, Tenant
from collector_processor.settings.kafka import KafkaAccess
from semconv.model import TraceId

logger = logging.getLogger(__name__)

_OVERHEAD_BYTES: Final = 4 << 10
"""Bytes of a record besides its value: key, headers, framing."""
_POLL_S: Final = 0.1
_BUSY_RETRY_S: Final = 1.0
_AWAY_RETRY_S: Final = 5.0
_FLUSH_S: Final = 10.0


class _Delivery:
    """The records of one request that the brokers have not acknowledged; answers come on another thread."""

    def __init__(self, done: Callable[[str | None], None]) -> None:
        self._done: Final = done
        self._lock: Final = Lock()
        self._left = 1
        """Records without an answer, plus one until all records are handed over."""
        self._fault: str | None = None

    def expect(self) -> None:
        """Expect one more answer."""
        with self._lock:
            self._left += 1

    def answered(self, error: Any, _message: object = None) -> None:
        """Count an answer; the last one completes the request."""
        with self._lock:
            self._fault = self._fault or (None if error is None else str(error))
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._done(self._fault)


class KafkaPublisher:
    """Writes requests to the topics; used on one event loop."""

    def __init__(self, access: KafkaAccess) -> None:
        """Connect in the background.

        Raises:
            CollectorError: confluent-kafka is not installed, or the settings cannot be used.
        """
        self._topics: Final = access.topics
        self.most_bytes: Final = access.max_record_bytes - _OVERHEAD_BYTES
        """Largest item that a record can hold."""
        self._producer: Final = open_producer(access)
        self._is_closed = False
        self.published: int = 0
        """Records that the brokers acknowledged."""
        self._thread: Final = Thread(target=self._poll, name="kafka-publisher", daemon=True)
        self._thread.start()

    def knows(self, tenant: Tenant) -> Container[TraceId]:
        """Return nothing: the reader decides which traces are agents'."""
        del tenant
        return frozenset()

    async def append(
        self, entries: Sequence[Entry], then: Callable[[Chunk, Entry], Iterator[None]] | None = None
    ) -> tuple[Chunk, ...]:
        """Return once all in-sync replicas have every record of the rows.

        ``then`` is not called: the rows go to the process that owns their partition.

        Raises:
            RefusedError: the brokers do not answer, or not fast enough; records may be written all the same.
            MalformedRequestError: the request cannot be split by trace.
        """
        del then
        if self._is_closed:
            raise RefusedError("the publisher is closed", retry_after_s=_AWAY_RETRY_S)
        records = [
            (entry, key, value)
            for entry in entries
            for key, value in pieces(entry.signal, entry.body, self.most_bytes)
        ]
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str | None] = loop.create_future()

        def done(fault: str | None) -> None:
            loop.call_soon_threadsafe(_settle, answer, fault)

        delivery = _Delivery(done)
        fault = self._produce(records, delivery)
        delivery_fault = await answer
        if fault or delivery_fault:
            reason = fault or f"Kafka did not take the request: {delivery_fault}"
            raise RefusedError(reason, retry_after_s=_BUSY_RETRY_S if fault else _AWAY_RETRY_S)
        self.published += len(records)
        return ()

    def _produce(self, records: Sequence[tuple[Entry, str | None, bytes]], delivery: _Delivery) -> str | None:
        """Hand records to the producer; return why it did not take all of them, or ``None``."""
        try:
            for entry, key, value in records:
                delivery.expect()
                self._producer.produce(
                    self._topics[entry.signal],
                    value,
                    key,
                    headers=headers_of(entry.tenant, entry.hops),
                    on_delivery=delivery.answered,
                )
        except BufferError:
            delivery.answered(None)
            return "requests arrive faster than Kafka takes them"
        except KafkaException as error:
            delivery.answered(None)
            return f"Kafka did not take the request: {error.args[0]}"
        finally:
            delivery.answered(None)
        return None

    def _poll(self) -> None:
        while not self._is_closed:
            self._producer.poll(_POLL_S)

    async def close(self) -> None:
        """Wait for the records under way, within bounds."""
        self._is_closed = True
        left = await asyncio.to_thread(partial(self._producer.flush, _FLUSH_S))
        if left:
            logger.warning("records were not acknowledged by Kafka", extra={"records": left})
        await asyncio.to_thread(self._thread.join)


def _settle(answer: asyncio.Future[str | None], fault: str | None) -> None:
    if not answer.done():
        answer.set_result(fault)
