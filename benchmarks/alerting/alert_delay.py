"""False alarms and the delay of true ones: ``python -m benchmarks.alerting.alert_delay``.

A simulation with a fixed seed; takes minutes. Agents take part in every run; in a stable system each breaks a
fixed share of runs, and the method names a wrong agent in 40 %, 20 % or none of the failures. After four
weeks of history come four stable weeks (is there an alarm?), or one agent's share doubles (how long until its
alarm?). ``--write`` renews tables and curves in docs/alerts.md.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from analyzer.inquiry.intervals import wilson
from benchmarks.alerting.alert_curves import to_svg
from benchmarks.alerting.alert_worlds import MOST_DAYS, Stable, World, delays, stable

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "alerts.md"
CURVES: Final = DOCS / "alert-delay.svg"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
CONFUSIONS: Final = (0.4, 0.2, 0.0)
SEED: Final = 1970
_Z_95: Final = 1.959964


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Time until doubled shares are found."""

    n: int
    found: float
    """Share of changes that are found at all."""
    median: float
    """Median in days; the next two are its 95 % interval. Infinite if fewer than half are found."""
    low: float
    high: float


def worlds() -> Iterator[World]:
    """Yield the simulated systems, with a method that is never wrong."""
    for agents in (3, 6):
        for runs_a_day in (50, 500):
            for share in (0.02, 0.05, 0.10):
                yield World(agents=agents, runs_a_day=runs_a_day, share=share, confusion=0.0)


def summed_up(days: Sequence[float]) -> Delay:
    """Return median and interval, by the order of values (W. Conover, Practical Nonparametric Statistics)."""
    ordered, n = sorted(days), len(days)
    spread = _Z_95 * math.sqrt(n) / 2
    low, high = math.floor(n / 2 - spread), min(n - 1, math.ceil(n / 2 + spread))
    found = sum(math.isfinite(day) for day in days) / n
    return Delay(n=n, found=found, median=ordered[n // 2], low=ordered[max(0, low)], high=ordered[high])


def main() -> None:
    """Measure, and print or write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.alerting.alert_delay", description=__doc__)
    parser.add_argument("--stretches", type=int, default=300, help="stable ones of four weeks for each cell")
    parser.add_argument("--delays", type=int, default=300, help="doubled shares for each cell")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name} and {CURVES.name}")
    chosen = parser.parse_args()
    began = time.monotonic()
    calm: dict[World, Stable] = {}
    delayed: dict[World, Delay] = {}
    for world in worlds():
        for seen in (replace(world, confusion=confusion) for confusion in CONFUSIONS):
            calm[seen] = stable(seen, chosen.stretches, SEED)
            delayed[seen] = summed_up(delays(seen, chosen.delays, SEED).tolist())
    text = report(calm, delayed)
    print(text)
    print(f"took {time.monotonic() - began:.0f} s")
    if chosen.write:
        head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        PAGE.write_text(head + BEGIN + text + END + rest.split(END)[1], encoding="utf-8")
        medians = {world: delay.median for world, delay in delayed.items()}
        CURVES.write_text(to_svg(medians), encoding="utf-8")


def report(calm: Mapping[World, Stable], delayed: Mapping[World, Delay]) -> str:
    """Return both tables with their notes, as Markdown."""
    methods = ["sees the truth" if not wrong else f"wrong {wrong:.0%}" for wrong in CONFUSIONS]
    one, other = next(iter(calm.values())), next(iter(delayed.values()))
    head = ["agents", "runs a day", "share", *methods]
    lines = [
        (
            f"Weeks with a false alarm, any agent's; {one.n} stretches of {one.weeks} weeks for each cell,"
            " in brackets the 95 % interval:"
        ),
        "",
        *_table([*head, "*twice the usual share today*"], _calm_rows(calm)),
        "",
        _every(calm),
        "",
        (
            f"Days until a doubled share raises the alarm: the median of {other.n}, with its 95 % interval."
            f" ∞: fewer than half are found in {MOST_DAYS} days; in brackets, how many."
        ),
        "",
        *_table(head, _delay_rows(delayed)),
    ]
    return "\n".join([*lines, ""]).replace("%", " %").replace("  %", " %")


def _table(head: Sequence[str], rows: Iterator[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---:|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _calm_rows(calm: Mapping[World, Stable]) -> Iterator[list[str]]:
    for world in worlds():
        found = [calm[replace(world, confusion=confusion)] for confusion in CONFUSIONS]
        yield [*_named(world), *(_weekly([one]) for one in found), f"{found[0].naive_weeks:.0%}"]


def _every(calm: Mapping[World, Stable]) -> str:
    told = []
    for confusion in CONFUSIONS:
        found = [one for world, one in calm.items() if world.confusion == confusion]
        told.append(f"{_weekly(found)} with a method that is wrong {confusion:.0%} of the time")
    return f"Over all of them: {'; '.join(told)}."


def _weekly(found: Sequence[Stable]) -> str:
    """Return alarms per week; a stretch counts as one alarm over all of its weeks."""
    n, alarms, weeks = sum(one.n for one in found), sum(one.alarms for one in found), found[0].weeks
    interval = wilson(alarms, n)
    return f"{alarms / n / weeks:.1%} [{interval.low / weeks:.1%}, {interval.high / weeks:.1%}]"


def _delay_rows(delayed: Mapping[World, Delay]) -> Iterator[list[str]]:
    for world in worlds():
        found = [delayed[replace(world, confusion=confusion)] for confusion in CONFUSIONS]
        yield [*_named(world), *(_told(one) for one in found)]


def _told(delay: Delay) -> str:
    if math.isinf(delay.median):
        return f"∞ ({delay.found:.0%} found)"
    return f"{delay.median:.1f} [{delay.low:.1f}, {_days(delay.high)}]"


def _days(days: float) -> str:
    return "∞" if math.isinf(days) else f"{days:.1f}"


def _named(world: World) -> list[str]:
    return [str(world.agents), str(world.runs_a_day), f"{world.share:.0%}"]


if __name__ == "__main__":
    main()
