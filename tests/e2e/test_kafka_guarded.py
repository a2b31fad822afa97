"""Kafka with encryption and passwords, records above its limit, deleted records, and a member that slept."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest
from confluent_kafka import TopicPartition
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from collector_processor.rebuild.encode import encode
from semconv.model import TraceId
from semconv.record import replace
from tests.backends import install
from tests.backends.fixtures import insist_on
from tests.backends.kafka_broker import KafkaBroker, Locks, start_kafka
from tests.backends.postgresql import PostgresServer, postgresql
from tests.backends.supervise import HOST, wait_until
from tests.e2e.backend import grpc_backend
from tests.e2e.kafka_group import StartProcessor, committed, is_forwarded, processors
from tests.e2e.line import Line
from tests.e2e.test_doctor import consult
from tests.e2e.test_kafka import SLOW, SPANS, name, times_each
from tests.e2e.test_postgresql import run
from tests.e2e.traffic import CARRIERS, send
from tests.security.authority import Identity, issue

USER: Final = "blamespan"
PASSWORD: Final = "correct-horse-9"
OF_ALL_TOPICS: Final = 18
"""Partitions of three topics."""


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return issue(tmp_path_factory.mktemp("tls") / "broker", name=HOST)


@pytest.fixture(scope="module")
def broker(identity: Identity, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    folder = tmp_path_factory.mktemp("broker")
    key = load_pem_private_key(identity.key.read_bytes(), None)
    written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    keystore = folder / "keystore.pem"
    keystore.write_bytes(written + identity.certificate.read_bytes())
    locks = Locks(keystore=keystore, authority=identity.authority, user=USER, password=PASSWORD)
    with start_kafka(insist_on("kafka", install.kafka_binary()), folder / "kafka", locks) as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgresql() as running:
        yield running


@pytest.fixture
def start_processor(tmp_path: Path, broker: KafkaBroker, server: PostgresServer) -> Iterator[StartProcessor]:
    with processors(tmp_path, broker, server) as start:
        yield start


def topics(broker: KafkaBroker, word: str, config: dict[str, str] | None = None) -> str:
    """Create three topics, and return the part of the URL that names them and a group of their own."""
    names = [f"{word}_{signal}" for signal in ("traces", "logs", "metrics")]
    broker.create(*names, config=config)
    return f"topics={','.join(names)}&group.id={word}"


def partitions(line: Line) -> float:
    return line.sample("blamespan_kafka_partitions")


@pytest.mark.parametrize("by", ["sasl", "mutual"])
def test_a_processor_signs_in_by_password_or_certificate_and_no_password_appears(
    start_processor: StartProcessor, broker: KafkaBroker, identity: Identity, by: str
) -> None:
    files = f"&ssl.certificate.location={identity.certificate}&ssl.key.location={identity.key}"
    who, port, protocol, more = {
        "sasl": (f"{USER}:{PASSWORD}@", broker.sasl_port, "sasl_ssl", ""),
        "mutual": ("", broker.mutual_port, "ssl", files),
    }[by]
    url = f"kafka://{who}{HOST}:{port}?{topics(broker, by)}&security.protocol={protocol}"
    with grpc_backend() as backend:
        queue = f"{url}&ssl.ca.location={identity.authority}{more}"
        line = start_processor(forward_endpoint=backend.url, queue=queue)
        send(line, encode(run(name(1))))
        assert line.verdict(name(1))["agent"] == "planner"
        assert PASSWORD not in line.server.log.read_text(errors="replace")


def test_a_wrong_password_is_found_by_doctor_and_not_repeated(
    broker: KafkaBroker, server: PostgresServer, identity: Identity, tmp_path: Path
) -> None:
    properties = f"security.protocol=sasl_ssl&ssl.ca.location={identity.authority}"
    code, found = consult(
        tmp_path,
        queue=f"kafka://{USER}:wrong-horse@{HOST}:{broker.sasl_port}?{properties}",
        store_url=server.url(),
    )
    assert (code, found["Kafka"]["status"]) == (1, "failed")
    assert "uthentication failed" in found["Kafka"]["detail"]
    assert "wrong-horse" not in str(found)


def test_a_request_with_a_record_above_the_brokers_limit_is_refused_and_others_pass(
    start_processor: StartProcessor, broker: KafkaBroker
) -> None:
    chosen = topics(broker, "small", {"max.message.bytes": "20000"})
    with grpc_backend() as backend:
        line = start_processor(forward_endpoint=backend.url, queue=f"{broker.url}?{chosen}")
        large = run(name(3))
        large[0] = replace(large[0], attributes={**large[0].attributes, "text": os.urandom(40_000).hex()})
        with pytest.raises(grpc.RpcError, match="Message size too large"):
            send(line, encode(large))
        send(line, encode(run(name(4))))
        assert line.verdict(name(4))["agent"] == "planner"
        assert not times_each(backend, name(3))


def test_a_trace_whose_first_records_kafka_has_deleted_is_judged_by_the_rest(
    start_processor: StartProcessor, broker: KafkaBroker
) -> None:
    """The retention ended before the trace: what was forwarded is in the backend, and reading goes on."""
    chosen = topics(broker, "short")
    with grpc_backend() as backend:
        first = start_processor(forward_endpoint=backend.url, **SLOW, queue=f"{broker.url}?{chosen}")
        send(first, encode(run(name(5))[:2]))
        backend.await_spans(TraceId(name(5)), 2)
        wait_until(lambda: is_forwarded(broker, "short_traces", "short"), what="the commit")
        first.server.kill()
        places = committed(broker, "short_traces", "short")
        ends = [TopicPartition("short_traces", number, -1) for number in places]
        broker.administer(lambda admin: admin.delete_records(ends).values())
        other = start_processor(forward_endpoint=backend.url, queue=f"{broker.url}?{chosen}")
        send(other, encode(run(name(5))[2:]))
        send(other, encode(run(name(6))))
        backend.await_spans(TraceId(name(6)), SPANS + CARRIERS)
        for number in (5, 6):
            assert other.verdict(name(number))["version"] == 1
            assert len(times_each(backend, name(number))) >= SPANS
            assert set(times_each(backend, name(number)).values()) == {1}


def test_a_processor_that_slept_past_its_session_commits_nothing_of_partitions_it_lost(
    start_processor: StartProcessor, broker: KafkaBroker
) -> None:
    chosen = topics(broker, "stale")
    ids = [name(number) for number in range(10, 22)]
    with grpc_backend() as backend:
        first = start_processor(
            forward_endpoint=backend.url, root_grace=3_000, queue=f"{broker.url}?{chosen}"
        )
        for trace_id in ids:
            send(first, encode(run(trace_id)[:2]))
        for trace_id in ids:
            backend.await_spans(TraceId(trace_id), 2)
        second = start_processor(
            forward_endpoint=backend.url, root_grace=3_000, queue=f"{broker.url}?{chosen}"
        )
        wait_until(lambda: partitions(second) > 0, what="the second to join")
        os.kill(first.server.process.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: partitions(second) == OF_ALL_TOPICS, what="it to own all")
            for trace_id in ids:
                send(second, encode(run(trace_id)[2:]))
            for trace_id in ids:
                assert second.verdict(trace_id)["version"] == 1
        finally:
            os.kill(first.server.process.pid, signal.SIGCONT)
        wait_until(lambda: 0 < partitions(first) < OF_ALL_TOPICS, what="it to come back")
        send(first, encode(run(name(30))))
        assert second.verdict(name(30))["version"] == 1
        for trace_id in ids:
            backend.await_spans(TraceId(trace_id), SPANS + CARRIERS)
            assert second.verdict(trace_id)["version"] == 1
