"""Survey of the cluster for ``doctor``: topics, limits, lag, and whether keys lead to the right partitions.

Reads only, joins no group and commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType, TopicMetadata  # type: ignore[attr-defined]

from collector_processor.otlp import CollectorError, Signal
from collector_processor.settings.kafka import KafkaAccess
from semconv.record import record

_ASK_S: Final = 10.0
_SAMPLE: Final = 20
"""Newest records of each partition whose keys are checked."""
_READ_S: Final = 5.0
_PATIENCE_S: Final = 30.0
"""Seconds for which questions are asked again: a topic or a group that is new has no leader at first."""
_PASSING: Final = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._TIMED_OUT,  # noqa: SLF001 - the documented name of the code
        KafkaError._WAIT_COORD,  # noqa: SLF001 - as above
    }
)
"""Codes of states that pass by themselves; ``retriable()`` is false for all errors of these calls."""
_ALL_DOWN: Final = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - the documented name of the code
_PAUSE_S: Final = 0.5
_EARLIER: Final = "retention.ms", "max.message.bytes"

Answer = TypeVar("Answer")


class Clock(Protocol):
    """The module ``time``, or a test's."""

    def monotonic(self) -> float:
        """Return seconds."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


@record
class TopicFacts:
    """State of one topic."""

    name: str
    signal: Signal
    partitions: int = 0
    """0 if there is no such topic."""
    retention_ms: int | None = None
    """How long records are kept at least; -1 without a bound, ``None`` if we may not ask."""
    max_record_bytes: int | None = None
    """Largest record that the topic takes; ``None`` if we may not ask."""
    behind: int = 0
    """Records that the group has not committed yet."""
    sampled: int = 0
    """Records with a key that were looked at."""
    strayed: int = 0
    """Of these, records in another partition than the hash of their key says."""
    keyless: int = 0
    """Further records looked at that have no key."""


def survey(access: KafkaAccess) -> tuple[TopicFacts, ...]:
    """Return the state of the three topics; takes up to half a minute.

    Raises:
        CollectorError: the brokers cannot be reached, or refuse us.
    """
    told: list[KafkaError] = []
    settings = {**access.common, "error_cb": told.append, "logger": _Silent()}
    group = {"group.id": access.group, "enable.auto.commit": False, "enable.auto.offset.store": False}
    try:
        admin = AdminClient(settings)
        known = _topics(admin)
        limits = _limits(admin, [name for name in access.topics.values() if name in known])
        deadline = time.monotonic() + _PATIENCE_S
        with closing(Consumer(settings | group)) as consumer:
            return tuple(
                _facts(
                    consumer,
                    name,
                    signal,
                    len(known[name].partitions),
                    limits.get(name, {}),
                    deadline=deadline,
                )
                if name in known
                else TopicFacts(name=name, signal=signal)
                for signal, name in access.topics.items()
            )
    except KafkaException as error:
        reasons = [one.str() for one in told if one.code() != _ALL_DOWN]
        raise CollectorError(reasons[0] if reasons else error.args[0].str()) from error


def _topics(admin: AdminClient) -> dict[str, TopicMetadata]:
    try:
        return admin.list_topics(timeout=_ASK_S).topics
    except KafkaException:
        admin.poll(0)  # which calls ``error_cb`` with the cause
        raise


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition to which the Collector's exporter and ours send a key.

    FNV-1a of 32 bits, its absolute value as a signed number: librdkafka's ``fnv1a``, and Sarama's default.
    """
    value = 0x811C9DC5
    for byte in key:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return abs(value - (1 << 32) if value >> 31 else value) % partitions


class _Silent:
    """Takes librdkafka's own log lines, which repeat what the errors say."""

    def log(self, *_: Any) -> None:
        """Drop a line."""


def _limits(admin: AdminClient, topics: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the limits of the topics; nothing of those that we may not ask about."""
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    found = {}
    for resource, answer in admin.describe_configs(asked, request_timeout=_ASK_S).items() if asked else ():
        try:
            entries = answer.result(_ASK_S)
        except KafkaException:  # no permission to describe topics: reading works without
            continue
        found[resource.name] = {name: int(entries[name].value) for name in _EARLIER}
    return found


def _facts(
    consumer: Consumer, name: str, signal: Signal, partitions: int, limits: dict[str, int], *, deadline: float
) -> TopicFacts:
    places = [TopicPartition(name, number) for number in range(partitions)]
    ends = [
        patiently(partial(consumer.get_watermark_offsets, place, timeout=_ASK_S), deadline, time)
        for place in places
    ]
    answer = patiently(partial(consumer.committed, places, timeout=_ASK_S), deadline, time)
    committed = [place.offset for place in answer]  # negative where the group has committed none
    behind = sum(
        last - max(first, offset)
        for (first, last), offset in zip(ends, committed, strict=True)
        if last > first
    )
    starts = [
        TopicPartition(name, number, max(first, last - _SAMPLE))
        for number, (first, last) in enumerate(ends)
        if last > first
    ]
    newest = _read(consumer, starts, [last for first, last in ends if last > first], time.monotonic)
    keys = [(key, one.partition()) for one in newest if (key := one.key())]
    return TopicFacts(
        name=name,
        signal=signal,
        partitions=partitions,
        retention_ms=limits.get("retention.ms"),
        max_record_bytes=limits.get("max.message.bytes"),
        behind=behind,
        sampled=len(keys),
        strayed=sum(partition_of(_raw(key), partitions) != number for key, number in keys),
        keyless=len(newest) - len(keys),
    )


def patiently(ask: Callable[[], Answer], deadline: float, clock: Clock) -> Answer:
    """Ask the brokers again while their answer is a state that passes by itself, until ``deadline``.

    Raises:
        KafkaException: the last answer.
    """
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _PASSING or clock.monotonic() >= deadline:
                raise
        clock.sleep(_PAUSE_S)


def _raw(key: bytes | str) -> bytes:
    return key.encode() if isinstance(key, str) else key


def _read(
    consumer: Consumer, starts: Sequence[TopicPartition], ends: Sequence[int], clock: Callable[[], float]
) -> list[Message]:
    """Return the records from ``starts`` up to ``ends``, as many as come in time."""
    if not starts:
        return []
    consumer.assign(list(starts))
    waiting = {start.partition: end for start, end in zip(starts, ends, strict=True)}
    found: list[Message] = []
    deadline = clock() + _READ_S
    while waiting and (left := deadline - clock()) > 0:
        for one in consumer.consume(500, timeout=min(left, 0.5)):
            number, offset = one.partition(), one.offset()
            if one.error() is None and number is not None and offset is not None:
                found.append(one)
                if offset + 1 >= waiting.get(number, 0):
                    waiting.pop(number, None)
    consumer.unassign()
    return found
