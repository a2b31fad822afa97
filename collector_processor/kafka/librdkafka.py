"""Clients of librdkafka with the settings that our promises need.

confluent-kafka is an extra: import this module only where Kafka is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaException, Producer

from collector_processor.otlp import CollectorError
from collector_processor.settings.kafka import KafkaAccess

T = TypeVar("T")
SESSION_MS: Final = 10_000
"""A processor that died loses its partitions after this time."""
_DELIVERY_MS: Final = 30_000
"""Longest wait for the broker before a request is refused; the client then retries it."""


def open_producer(access: KafkaAccess) -> Producer:
    """Return an idempotent, ordered producer; a record counts as written once all in-sync replicas have it.

    Raises:
        CollectorError: the settings cannot be used.
    """
    return _opened(
        Producer,
        access.common
        | {
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "fnv1a_random",  # the Collector's exporter hashes keys like this
            "linger.ms": 5,
            "compression.type": "lz4",
            "delivery.timeout.ms": _DELIVERY_MS,
            "message.max.bytes": access.max_record_bytes,
        },
    )


def open_consumer(access: KafkaAccess, on_error: Callable[[Any], None]) -> Consumer:
    """Return a member of the consumer group; it reads nothing yet.

    ``range`` gives the same partition of each topic to the same member, so that a trace's log records reach
    the process that has its spans.

    Raises:
        CollectorError: the settings cannot be used.
    """
    return _opened(
        Consumer,
        access.common
        | {
            "group.id": access.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 2_000,
            "fetch.message.max.bytes": max(1 << 20, 2 * access.max_record_bytes),
            "queued.max.messages.kbytes": 32 << 10,
            "error_cb": on_error,
        },
    )


def _opened(make: Callable[[Any], T], settings: dict[str, Any]) -> T:
    try:
        return make(settings)
    except KafkaException as error:
        raise CollectorError(f"Kafka cannot be used: {error.args[0]}") from error
