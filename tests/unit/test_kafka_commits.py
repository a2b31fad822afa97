"""Commits: only what Kafka took is known to be committed, and refusals are counted by their reason."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, TopicPartition

from collector_processor.kafka.custody import Counts
from collector_processor.kafka.progress import Mark
from collector_processor.kafka.reader import Commits
from collector_processor.kafka.record_form import Place

ONE, OTHER = Place("spans", 0), Place("spans", 1)
MARKS = {ONE: Mark(offset=5), OTHER: Mark(offset=9)}


class Answer(TopicPartition):
    """An answer about one partition, which only the client itself can give an error."""

    error: KafkaError | None = None


def answer(place: Place, code: int | None = None) -> Answer:
    made = Answer(place.topic, place.partition)
    made.error = None if code is None else KafkaError(code)
    return made


def test_accepted_records_are_not_sent_again() -> None:
    commits = Commits(Counts())
    assert commits.news(MARKS) == MARKS
    assert commits.answered(MARKS, [answer(ONE), answer(OTHER)]) == []
    assert commits.news(MARKS | {ONE: Mark(offset=6)}) == {ONE: Mark(offset=6)}


def test_a_partition_that_was_refused_is_sent_again_and_its_neighbour_is_not() -> None:
    counts = Counts()
    commits = Commits(counts)
    errors = commits.answered(MARKS, [answer(ONE), answer(OTHER, KafkaError.ILLEGAL_GENERATION)])
    assert [error.code() for error in errors] == [KafkaError.ILLEGAL_GENERATION]
    assert commits.news(MARKS) == {OTHER: MARKS[OTHER]}
    assert (counts.stale_commits, counts.failed_commits) == (1, 0)


@pytest.mark.parametrize(
    ("code", "stale", "failed"),
    [
        (KafkaError.UNKNOWN_MEMBER_ID, 1, 0),
        (KafkaError.REBALANCE_IN_PROGRESS, 1, 0),
        (KafkaError._ASSIGNMENT_LOST, 1, 0),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, 0, 1),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, 0, 1),
        (KafkaError._TRANSPORT, 0, 1),
    ],
)
def test_only_another_owner_makes_a_commit_stale(code: int, stale: int, failed: int) -> None:
    counts = Counts()
    Commits(counts).refused(KafkaError(code))
    assert (counts.stale_commits, counts.failed_commits) == (stale, failed)


def test_a_partition_that_comes_back_is_committed_again() -> None:
    commits = Commits(Counts())
    commits.answered(MARKS, ())
    commits.forget([ONE])
    assert commits.news(MARKS) == {ONE: MARKS[ONE]}
