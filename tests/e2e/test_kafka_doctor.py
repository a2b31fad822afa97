"""``blamespan doctor`` and a real Kafka: what it finds, and that it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.backends import install
from tests.backends.fixtures import insist_on
from tests.backends.kafka_broker import TOPICS, KafkaBroker, start_kafka
from tests.backends.postgresql import PostgresServer, postgresql
from tests.backends.supervise import HOST, free_ports
from tests.e2e.test_doctor import consult

KEYS: Final = tuple(f"{number:032x}" for number in range(12))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    folder = tmp_path_factory.mktemp("broker")
    with start_kafka(insist_on("kafka", install.kafka_binary()), folder / "kafka") as broker:
        broker.create()
        yield broker


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgresql() as running:
        yield running


def write(broker: KafkaBroker, topic: str, partitioner: str, *, has_keys: bool = True) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "partitioner": partitioner})
    for key in KEYS:
        producer.produce(topic, b"", key=key if has_keys else None)
    assert producer.flush(60) == 0


def test_a_cluster_without_a_fault_is_described(
    kafka: KafkaBroker, server: PostgresServer, tmp_path: Path
) -> None:
    kafka.create("traces_a", "logs_a", "metrics_a", config={"retention.ms": "-1"})
    write(kafka, "traces_a", "fnv1a_random")
    asked = {"queue": f"{kafka.url}?topics=traces_a,logs_a,metrics_a", "store_url": server.url()}
    code, found = consult(tmp_path, **asked)
    assert (code, found["Kafka"]["status"]) == (0, "ok"), found
    assert "partitions: traces_a 6, logs_a 6, metrics_a 6" in found["Kafka"]["detail"]
    assert "the group blamespan is 12 records behind" in found["Kafka"]["detail"]
    assert consult(tmp_path, **asked)[1]["Kafka"] == found["Kafka"], "it commits nothing"
    (groups,) = kafka.administer(lambda admin: [admin.list_consumer_groups(request_timeout=60)])
    assert groups.valid == [], "it joins no group"


def test_records_whose_keys_were_hashed_differently_are_found(
    kafka: KafkaBroker, server: PostgresServer, tmp_path: Path
) -> None:
    kafka.create("traces_b", "logs_b", "metrics_b")
    write(kafka, "traces_b", "murmur2_random")
    asked = {"queue": f"{kafka.url}?topics=traces_b,logs_b,metrics_b", "store_url": server.url()}
    _, found = consult(tmp_path, **asked)
    assert found["Kafka"]["status"] == "warning", found["Kafka"]
    assert "of the newest 12 records of traces_b are in another partition" in found["Kafka"]["detail"]


def test_records_without_a_key_are_found(kafka: KafkaBroker, server: PostgresServer, tmp_path: Path) -> None:
    kafka.create("traces_c", "logs_c", "metrics_c")
    write(kafka, "traces_c", "fnv1a_random", has_keys=False)
    asked = {"queue": f"{kafka.url}?topics=traces_c,logs_c,metrics_c", "store_url": server.url()}
    _, found = consult(tmp_path, **asked)
    assert "12 of the newest records of traces_c have no key" in found["Kafka"]["detail"]
    assert "partition_traces_by_id" in found["Kafka"]["mend"]


@pytest.mark.parametrize(
    ("config", "status", "words"),
    [
        ({"retention.ms": "60000"}, "warning", "keeps records for 60 s, and a trace may stay open for"),
        (
            {"max.message.bytes": "5000", "retention.ms": "-1"},
            "failed",
            "takes records of up to 5000 bytes; we may send",
        ),
    ],
)
def test_limits_of_a_topic_that_cost_spans_are_found(  # noqa: PLR0917
    kafka: KafkaBroker,
    server: PostgresServer,
    tmp_path: Path,
    config: dict[str, str],
    status: str,
    words: str,
) -> None:
    topic = f"traces_{status}"
    kafka.create(topic, config=config)
    asked = {
        "queue": f"{kafka.url}?topics={topic},{TOPICS[1]},{TOPICS[2]}",
        "store_url": server.url(),
    }
    _, found = consult(tmp_path, **asked)
    assert (found["Kafka"]["status"], words in found["Kafka"]["detail"]) == (status, True), found["Kafka"]


def test_a_missing_topic_and_an_unreachable_broker_fail_with_a_reason(
    kafka: KafkaBroker, server: PostgresServer, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    for settings, words in (
        ({"queue": f"{kafka.url}?topics=none,otlp_logs,otlp_metrics"}, "there is no topic none"),
        ({"queue": f"kafka://{HOST}:{port}"}, f"{HOST}:{port}: "),
    ):
        code, found = consult(tmp_path, store_url=server.url(), **settings)
        assert (code, found["Kafka"]["status"]) == (1, "failed")
        assert words in found["Kafka"]["detail"]
