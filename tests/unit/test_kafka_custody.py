"""Custody of Kafka's records: their form, commits, hostile ones, and questions to new topics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from collector_processor.forwarding.ledger import Ledger
from collector_processor.journal import open_journal
from collector_processor.journal.chunks import Chunk
from collector_processor.kafka.custody import Counts, Custody
from collector_processor.kafka.progress import Mark
from collector_processor.kafka.reader import Commits, record_in
from collector_processor.kafka.record_form import Headers, Place, Record, headers_of, origin_of, pieces
from collector_processor.kafka.survey import patiently
from collector_processor.otlp import HOP_HEADER, MalformedRequestError, Signal, Tenant, TraceKey
from collector_processor.receivers.intake import Intake, IntakeRules
from collector_processor.wire.scan import scan_request
from tests.otlp_requests import numbers_in, request, span, trace_name

PLACE = Place("otlp_spans", 0)
TENANT = "x-scope-orgid"


@dataclass(slots=True)
class Reading:
    """The custody of one partition, with lanes that record what they get."""

    custody: Custody
    offered: list[Chunk] = field(default_factory=list)

    def offer(self, chunk: Chunk) -> None:
        self.offered.append(chunk)

    def discard(self, seqs: Iterable[int]) -> frozenset[int]:
        return frozenset(seqs)

    def is_unsettled(self, _key: TraceKey) -> bool:
        return False

    def abandon(self, keys: Iterable[TraceKey]) -> None:
        del keys

    @property
    def numbers(self) -> list[int]:
        return numbers_in(*(chunk.body for chunk in self.offered))

    async def take(self, *values: bytes, headers: Headers = ()) -> None:
        await self.custody.take(
            [
                Record(place=PLACE, offset=offset, headers=headers, value=value)
                for offset, value in enumerate(values)
            ]
        )


@asynccontextmanager
async def reading(folder: Path) -> AsyncIterator[Reading]:
    journal = await open_journal(folder / "journal")
    custody = Custody(journal, {PLACE.topic: Signal.TRACES}, (TENANT,), folder / "aside")
    lanes, ledger = Reading(custody), Ledger(journal.held_items)
    intake = Intake(
        journal, ledger, lanes, IntakeRules(instance_id="us", now_ns=lambda: 42, feed=lambda _arrival: None)
    )
    custody.attach(intake, lanes, ledger, lanes)
    await custody.assigned({PLACE: Mark(offset=0)})
    yield lanes
    await journal.close()


@pytest.mark.parametrize(
    "headers",
    [
        [(TENANT, b"\xff")],
        [(TENANT, "a\r\nx-evil: 1")],
        [(TENANT, b"a\0b")],
        [(TENANT, b"a" * 100_000)],
        [(HOP_HEADER, "fr\u00fc".encode())],
    ],
)
async def test_headers_that_every_backend_would_refuse_do_not_reach_the_forwarder(
    tmp_path: Path, headers: Headers
) -> None:
    async with reading(tmp_path) as lanes:
        await lanes.take(request(span(1)), request(span(2)), headers=headers)
        await lanes.take(request(span(3)))
        assert lanes.numbers == [3]
        assert lanes.custody.counts.aside == 2
        assert len(list((tmp_path / "aside").iterdir())) == 2


async def test_names_of_headers_that_are_not_utf_8_do_not_stop_the_reader(tmp_path: Path) -> None:
    class Unreadable:
        """A message as confluent-kafka returns it when a header's name is ``b"\\xff"``."""

        def headers(self) -> None:
            raise SystemError("<method 'headers'> returned a result with an exception set")

        def topic(self) -> str:
            return PLACE.topic

        def partition(self) -> int:
            return PLACE.partition

        def offset(self) -> int:
            return 1

        def value(self) -> bytes:
            return request(span(2))

    first, last = (Record(place=PLACE, offset=offset, value=request(span(offset + 1))) for offset in (0, 2))
    unreadable: Any = Unreadable()
    async with reading(tmp_path) as lanes:
        await lanes.custody.take([first, record_in(unreadable), last])
        assert lanes.numbers == [1, 3]
        assert [each.name for each in (tmp_path / "aside").iterdir()] == ["otlp_spans-0-1"]


async def test_records_set_aside_are_bounded_and_readable_by_the_operator_only(tmp_path: Path) -> None:
    async with reading(tmp_path) as lanes:
        await lanes.take(*[b"\xff" * (10 << 20)] * 8)
        assert lanes.custody.counts.aside == 8
        kept = [each.stat() for each in (tmp_path / "aside").iterdir()]
    assert 10 << 20 <= sum(each.st_size for each in kept) <= 64 << 20
    assert {each.st_mode & 0o777 for each in kept} == {0o600}


async def test_a_record_that_is_cut_short_swallows_no_neighbour(tmp_path: Path) -> None:
    victim = request(span(2))
    swallowing = request(span(1)) + bytes([15 << 3 | 2, 0x80 | len(victim) & 0x7F, len(victim) >> 7])
    async with reading(tmp_path) as lanes:
        await lanes.take(swallowing, victim, request(span(3)))
        assert lanes.numbers == [2, 3]
        assert lanes.custody.counts.aside == 1


async def test_records_without_a_value_are_passed_over(tmp_path: Path) -> None:
    async with reading(tmp_path) as lanes:
        await lanes.take(b"", request(span(1)), b"")
        assert lanes.numbers == [1]
        assert (await lanes.custody.marks())[PLACE].upto == 3


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


WHOLE = 1 << 20


def test_each_trace_is_a_record_and_no_span_is_left_out() -> None:
    body = request(*(span(number, trace=1 + number % 3) for number in range(9)))
    records = list(pieces(Signal.TRACES, body, WHOLE))
    assert [key for key, _ in records] == [trace_name(number) for number in (1, 2, 3)]
    assert [scan_request(Signal.TRACES, value, ()).item_count for _, value in records] == [3, 3, 3]


def test_a_large_trace_is_split_between_spans() -> None:
    body = request(*(span(number, trace=1, attributes={"text": "x" * 400}) for number in range(50)))
    records = list(pieces(Signal.TRACES, body, 4_000))
    assert len(records) > 5
    assert {key for key, _ in records} == {trace_name(1)}
    assert max(len(value) for _, value in records) <= 4_000
    assert sum(scan_request(Signal.TRACES, value, ()).item_count for _, value in records) == 50


def test_metrics_have_no_key() -> None:
    assert list(pieces(Signal.METRICS, b"", WHOLE)) == [(None, b"")]


def test_unreadable_bytes_are_refused() -> None:
    with pytest.raises(MalformedRequestError):
        list(pieces(Signal.TRACES, b"\xff", WHOLE))


def test_tenant_and_hops_travel_as_headers() -> None:
    tenant = Tenant("x-scope-orgid=red+%26+blue")
    headers = headers_of(tenant, ("far", "near"))
    assert dict(headers) == {"x-scope-orgid": b"red & blue", HOP_HEADER: b"far,near"}
    assert origin_of(headers, ("x-scope-orgid",)) == (tenant, ("far", "near"))
    assert origin_of([("X-Scope-OrgId", b"a"), ("other", None)], ("x-scope-orgid",)) == (
        "x-scope-orgid=a",
        (),
    )


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
