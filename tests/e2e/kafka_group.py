"""Several processors of one Kafka group over one PostgreSQL, and a real Collector that feeds their topics."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from confluent_kafka import Consumer, Message, TopicPartition

from collector_processor.kafka.progress import Mark
from collector_processor.kafka.survey import patiently
from tests.backends.kafka_broker import KafkaBroker
from tests.backends.postgresql import PostgresServer
from tests.backends.supervise import HOST, free_ports, listens, running
from tests.e2e.line import Line, starting
from tests.e2e.traffic import Doors

StartProcessor: TypeAlias = Callable[..., Line]
TENANT: Final = "x-scope-orgid"
CONFIGURATION: Final = Path(__file__).parents[2] / "deploy" / "collector" / "kafka.yaml"


@contextmanager
def processors(folder: Path, broker: KafkaBroker, server: PostgresServer) -> Iterator[StartProcessor]:
    """Yield a function that starts processors, each with a data directory of its own."""
    with ExitStack() as stack:
        count = 0

        def start(**settings: str | float) -> Line:
            nonlocal count
            count += 1
            own = folder / f"processor-{count}"
            own.mkdir(parents=True)
            begin = stack.enter_context(starting(own))
            common: dict[str, str | float] = {"queue": broker.url, "store_url": server.url()}
            return begin(**(common | settings))

        yield start


@contextmanager
def kafka_collector(binary: Path, folder: Path, broker: KafkaBroker) -> Iterator[Doors]:
    """Run a Collector with the shipped configuration that writes to Kafka."""
    grpc, http = free_ports(2)
    folder.mkdir(parents=True, exist_ok=True)
    ports = {"COLLECTOR_GRPC_PORT": str(grpc), "COLLECTOR_HTTP_PORT": str(http)}
    environ = os.environ | ports | {"KAFKA_BROKERS": broker.address}
    command = [str(binary), "--config", str(CONFIGURATION)]
    log = folder / "collector.log"
    with running("collector", command, log=log, is_ready=lambda: listens(grpc), environ=environ):
        yield Doors(grpc=f"http://{HOST}:{grpc}", http="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A record as a topic keeps it."""

    partition: int
    offset: int
    key: str | None
    headers: dict[str, str]
    value: bytes


def read_topic(broker: KafkaBroker, topic: str) -> list[Kept]:
    """Return everything in a topic."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "looking"})
    try:
        partitions = [
            TopicPartition(topic, number, 0)
            for number in consumer.list_topics(topic, timeout=30).topics[topic].partitions
        ]
        left = {
            one.partition: high
            for one in partitions
            if (high := consumer.get_watermark_offsets(one, timeout=30)[1])
        }
        consumer.assign(partitions)
        found: list[Kept] = []
        while left:
            for message in consumer.consume(1000, 1.0):
                found.append(_kept(message))
                if (message.offset() or 0) + 1 >= left.get(message.partition() or 0, 0):
                    left.pop(message.partition() or 0, None)
        return found
    finally:
        consumer.close()


def committed(broker: KafkaBroker, topic: str, group: str = "") -> dict[int, Mark]:
    """Return what a group, by default the broker's, has committed for each partition of a topic."""
    group = group or broker.group or "blamespan"
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    try:
        numbers = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        asked = [TopicPartition(topic, number) for number in numbers]

        # A broker that has just started looks for its coordinator.
        found = patiently(partial(consumer.committed, asked, timeout=30), time.monotonic() + 240, time)
        return {one.partition: Mark.read(one.offset, one.metadata) for one in found if one.offset >= 0}
    finally:
        consumer.close()


def is_forwarded(broker: KafkaBroker, topic: str, group: str = "") -> bool:
    """Return whether the commits say that every record of a topic was forwarded."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "looking"})
    try:
        marks = committed(broker, topic, group)
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
            for number in marks
        }
        return bool(marks) and all(
            mark.upto >= ends[number] and not mark.missing for number, mark in marks.items()
        )
    finally:
        consumer.close()


def _kept(message: Message) -> Kept:
    key, value, headers = message.key(), message.value(), message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Kept(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        key=key.decode() if isinstance(key, bytes) else key,
        headers={name: said.decode() if isinstance(said, bytes) else str(said) for name, said in pairs},
        value=value if isinstance(value, bytes) else b"",
    )
