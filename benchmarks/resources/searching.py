"""Searches over many runs: ``python -m benchmarks.resources.searching --runs 100000``.

Fills a store in SQLite, writes the runs' searched texts as the service does, and asks for the first page of
searches in turn. Texts have 4,000 characters: sentences of the documentation, names, numbers and Chinese.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from analyzer.issues.beside_verdicts import TextsBehind
from analyzer.issues.labels.kept_run import MOST_CHARS
from analyzer.issues.labels.label_store import LabelStore, PackedRun
from analyzer.web.reads.archive import RunArchive
from analyzer.web.reads.run_query import RunQuery
from collector_processor.core.disk import RUNS
from collector_processor.core.records import Commit
from collector_processor.otlp import Tenant
from collector_processor.store.database.connection import StoreConnection, open_database
from collector_processor.store.run_text import RunText, RunTextRows, folded
from collector_processor.store.verdicts import RunStore
from tests.verdicts import stored

_TENANTS: Final = (Tenant("x=a"), Tenant("x=b"))
_DOCS: Final = Path(__file__).parents[2] / "docs"
_BATCH: Final = 500
_SYLLABLES: Final = (
    "ka",
    "lo",
    "mer",
    "ti",
    "nor",
    "sa",
    "dul",
    "pe",
    "vin",
    "chor",
    "est",
    "ing",
    "ra",
    "on",
)
_PACKED: Final = b"-" * 2_000
"""Stands for a kept run."""


class Corpus:
    """Texts of runs, and what to search in them."""

    def __init__(self) -> None:
        chance = random.Random(1)
        self._names: Final = ["".join(chance.choices(_SYLLABLES, k=4)) for _ in range(20_000)]
        self._prose: Final = "\n".join(page.read_text() for page in sorted(_DOCS.glob("*.md")))
        self._words: Final = sorted(set(re.findall("[a-z]{4,}", self._prose)))

    def text(self, number: int) -> str:
        """Return the text of a run; its own number and name are in it."""
        chance = random.Random(number)
        starts = [chance.randrange(len(self._prose)) for _ in range(12)]
        own = f"order {number:07} {chance.choice(self._names)} {chr(0x4E00 + number % 20_000)}東京都"
        numbers = " ".join(f"{chance.uniform(0, 10_000):.2f}" for _ in range(20))
        parts = [own, numbers, *(self._prose[start : start + 400] for start in starts)]
        return folded(" ".join(parts))[:MOST_CHARS]

    def searches(self, runs: int, count: int) -> Iterator[tuple[str, str, Tenant]]:
        """Yield the kind of a search, its text and the tenant."""
        chance = random.Random(7)
        for _ in range(count):
            yield "a run's number", f"order {chance.randrange(runs):07}", Tenant("")
            yield "some digits", f"{chance.randrange(10_000):04}", Tenant("")
            yield "a name", chance.choice(self._names), Tenant("")
            yield "a word, of a tenant", chance.choice(self._words), _TENANTS[0]
            yield "two words", self._phrase(chance), Tenant("")
            yield "three characters", chance.choice(self._words)[:3], Tenant("")
            yield "Chinese", f"{chr(0x4E00 + chance.randrange(20_000))}東京", Tenant("")
            yield "nothing", f"zq{chance.randrange(10**6)}", Tenant("")

    def _phrase(self, chance: random.Random) -> str:
        start = chance.randrange(len(self._prose) - 100)
        return " ".join(self._prose[start : start + 100].split()[1:3])


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill a store, search it and print what both took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resources.searching", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--searches", type=int, default=200, help="searches of each kind")
    chosen = parser.parse_args(arguments)
    corpus = Corpus()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / RUNS
        with closing(open_database(file)) as database:
            with closing(database.own()) as db:
                _fill(db, chosen.runs)
                before = _size(db, file)
                _say("writing four texts", _written(db, corpus, chosen.runs))
                grown = (_size(db, file) - before) / chosen.runs
                sys.stdout.write(f"{grown:,.0f} bytes a run, of which {MOST_CHARS:,} are its text\n")
            with closing(RunArchive(database)) as pages:
                asyncio.run(_search(pages, corpus, chosen.runs, chosen.searches))


def _fill(db: StoreConnection, runs: int) -> None:
    store, labels = RunStore(db), LabelStore(db, quota=1 << 40)
    for start in range(0, runs, _BATCH):
        names = [(_TENANTS[number % 2], f"run-{number:07}") for number in range(start, start + _BATCH)]
        verdicts = [
            stored(tenant=tenant, run_id=run_id, decided_ns=start + at, status="no_failure", agent=None)
            for at, (tenant, run_id) in enumerate(names)
        ]
        store.commit(Commit(analysed=(), verdicts=tuple(verdicts)))
        labels.keep(
            [PackedRun(tenant=one, run_id=name, is_failure=False, packed=_PACKED) for one, name in names],
            start,
        )


def _written(db: StoreConnection, corpus: Corpus, runs: int) -> list[float]:
    rows = RunTextRows(db)
    assert rows.create_index()
    behind, took = TextsBehind(rows), list[float]()
    for number in range(runs):
        text = RunText(tenant=_TENANTS[number % 2], run_id=f"run-{number:07}", text=corpus.text(number))
        behind.add([text])
        if number % 4 == 3:
            took.append(_timed(behind.write))
    return took


async def _search(pages: RunArchive, corpus: Corpus, runs: int, count: int) -> None:
    took: dict[str, list[float]] = {}
    found: dict[str, int] = {}
    used: list[float] = []
    for kind, text, tenant in corpus.searches(runs, count):
        began, cpu = time.perf_counter(), time.process_time()
        page = await pages.page(RunQuery(text=text, tenant=tenant))
        took.setdefault(kind, []).append(time.perf_counter() - began)
        used.append(time.process_time() - cpu)
        found[kind] = found.get(kind, 0) + bool(page.rows)
    for kind, times in took.items():
        _say(f"search: {kind} ({found[kind]} of {count} with results)", times)
    _say("all searches", [one for times in took.values() for one in times])
    _say("CPU time of all searches", used)


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _size(db: StoreConnection, file: Path) -> int:
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return file.stat().st_size


def _say(what: str, times: Sequence[float]) -> None:
    p50, p99 = (1_000 * sorted(times)[int(share * (len(times) - 1))] for share in (0.5, 0.99))
    sys.stdout.write(f"{what}: p50 {p50:.1f} ms, p99 {p99:.1f} ms, n = {len(times):,}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
