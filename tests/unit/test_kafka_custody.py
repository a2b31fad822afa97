"""Hostile records: each is set aside alone, and its neighbours are handed on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from collector_processor.forwarding.ledger import Ledger
from collector_processor.journal import open_journal
from collector_processor.journal.chunks import Chunk
from collector_processor.kafka.custody import Custody
from collector_processor.kafka.progress import Mark
from collector_processor.kafka.reader import record_in
from collector_processor.kafka.record_form import Headers, Place, Record
from collector_processor.otlp import HOP_HEADER, Signal, TraceKey
from collector_processor.receivers.intake import Intake, IntakeRules
from tests.otlp_requests import numbers_in, request, span

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
