"""Bytes and time of spilled parts in a real PostgreSQL: ``python -m benchmarks.group.spilled``.

Each part is one of the four requests of a run of 20 spans (``disturbed``). The parts are written as a
processor does it, 64 in a transaction; then they are read as by a partition's next owner, and deleted.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from typing import Final

from benchmarks.group.disturbed import SPANS, make_run
from collector_processor.otlp import NO_TENANT, TraceKey
from collector_processor.store.database.connection import StoreConnection
from collector_processor.store.database.places import open_database
from collector_processor.store.spilled_parts import SpilledPart, SpilledPartRows, pack
from tests.backends.postgresql import postgresql

_AT_ONCE: Final = 64
_TOPIC: Final = "otlp_spans"


def make_parts(runs: int) -> Iterator[SpilledPart]:
    """Yield the parts of runs, each in a record of its own."""
    chance, offsets = random.Random(0), count()
    for _ in range(runs):
        run = make_run(chance)
        for body in run.bodies:
            offset = next(offsets)
            yield SpilledPart(
                topic=_TOPIC,
                partition=0,
                first=offset,
                last=offset,
                key=TraceKey(NO_TENANT, run.trace_id),
                packed=pack(body),
            )


def measure(db: StoreConnection, parts: Sequence[SpilledPart]) -> Iterator[tuple[str, float]]:
    """Write, read and delete parts; yield what each took."""
    rows, spans = SpilledPartRows(db), SPANS * len({part.key for part in parts})

    def write() -> None:
        for start in range(0, len(parts), _AT_ONCE):
            rows.keep(parts[start : start + _AT_ONCE], time.time_ns())

    def read() -> None:
        last: SpilledPart | None = None
        while page := rows.of(_TOPIC, 0, len(parts), last, _AT_ONCE):
            last = page[-1]

    yield "µs a span to write", 1e6 * _timed(write) / spans
    size = db.execute("SELECT pg_total_relation_size('spilled_part')").fetchone()[0]
    yield "bytes of a span in PostgreSQL, with indexes", size / spans
    yield "of these, its compressed spans", sum(len(part.packed) for part in parts) / spans
    yield "µs a span to read", 1e6 * _timed(read) / spans
    keys = list({part.key for part in parts})
    yield "µs a span to delete", 1e6 * _timed(lambda: rows.forget(keys)) / spans


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.group.spilled", description=__doc__)
    parser.add_argument("--runs", type=int, default=5_000)
    chosen = parser.parse_args(arguments)
    parts = list(make_parts(chosen.runs))
    with (
        postgresql() as server,
        closing(open_database(server.url())) as database,
        closing(database.own()) as db,
    ):
        print(f"| {chosen.runs:,} runs of {SPANS} spans, {len(parts):,} parts | |\n|---|---|")
        for name, value in measure(db, parts):
            print(f"| {name} | {value:,.0f} |")


if __name__ == "__main__":
    main()
