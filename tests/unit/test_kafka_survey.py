"""Questions to brokers whose topics or groups are new are asked again, and no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from collector_processor.kafka.survey import patiently


class MadeUpClock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def refusing(code: int, times: int) -> Callable[[], str]:
    left = [KafkaException(KafkaError(code))] * times

    def ask() -> str:
        if left:
            raise left.pop()
        return "answer"

    return ask


@pytest.mark.parametrize("code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.COORDINATOR_NOT_AVAILABLE])
def test_a_new_topic_or_group_is_waited_for(code: int) -> None:
    clock = MadeUpClock()
    assert patiently(refusing(code, 3), 30, clock) == "answer"
    assert 0 < clock.now < 10


def test_waiting_for_the_cluster_has_a_limit() -> None:
    clock = MadeUpClock()
    with pytest.raises(KafkaException):
        patiently(refusing(KafkaError.LEADER_NOT_AVAILABLE, 1_000), 30, clock)
    assert 20 < clock.now < 60


def test_a_refusal_is_not_asked_again() -> None:
    clock = MadeUpClock()
    with pytest.raises(KafkaException):
        patiently(refusing(KafkaError.TOPIC_AUTHORIZATION_FAILED, 1), 30, clock)
    assert clock.now == 0
