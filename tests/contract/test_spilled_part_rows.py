"""Spilled parts of open traces in every database: each once, pages of a partition, deletion and age."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from collector_processor.core.records import SpilledPart
from collector_processor.kafka.spilling import pack, unpack
from collector_processor.otlp import NO_TENANT, Tenant, TraceKey
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.deletion import delete_run, delete_tenant
from collector_processor.store.small_tables import SPILLED_S, SpilledPartRows
from semconv.model import TraceId

ACME: Final = Tenant("x=acme")
NS: Final = 10**9


def part(first: int, trace: int = 1, *, tenant: Tenant = NO_TENANT, partition: int = 0) -> SpilledPart:
    return SpilledPart(
        topic="spans",
        partition=partition,
        first=first,
        last=first + 1,
        key=TraceKey(tenant, TraceId(f"{trace:032x}")),
        packed=pack(f"{first} {trace} {tenant}".encode()),
    )


def below(rows: SpilledPartRows, offset: int, partition: int = 0, page: int = 2) -> list[SpilledPart]:
    found: list[SpilledPart] = []
    while some := rows.of("spans", partition, offset, found[-1] if found else None, page):
        found += some
    return found


def test_parts_of_a_partition_below_an_offset_are_read_in_pages_each_once(db: StoreConnection) -> None:
    rows = SpilledPartRows(db)
    parts = [part(1), part(1, trace=2), part(1, trace=2, tenant=ACME), part(3), part(9), part(12)]
    rows.keep([*parts, part(2, partition=1)], 0)
    rows.keep(parts[:2], 0)
    assert below(rows, 12) == parts[:5]
    assert below(rows, 12, page=100) == parts[:5]
    assert below(rows, 12, partition=1) == [part(2, partition=1)]
    assert rows.of("logs", 0, 99, None, 9) == []


def test_parts_from_an_offset_on_are_dropped_of_this_partition_alone(db: StoreConnection) -> None:
    rows = SpilledPartRows(db)
    rows.keep([part(1), part(5), part(6), part(6, partition=1)], 0)
    rows.drop("spans", 0, 5, until_ns=0)
    assert below(rows, 99) == [part(1)]
    assert below(rows, 99, partition=1) == [part(6, partition=1)]


def test_what_was_written_after_a_time_is_not_dropped(db: StoreConnection) -> None:
    rows = SpilledPartRows(db)
    rows.keep([part(1)], 5)
    rows.keep([part(2)], 6)
    rows.drop("spans", 0, 0, until_ns=5)
    assert below(rows, 99) == [part(2)]


def test_a_part_that_is_written_again_keeps_its_longest_form(db: StoreConnection) -> None:
    rows = SpilledPartRows(db)
    longest = replace(part(1), last=9)
    for one in (part(1), longest, part(1)):
        rows.keep([one], 0)
    assert below(rows, 99) == [longest]


def test_pages_end_at_a_size_and_a_larger_part_is_a_page(db: StoreConnection) -> None:
    rows = SpilledPartRows(db)
    parts = [replace(part(first), packed=bytes(size << 20)) for first, size in enumerate((3, 3, 3, 9, 1))]
    rows.keep(parts, 0)
    pages = [rows.of("spans", 0, 99, after, 64) for after in (None, parts[2], parts[3])]
    assert pages == [parts[:3], parts[3:4], parts[4:]]


def test_a_trace_is_forgotten_in_all_partitions_and_not_another_tenants_of_that_id(
    db: StoreConnection,
) -> None:
    rows = SpilledPartRows(db)
    rows.keep([part(1), part(4), part(1, partition=1), part(2, tenant=ACME), part(3, trace=2)], 0)
    rows.forget([part(1).key])
    assert below(rows, 99) == [part(2, tenant=ACME), part(3, trace=2)]
    assert below(rows, 99, partition=1) == []


def test_parts_that_are_never_deleted_expire(db: StoreConnection) -> None:
    rows = SpilledPartRows(db)
    rows.keep([part(1)], 0)
    rows.keep([part(2)], SPILLED_S * NS)
    assert below(rows, 99) == [part(1), part(2)]
    rows.keep([part(3)], SPILLED_S * NS + 1)
    assert below(rows, 99) == [part(2), part(3)]


def test_a_damaged_part_says_so() -> None:
    whole = pack(b"spans" * 99)
    assert unpack(whole) == b"spans" * 99
    for damaged in (b"", whole[:-1], whole[:9] + b"\0" + whole[10:]):
        with pytest.raises(ValueError, match="expected a whole part"):
            unpack(damaged)


def test_parts_are_deleted_with_their_run_and_their_tenant(db: StoreConnection) -> None:
    rows = SpilledPartRows(db)
    ours = [part(1), part(2, trace=2), part(3, trace=3)]
    theirs = [part(1, tenant=ACME), part(4, trace=4, tenant=ACME)]
    rows.keep([*ours, *theirs], 0)
    linked = (NO_TENANT, ours[1].key.trace_id, ours[0].key.trace_id, b"")
    db.execute("INSERT INTO run_part (tenant, trace_id, run_id, digest) VALUES (?, ?, ?, ?)", linked)
    delete_run(db, NO_TENANT, ours[0].key.trace_id)
    assert below(rows, 99) == [theirs[0], ours[2], theirs[1]]
    delete_tenant(db, ACME)
    assert below(rows, 99) == [ours[2]]
