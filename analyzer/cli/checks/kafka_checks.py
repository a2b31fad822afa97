"""Checks of the Kafka cluster for ``doctor``: reachable, topics, partitions, keys, limits and lag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from analyzer.cli.checks.local_checks import Finding, failed, ok, warning
from analyzer.inquiry.present import counted
from collector_processor.otlp import CollectorError, Signal
from collector_processor.settings import Settings
from collector_processor.settings.kafka import KafkaAccess

if TYPE_CHECKING:
    from collector_processor.kafka.survey import TopicFacts

_CHECK: Final = "Kafka"
_INSTALL: Final = "pip install '.[server,postgres,kafka]' in a checkout"


def check_kafka(settings: Settings) -> list[Finding]:
    """Return what is wrong with the cluster, or that nothing is; asks the brokers. Empty without Kafka."""
    access = settings.kafka
    if access is None:
        return []
    try:
        from collector_processor.kafka.survey import survey  # noqa: PLC0415 - an extra
    except ImportError:
        return [failed(_CHECK, "confluent-kafka is not installed", _INSTALL)]
    try:
        topics = survey(access)
    except CollectorError as error:
        mend = "correct BLAMESPAN_QUEUE, the user and password, or BLAMESPAN_KAFKA_PROPERTIES"
        return [failed(_CHECK, f"{access.brokers}: {error}", mend)]
    limits = settings.assembler_limits
    return list(judge(topics, access, longest_s=limits.max_age_s))


def judge(topics: Sequence[TopicFacts], access: KafkaAccess, *, longest_s: float) -> Iterator[Finding]:
    """Yield the findings about the topics of a cluster; pure.

    Args:
        topics: what the brokers say of them.
        access: what is configured.
        longest_s: how long a trace may stay open.
    """
    found = [finding for topic in topics for finding in _judge_one(topic, access, longest_s)]
    yield from found
    of = {topic.signal: topic.partitions for topic in topics}
    if of[Signal.TRACES] and of[Signal.LOGS] and of[Signal.TRACES] != of[Signal.LOGS]:
        yield warning(
            _CHECK,
            f"the topic of traces has {of[Signal.TRACES]} partitions, that of logs {of[Signal.LOGS]}: log"
            " records of a trace may come to another processor than its spans",
            "give both topics the same number of partitions",
        )
    elif not found:
        behind = sum(topic.behind for topic in topics)
        partitions = ", ".join(f"{topic.name} {topic.partitions}" for topic in topics)
        detail = f"{access.brokers}; partitions: {partitions}; the group {access.group} is"
        yield ok(_CHECK, f"{detail} {counted(behind, 'record')} behind")


def _judge_one(topic: TopicFacts, access: KafkaAccess, longest_s: float) -> Iterator[Finding]:
    name = topic.name
    if not topic.partitions:
        mend = "create it, with as many partitions as there may ever be processors, or correct"
        yield failed(_CHECK, f"there is no topic {name}", f"{mend} BLAMESPAN_KAFKA_TOPICS")
        return
    if topic.signal is not Signal.METRICS and topic.strayed:
        detail = f"{topic.strayed} of the newest {topic.sampled} records of {name} are in another partition"
        mend = (
            "let every producer hash keys by FNV-1a, as the Collector's kafka exporter does; after partitions"
            " were added this lasts until the older records have been read"
        )
        yield warning(_CHECK, f"{detail} than their key's hash says: one trace comes to two processors", mend)
    if topic.signal is Signal.TRACES and topic.keyless:
        detail = f"{topic.keyless} of the newest records of {name} have no key"
        mend = "set partition_traces_by_id: true on the Collector's kafka exporter"
        yield warning(_CHECK, f"{detail}: a trace's spans come to several processors", mend)
    if topic.retention_ms is not None and 0 <= topic.retention_ms < longest_s * 1000:
        detail = f"{name} keeps records for {topic.retention_ms / 1000:g} s, and a trace may stay open for"
        mend = "raise retention.ms, or lower BLAMESPAN_MAX_AGE: a restart reads an open trace again"
        yield warning(_CHECK, f"{detail} {longest_s:g} s", mend)
    if topic.max_record_bytes is not None and topic.max_record_bytes < access.max_record_bytes:
        detail = (
            f"{name} takes records of {topic.max_record_bytes} bytes, we may send {access.max_record_bytes}"
        )
        mend = "raise its max.message.bytes, or lower message.max.bytes in BLAMESPAN_KAFKA_PROPERTIES"
        yield failed(_CHECK, detail, mend)
