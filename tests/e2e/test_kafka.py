"""Several processors behind a real Kafka, with their store in a real PostgreSQL."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

import psycopg
import pytest
from confluent_kafka import Producer

from collector_processor.kafka.survey import partition_of
from collector_processor.otlp import Signal
from collector_processor.rebuild.encode import encode
from semconv.model import TraceId
from tests.backends import install
from tests.backends.fixtures import insist_on
from tests.backends.forked import ran
from tests.backends.kafka_broker import KafkaBroker
from tests.backends.postgresql import PostgresServer
from tests.backends.supervise import wait_until
from tests.e2e.backend import Backend, grpc_backend
from tests.e2e.kafka_group import (
    TENANT,
    StartProcessor,
    committed,
    is_forwarded,
    kafka_collector,
    processors,
    read_topic,
)
from tests.e2e.line import environment
from tests.e2e.spans import placed
from tests.e2e.test_postgresql import run
from tests.e2e.traffic import CARRIERS, Doors, send

SPANS: Final = 3
"""Spans of a run."""
IDS: Final = 10_000
PARTITIONS: Final = 6
OWNED: Final = "blamespan_kafka_partitions"
SLOW: Final = {"root_grace": 600_000}
"""Traces stay open: nothing is judged."""


@pytest.fixture
def start_processor(tmp_path: Path, kafka: KafkaBroker, server: PostgresServer) -> Iterator[StartProcessor]:
    with processors(tmp_path, kafka, server) as start:
        yield start


@pytest.fixture
def collector(tmp_path: Path, kafka: KafkaBroker) -> Iterator[Doors]:
    binary = insist_on("collector", install.collector_binary())
    with kafka_collector(binary, tmp_path / "collector", kafka) as doors:
        yield doors


def name(number: int) -> str:
    return f"{0xB1A3E5 + number:032x}"


def times_each(backend: Backend, trace_id: str) -> Counter[str]:
    """Return how often each span of a trace came."""
    return Counter(one.id for one in backend.spans(trace_id))


def test_key_and_partition_equal_those_of_the_collectors_exporter(
    start_processor: StartProcessor, collector: Doors, kafka: KafkaBroker
) -> None:
    """10,000 traces, sent to the Collector and to a blamespan: each lands twice in one partition."""
    with grpc_backend() as backend:
        line = start_processor(forward_endpoint=backend.url)
        for start in range(0, IDS, 500):
            body = b"".join(encode(run(name(number))[:1]) for number in range(start, start + 500))
            for door in (collector, line):
                send(door, body, headers={TENANT: "red"})
        records = read_topic(kafka, "otlp_spans")
    assert {record.partition for record in records} == set(range(6))
    assert [one for one in records if partition_of((one.key or "").encode(), 6) != one.partition] == []
    assert len(records) == 2 * IDS
    assert {record.headers[TENANT] for record in records} == {"red"}
    found = Counter((record.key, record.partition) for record in records)
    assert set(found.values()) == {2}
    assert {key for key, _ in found} == {name(number) for number in range(IDS)}
    assert len({partition for _, partition in found}) == 6


def test_a_trace_whose_processor_is_killed_is_judged_by_another_and_sent_once(
    start_processor: StartProcessor, collector: Doors, kafka: KafkaBroker
) -> None:
    """The first half was forwarded and committed by the dead one: it is read again, not sent again."""
    ids = [name(number) for number in range(24)]
    with grpc_backend() as backend:
        first = start_processor(forward_endpoint=backend.url, **SLOW)
        for trace_id in ids:
            send(collector, encode(run(trace_id)[:2]))
        for trace_id in ids:
            backend.await_spans(TraceId(trace_id), 2)
        wait_until(lambda: is_forwarded(kafka, "otlp_spans"), what="the commit")
        kept = committed(kafka, "otlp_spans").values()
        assert sum(mark.upto - mark.offset for mark in kept) >= len(ids), "open traces keep their records"
        first.server.kill()
        other = start_processor(forward_endpoint=backend.url)
        for trace_id in ids:
            send(collector, encode(run(trace_id)[2:]))
        for trace_id in ids:
            verdict = other.verdict(trace_id)
            assert (verdict["agent"], verdict["version"]) == ("planner", 1)
            backend.await_spans(TraceId(trace_id), SPANS + CARRIERS)
            assert set(times_each(backend, trace_id).values()) == {1}
            assert len(times_each(backend, trace_id)) == SPANS + CARRIERS


def test_a_trace_that_stays_open_outlives_its_processor_and_holds_no_commit_back(
    start_processor: StartProcessor, collector: Doors, kafka: KafkaBroker, server: PostgresServer
) -> None:
    """The commit goes on meanwhile; the next owner has the first half from PostgreSQL, and deletes it."""
    ids = [name(number) for number in range(24)]
    with grpc_backend() as backend:
        first = start_processor(forward_endpoint=backend.url, spill_s=1.0, **SLOW)
        for trace_id in ids:
            send(collector, encode(run(trace_id)[:2]), headers={TENANT: "red"})
        for trace_id in ids:
            backend.await_spans(TraceId(trace_id), 2)

        def are_committed() -> bool:
            marks = committed(kafka, "otlp_spans").values()
            return sum(mark.offset for mark in marks) == len(ids)

        wait_until(are_committed, what="the commit behind open traces")
        assert first.sample("blamespan_open_traces") == len(ids)
        assert first.sample("blamespan_kafka_spilled_bytes") > 0
        assert spilled(server) == len(ids)
        first.server.kill()
        other = start_processor(forward_endpoint=backend.url)
        for trace_id in ids:
            send(collector, encode(run(trace_id)[2:]), headers={TENANT: "red"})
        for trace_id in ids:
            verdict = other.verdict(trace_id)
            assert (verdict["agent"], verdict["version"]) == ("planner", 1), "who is in the spilled half"
            backend.await_spans(TraceId(trace_id), SPANS + CARRIERS)
            assert set(times_each(backend, trace_id).values()) == {1}
        assert other.labelled("blamespan_kafka_records", "outcome")["reread"] == 0
        assert other.labelled("blamespan_kafka_spilled_parts", "outcome")["recalled"] == len(ids)
        wait_until(lambda: spilled(server) == 0, what="the deletion of what has a verdict")


def test_without_postgresql_nothing_is_spilled_and_nothing_is_lost(
    start_processor: StartProcessor, collector: Doors, kafka: KafkaBroker, server: PostgresServer
) -> None:
    """The commit waits for PostgreSQL; a successor reads from there, and has the rest from the store."""
    ids = [name(number) for number in range(12)]
    with grpc_backend() as backend:
        first = start_processor(forward_endpoint=backend.url, spill_s=1.0, **SLOW)
        for trace_id in ids[:6]:
            send(collector, encode(run(trace_id)[:2]))
        wait_until(lambda: spilled(server) == 6, what="the first to be spilled")
        wait_until(lambda: is_forwarded(kafka, "otlp_spans"), what="the commit")
        server.stop("immediate")
        for trace_id in ids[6:]:
            send(collector, encode(run(trace_id)[:2]))
            backend.await_spans(TraceId(trace_id), 2)
        wait_until(lambda: first.said("open traces cannot be spilled"), what="the refusal")
        wait_until(lambda: is_forwarded(kafka, "otlp_spans"), what="the commit")
        kept = committed(kafka, "otlp_spans").values()
        assert sum(mark.upto - mark.offset for mark in kept) >= 6, "open traces hold the commit back"
        first.server.kill()
        server.start()
        other = start_processor(forward_endpoint=backend.url, spill_s=1.0)
        for trace_id in ids:
            send(collector, encode(run(trace_id)[2:]))
        for trace_id in ids:
            verdict = other.verdict(trace_id)
            assert (verdict["agent"], verdict["version"]) == ("planner", 1)
            backend.await_spans(TraceId(trace_id), SPANS + CARRIERS)
            assert set(times_each(backend, trace_id).values()) == {1}
        wait_until(lambda: spilled(server) == 0, what="the deletion of what has a verdict")


def spilled(server: PostgresServer) -> int:
    """Return how many parts of traces are in the store."""
    with psycopg.connect(server.url()) as db:
        row = db.execute("SELECT count(*) FROM spilled_part").fetchone()
    return 0 if row is None else int(row[0])


def test_a_rebalance_in_the_middle_of_a_trace_costs_neither_spans_nor_verdicts(
    start_processor: StartProcessor, collector: Doors
) -> None:
    ids = [name(number) for number in range(24)]
    with grpc_backend() as backend:
        first = start_processor(forward_endpoint=backend.url, root_grace=3_000)
        for trace_id in ids:
            send(collector, encode(run(trace_id)[:2]))
        for trace_id in ids:
            backend.await_spans(TraceId(trace_id), 2)
        second = start_processor(forward_endpoint=backend.url, root_grace=3_000)
        wait_until(lambda: second.said("partitions assigned"), what="the second to join")
        for trace_id in ids:
            send(collector, encode(run(trace_id)[2:]))
        for trace_id in ids:
            assert second.verdict(trace_id)["version"] == 1, "either page shows every run"
            backend.await_spans(TraceId(trace_id), SPANS + CARRIERS)
            assert set(times_each(backend, trace_id).values()) == {1}
        assert first.items("forwarded") + second.items("forwarded") == SPANS * len(ids)
        assert all(line.sample("blamespan_open_traces") == 0 for line in (first, second))
        assert second.terminate() == 0
        send(collector, encode(run(name(99))))
        assert first.verdict(name(99))["agent"] == "planner", "what the second had comes back"


def test_halves_that_are_looked_up_during_a_rebalance_are_left_to_the_new_owner(
    start_processor: StartProcessor, kafka: KafkaBroker, server: PostgresServer
) -> None:
    """The survivor of a kill has all partitions, until a replacement joins and takes half of them over."""
    ids = [name(number) for number in range(48)]
    with grpc_backend() as backend, psycopg.connect(server.url()) as db:
        first = start_processor(forward_endpoint=backend.url)
        wait_until(lambda: first.sample(OWNED), what="partitions")
        db.execute("LOCK TABLE analysed")  # the lookups wait
        produce(kafka, ids, slice(2))
        wait_until(lambda: len(arrived(backend)) == 2 * len(ids), what="the halves")
        other = start_processor(forward_endpoint=backend.url)
        wait_until(lambda: other.sample(OWNED) == first.sample(OWNED), what="the replacement's partitions")
        db.commit()
        produce(kafka, ids, slice(2, None))
        wait_until(lambda: verdict_versions(server) == dict.fromkeys(ids, 1), what="one verdict each")
        wait_until(
            lambda: all(line.sample("blamespan_open_traces") == 0 for line in (first, other)),
            what="no open trace",
            timeout_s=60,
        )
        wanted = {(one.trace_id, one.span_id) for trace_id in ids for one in run(trace_id)}
        assert wanted <= arrived(backend), "no span is lost"


def produce(kafka: KafkaBroker, ids: Sequence[str], part: slice) -> None:
    """Write some spans of each run to its partition, as the Collector's exporter does."""
    producer = Producer({"bootstrap.servers": kafka.address, "partitioner": "fnv1a"})
    for trace_id in ids:
        producer.produce("otlp_spans", encode(run(trace_id)[part]), key=trace_id)
    assert producer.flush(60) == 0


def arrived(backend: Backend) -> set[tuple[str, str]]:
    """Return the trace and span ids of all spans that came."""
    spans = [one for request in backend.of(Signal.TRACES) for one in placed(request.body)]
    return {(one.span.trace_id.hex(), one.id) for one in spans}


def verdict_versions(server: PostgresServer) -> Mapping[str, int]:
    """Return the version of each run's final verdict."""
    with psycopg.connect(server.url()) as db:
        return dict(
            db.execute("SELECT run_id, max(version) FROM verdict WHERE NOT is_provisional GROUP BY run_id")
        )


def test_a_broker_that_restarts_loses_nothing(
    start_processor: StartProcessor, collector: Doors, kafka: KafkaBroker
) -> None:
    with grpc_backend() as backend:
        line = start_processor(forward_endpoint=backend.url)
        send(collector, encode(run(name(1))))
        assert line.verdict(name(1))["agent"] == "planner"
        kafka.kill()
        kafka.start()
        send(line, encode(run(name(2))))
        send(collector, encode(run(name(3))))
        for number in (2, 3):
            assert line.verdict(name(number))["agent"] == "planner"
            backend.await_spans(TraceId(name(number)), SPANS + CARRIERS)


def test_a_hot_partition_delays_only_its_own_commit(
    start_processor: StartProcessor, collector: Doors, kafka: KafkaBroker
) -> None:
    """Of all traces nine in ten are in one partition, and open: the others are judged and committed."""
    ids = [name(number) for number in range(2_000)]
    hot = [one for one in ids if partition_of(one.encode(), PARTITIONS) == 0][:180]
    cold = [one for one in ids if partition_of(one.encode(), PARTITIONS) != 0][:20]
    with grpc_backend() as backend:
        line = start_processor(forward_endpoint=backend.url)
        for trace_id in hot:  # without their root they stay open
            send(collector, encode(run(trace_id)[:1]))
        for trace_id in cold:
            send(collector, encode(run(trace_id)))
        for trace_id in cold:
            assert line.verdict(trace_id)["agent"] == "planner"
        line.await_items("forwarded", len(hot) + SPANS * len(cold))
        others = {partition_of(one.encode(), PARTITIONS) for one in cold}

        def are_committed() -> bool:
            marks = committed(kafka, "otlp_spans")
            are_done = all(one in marks and marks[one].offset == marks[one].upto for one in others)
            return are_done and 0 in marks and marks[0].upto == len(hot)

        wait_until(are_committed, what="the commits")
        assert committed(kafka, "otlp_spans")[0].offset == 0, "open traces keep their records"


def test_partitions_of_a_dead_processor_are_taken_over_within_its_session(
    start_processor: StartProcessor,
) -> None:
    with grpc_backend() as backend:
        first = start_processor(forward_endpoint=backend.url)
        second = start_processor(forward_endpoint=backend.url)
        lines = (first, second)
        wait_until(lambda: all(line.sample(OWNED) for line in lines), what="both to have partitions")
        whole = sum(line.sample(OWNED) for line in lines)
        began = monotonic()
        first.server.kill()
        wait_until(lambda: second.sample(OWNED) == whole, what="the second to have all of them")
        assert monotonic() - began < 30  # Kafka's own default, 45 s, would take longer than our 10 s


def test_an_unreadable_record_is_set_aside_and_the_next_is_read(
    start_processor: StartProcessor, kafka: KafkaBroker, tmp_path: Path
) -> None:
    with grpc_backend() as backend:
        line = start_processor(forward_endpoint=backend.url)
        producer = Producer({"bootstrap.servers": kafka.address, "partitioner": "fnv1a"})
        for number, value in enumerate((encode(run(name(1))), b"\xff not OTLP", encode(run(name(2))))):
            producer.produce("otlp_spans", value, key="same", partition=0, headers={"place": str(number)})
        assert producer.flush(60) == 0
        for number in (1, 2):
            assert line.verdict(name(number))["agent"] == "planner"
        aside = list((tmp_path / "processor-1" / "data" / "kafka-unreadable").iterdir())
        assert [file.read_bytes() for file in aside] == [b"\xff not OTLP"]
        wait_until(lambda: committed(kafka, "otlp_spans")[0].offset == 3, what="the commit behind it")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        pytest.param({}, "expects BLAMESPAN_STORE_URL=postgresql://", id="store in a file"),
        pytest.param(
            {"store_url": "postgresql+psycopg://nowhere/db", "write_back": "hold"},
            "BLAMESPAN_WRITE_BACK=hold: expected late",
            id="hold",
        ),
        pytest.param(
            {"queue": "kafka://user:secret@host:9092"}, "together with security.protocol", id="secret"
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_at_the_start(
    settings: Mapping[str, str], told: str, tmp_path: Path
) -> None:
    environ = environment(**{"queue": "kafka://127.0.0.1:9", "data_dir": str(tmp_path), **settings})
    command = [sys.executable, "-m", "analyzer", "serve"]
    done = ran(command, environ=environ)
    assert (done.returncode, done.stderr.strip().count("\n")) == (2, 0)
    assert told in done.stderr
