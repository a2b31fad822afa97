"""A day at a given rate, computed from measured constants: ``python -m benchmarks.group.capacity``. Pure.

The rate follows the day: a sine around the mean, with its peak at noon. At the peak, nothing is forwarded
for ten minutes; Kafka keeps what comes, and the processors' reserve catches up. Constants are options; each
says which command measures it. Prices and the share of agents' spans are assumptions: put in your own.

It is a model, not a measurement. It takes for granted that partitions are even, that processors add up
(not measured), and that the broker, PostgreSQL and the backend keep up.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

DAY_S: Final = 86_400
_STEP_S: Final = 60


def _told(default: float, source: str) -> Any:
    return field(default=default, metadata={"source": source})


_COST: Final = "python -m benchmarks.group.cost"
_ROUND: Final = "python -m benchmarks.group"
_ASSUMED: Final = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Everything that the model rests on."""

    spans_per_s: float = _told(1_000_000, "the question: mean over the day")
    peak: float = _told(1.5, f"{_ASSUMED}: peak rate ÷ mean")
    agents_share: float = _told(0.05, f"{_ASSUMED}: share of spans that are agents'")
    spans_per_run: float = _told(20, f"{_ASSUMED}")
    asked_share: float = _told(0.1, f"{_ASSUMED}: share of runs that a model is asked about")
    plain_us: float = _told(0, f"{_COST} journals (kafka, 0 %)")
    agents_us: float = _told(0, f"{_COST} journals (kafka, 100 %)")
    kafka_bytes: float = _told(0, f"{_ROUND}: of one span")
    run_bytes: float = _told(0, f"{_ROUND}: in PostgreSQL")
    long_share: float = _told(0.1, f"{_ASSUMED}: share of agents' spans in runs open for over a minute")
    long_s: float = _told(1_800, f"{_ASSUMED}: seconds for which such a run stays open after it")
    spilled_bytes: float = _told(0, f"{_ROUND}.spilled: of one span")
    model_s: float = _told(5, f"{_ASSUMED}: one analysis by a model")
    at_once: float = _told(16, "BLAMESPAN_CONCURRENCY of an analyzer")
    load: float = _told(0.6, f"{_ASSUMED}: busy share of a processor's core at the peak; the rest catches up")
    outage_s: float = _told(600, "the question")
    retention_s: float = _told(DAY_S, "docs/kafka.md")
    replication: float = _told(3, "docs/kafka.md")
    run_days: float = _told(30, f"{_ASSUMED}: days that verdicts are kept")
    core_hour_usd: float = _told(0.04, f"{_ASSUMED}")
    gb_month_usd: float = _told(0.08, f"{_ASSUMED}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What the day needs."""

    processors: int
    """Replicas, with one core each."""
    partitions: int
    """Of each topic."""
    analyzers: int
    kafka_tb: float
    store_tb: float
    spilled_per_s: float
    """Spans of open runs written to PostgreSQL, mean."""
    spilled_gb: float
    """The same, as long as their runs are open, at the peak."""
    lag_spans: float
    """The most spans that wait, after the outage."""
    caught_up_s: float
    """Seconds from the end of the outage until nothing waits; infinite if it is never."""
    usd_a_day: float
    """Processors and disks; neither brokers nor models."""


def simulate(given: Constants) -> Day:
    """Return what a day needs."""
    span_s = 1e-6 * (given.agents_share * given.agents_us + (1 - given.agents_share) * given.plain_us)
    at_peak = given.spans_per_s * given.peak
    processors = math.ceil(at_peak * span_s / given.load)
    lag, caught_up_s = _lag(given, processors / span_s)
    runs = given.spans_per_s * given.agents_share / given.spans_per_run
    kafka = given.spans_per_s * given.kafka_bytes * given.retention_s * given.replication
    store = runs * DAY_S * given.run_days * given.run_bytes
    spilled = given.spans_per_s * given.agents_share * given.long_share
    disks = (kafka + store) / 1e9 * given.gb_month_usd / 30
    return Day(
        processors=processors,
        partitions=12 * math.ceil(2 * processors / 12),
        analyzers=math.ceil(runs * given.peak * given.asked_share * given.model_s / given.at_once),
        kafka_tb=kafka / 1e12,
        store_tb=store / 1e12,
        spilled_per_s=spilled,
        spilled_gb=spilled * given.peak * given.long_s * given.spilled_bytes / 1e9,
        lag_spans=lag,
        caught_up_s=caught_up_s,
        usd_a_day=processors * 24 * given.core_hour_usd + disks,
    )


def rate(given: Constants, second: float) -> float:
    """Return the spans per second at a time of the day."""
    turn = -math.cos(2 * math.pi * second / DAY_S)
    return given.spans_per_s * (1 + (given.peak - 1) * turn)


def _lag(given: Constants, most_per_s: float) -> tuple[float, float]:
    """Return the longest queue, and the seconds from the outage's end until it is empty."""
    begins = DAY_S / 2 - given.outage_s / 2
    ends = begins + given.outage_s
    waiting = longest = 0.0
    second = begins
    while second < begins + DAY_S:
        done = 0.0 if second < ends else most_per_s
        waiting = max(0.0, waiting + _STEP_S * (rate(given, second) - done))
        longest = max(longest, waiting)
        second += _STEP_S
        if not waiting:
            return longest, second - ends
    return longest, math.inf


def table(given: Constants, day: Day) -> Iterator[str]:
    """Yield the lines: the constants, then what follows from them."""
    yield "| constant | value | from |"
    yield "|---|---|---|"
    for one in fields(given):
        name, value = one.name.replace("_", "-"), getattr(given, one.name)
        yield f"| `--{name}` | {value:,g} | {one.metadata['source']} |"
    yield ""
    yield "| a day | |"
    yield "|---|---|"
    yield f"| processors of one core each | {day.processors:,} |"
    yield f"| partitions of each topic | {day.partitions:,} |"
    yield f"| analyzers | {day.analyzers:,} |"
    yield f"| Kafka, TB | {day.kafka_tb:,.1f} |"
    yield f"| PostgreSQL, TB | {day.store_tb:,.2f} |"
    yield f"| spans of open runs into PostgreSQL a second | {day.spilled_per_s:,.0f} |"
    yield f"| open runs in PostgreSQL, GB | {day.spilled_gb:,.1f} |"
    yield f"| lag after the outage, million spans | {day.lag_spans / 1e6:,.0f} |"
    yield f"| caught up after, minutes | {day.caught_up_s / 60:,.0f} |"
    yield f"| processors and disks, $ a day | {day.usd_a_day:,.0f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the day."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.group.capacity", description=__doc__)
    for one in fields(Constants):
        name = f"--{one.name.replace('_', '-')}"
        source = one.metadata["source"].replace("%", "%%")
        parser.add_argument(name, type=float, default=one.default, help=source)
    given = Constants(**vars(parser.parse_args(arguments)))
    for line in table(given, simulate(given)):
        print(line)


if __name__ == "__main__":
    main()
