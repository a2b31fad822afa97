"""Sums over the last hour and day: each analysis is read once and counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from analyzer.web.pages.health_page import FRESH_NS, RecentWork
from analyzer.web.reads.archive import Analysed

HOUR_NS: Final = 3600 * 10**9
NOW_NS: Final = 1000 * HOUR_NS


def analysed(decided_ns: int) -> Analysed:
    return Analysed(decided_ns=decided_ns, status="attributed", cost_usd=1.0, calls=1, duration_s=2.0)


@dataclass(slots=True)
class Shelf:
    """Analyses in memory, and the number of them that were read."""

    analyses: list[Analysed] = field(default_factory=list)
    read: int = 0

    async def analyses_since(self, since_ns: int, most: int) -> Sequence[Analysed]:
        newest_first = sorted(self.analyses, key=lambda one: -one.decided_ns)
        found = [one for one in newest_first if one.decided_ns > since_ns][:most]
        self.read += len(found)
        return found


@dataclass(slots=True)
class Clock:
    now_ns: int = NOW_NS

    def __call__(self) -> int:
        return self.now_ns


def opened(*decided_ns: int) -> tuple[Shelf, Clock, RecentWork]:
    shelf, clock = Shelf([analysed(moment) for moment in decided_ns]), Clock()
    return shelf, clock, RecentWork(analyses_since=shelf.analyses_since, now_ns=clock)


async def test_no_row_is_read_twice() -> None:
    shelf, clock, recent = opened(*(NOW_NS - number * HOUR_NS for number in range(1, 11)))
    assert (await recent.read()).day.runs == 10
    clock.now_ns += FRESH_NS
    shelf.analyses.append(analysed(clock.now_ns))
    assert (await recent.read()).day.runs == 11
    assert shelf.read == 11


async def test_work_older_than_a_day_is_not_counted() -> None:
    _, clock, recent = opened(NOW_NS - 23 * HOUR_NS, NOW_NS - HOUR_NS // 2)
    assert (await recent.read()).day.runs == 2
    clock.now_ns += 2 * HOUR_NS
    done = await recent.read()
    assert (done.hour.runs, done.day.runs) == (0, 1)


async def test_a_verdict_committed_a_little_after_it_was_decided_counts() -> None:
    shelf, clock, recent = opened(NOW_NS - 1)
    await recent.read()
    shelf.analyses.append(analysed(NOW_NS - 10**9))
    clock.now_ns += FRESH_NS
    assert (await recent.read()).day.runs == 2


async def test_a_clock_that_was_set_back_hides_nothing() -> None:
    shelf, clock, recent = opened(NOW_NS - HOUR_NS)
    await recent.read()
    clock.now_ns -= 5 * HOUR_NS
    shelf.analyses.append(analysed(clock.now_ns))
    assert (await recent.read()).day.runs == 2
