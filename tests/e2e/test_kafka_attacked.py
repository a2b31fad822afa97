"""Hostile records in a real Kafka: the good ones between them are judged, forwarded and committed past."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from collector_processor.rebuild.encode import encode
from tests.backends.kafka_broker import KafkaBroker
from tests.backends.postgresql import PostgresServer
from tests.backends.supervise import wait_until
from tests.e2e.backend import grpc_backend
from tests.e2e.kafka_group import TENANT, StartProcessor, committed, processors
from tests.e2e.test_kafka import name
from tests.e2e.test_postgresql import run
from tests.otlp_requests import log_request, metric_request, record

_MIB: Final = 1 << 20
BOMB: Final = 256 * _MIB
MOST_GROWTH: Final = 5 * BOMB
GOOD: Final = encode(run(name(0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """A record that is set aside, passed over, or handed on."""

    value: bytes = b""
    headers: Mapping[str, bytes] = field(default_factory=dict)
    key: bytes = b"same"


HOSTILE: Final[Mapping[str, Poison]] = {
    "no protobuf": Poison(value=b"\xff not OTLP"),
    "cut short": Poison(value=GOOD[: len(GOOD) // 2]),
    "a length beyond the record": Poison(value=GOOD + b"\x7a\xff\x7f"),
    "logs among spans": Poison(value=log_request(record())),
    "metrics among spans": Poison(value=metric_request([1, 2])),
    "text": Poison(value=b'{"resourceSpans":[]}'),
    "nothing": Poison(),
    "noise": Poison(value=random.Random(7).randbytes(500_000)),
    "nested groups": Poison(value=b"\x0b" * 500_000),
    "a tenant that is no text": Poison(value=GOOD, headers={TENANT: b"\xff\xfe"}),
    "a tenant of two lines": Poison(value=GOOD, headers={TENANT: b"a\r\nx-evil: 1"}),
    "a tenant of 500,000 characters": Poison(value=GOOD, headers={TENANT: b"a" * 500_000}),
    "5,000 headers": Poison(value=GOOD, headers={f"x-{number}": b"x" * 50 for number in range(5_000)}),
    "a key that is no text": Poison(value=b"\xff", key=b"\xff\x00" * 1_000),
}


@pytest.fixture
def start_processor(tmp_path: Path, kafka: KafkaBroker, server: PostgresServer) -> Iterator[StartProcessor]:
    with processors(tmp_path, kafka, server) as start:
        yield start


def test_good_records_between_hostile_ones_are_judged_and_committed(
    start_processor: StartProcessor, kafka: KafkaBroker
) -> None:
    producer = Producer({"bootstrap.servers": kafka.address})
    with grpc_backend() as backend:
        line = start_processor(forward_endpoint=backend.url, root_grace=300)
        for number, poison in enumerate(HOSTILE.values(), start=1):
            producer.produce(
                "otlp_spans", poison.value, key=poison.key, partition=0, headers=dict(poison.headers)
            )
            producer.produce("otlp_spans", encode(run(name(number))), key="same", partition=0)
        assert producer.flush(120) == 0
        for number in range(1, len(HOSTILE) + 1):
            assert line.verdict(name(number))["agent"] == "planner"
        end = 2 * len(HOSTILE)
        wait_until(lambda: committed(kafka, "otlp_spans")[0].offset == end, what="the commit behind the last")
        assert line.server.process.poll() is None
        assert "Traceback" not in line.server.log.read_text(errors="replace")
        forwarded = {request.headers.get(TENANT) for request in backend.requests}
        assert forwarded == {None}, "no hostile tenant is forwarded"


def test_a_record_that_unpacks_to_256_mib_is_set_aside(
    start_processor: StartProcessor, kafka: KafkaBroker
) -> None:
    """Kafka's limit of a record is on packed bytes: a bomb of a quarter of a megabyte passes it."""
    settings = {"compression.type": "gzip", "message.max.bytes": 1_000_000_000}
    producer = Producer({"bootstrap.servers": kafka.address, **settings})
    with grpc_backend() as backend:
        line = start_processor(forward_endpoint=backend.url, root_grace=300)
        producer.produce("otlp_spans", encode(run(name(1))), key="same", partition=0)
        assert producer.flush(120) == 0
        line.verdict(name(1))
        before = line.peak()
        producer.produce("otlp_spans", bytes(BOMB), key="same", partition=0)
        producer.produce("otlp_spans", encode(run(name(2))), key="same", partition=0)
        assert producer.flush(120) == 0
        assert line.verdict(name(2))["agent"] == "planner"
        wait_until(lambda: committed(kafka, "otlp_spans")[0].offset == 3, what="the commit behind the last")
        growth = line.peak() - before
        print(f"a record that unpacks to {BOMB >> 20} MiB takes {growth >> 20} MiB at most")
        assert growth < MOST_GROWTH
        assert "Traceback" not in line.server.log.read_text(errors="replace")
