"""Alarms about releases, on simulated months: ``python -m benchmarks.alerting.release_alarm stable | delay``.

``stable``: months without a change in which a change point or an alarm is found. ``delay``: runs until a bad
release is noticed.
"""

from __future__ import annotations

import argparse
import math
import random
from statistics import median, quantiles

from analyzer.history.changes import ALPHA, change_points, regression
from analyzer.inquiry.intervals import wilson

SHARES = (0.02, 0.1, 0.3)
RUNS = (100, 1000)
RELEASES = 4


def stable(months: int) -> None:
    """Print how many stable months have a change point, and how many raise an alarm at a release."""
    print("failing runs  months  change point  % [95 %]      release alarm  % [95 %]")
    for share in SHARES:
        for runs in RUNS:
            found = alarms = 0
            for month in range(months):
                coin = random.Random(f"{share} {runs} {month}")
                failed = [coin.random() < share for _ in range(runs)]
                found += bool(change_points([not one for one in failed]))
                alarms += _any_alarm(failed)
            print(
                f"{share:7} {runs:>5}  {months:>5}  {_share(found, months):>26}  {_share(alarms, months)}",
                flush=True,
            )


def _any_alarm(failed: list[bool]) -> bool:
    """Return whether any of four releases of a month raises an alarm."""
    size = len(failed) // (RELEASES + 1)
    parts = [failed[at * size : (at + 1) * size] for at in range(RELEASES + 1)]
    past = parts[0]
    for part in parts[1:]:
        if regression((sum(past), len(past)), part).is_alarm:
            return True
        past = [*past, *part]
    return False


def delay(months: int) -> None:
    """Print after how many runs a bad release is noticed, beside a test that knows both true shares."""
    print("failing before  after  noticed in 1000 runs  runs p50 p90  |  test that knows the shares: p50 p90")
    for low, high in ((0.02, 0.1), (0.1, 0.2), (0.1, 0.3), (0.3, 0.6)):
        ours: list[int] = []
        best: list[int] = []
        for month in range(months):
            coin = random.Random(f"{low} {high} {month}")
            past = sum(coin.random() < low for _ in range(300))
            after = [coin.random() < high for _ in range(1000)]
            ours.append(_place(regression((past, 300), after).place))
            best.append(_place(_oracle(low, high, after)))
        noticed = sum(one < len(after) for one in ours)
        print(
            f"{low:>14} {high:>6}  {_share(noticed, months):>20}  {median(ours):>7.0f} {_p90(ours):>4.0f}"
            f"  |  {median(best):>5.0f} {_p90(best):>4.0f}",
            flush=True,
        )


def _oracle(low: float, high: float, failed: list[bool]) -> int | None:
    """Return where Wald's test of both true shares raises the alarm, at the level of one release."""
    evidence = 0.0
    for place, one in enumerate(failed):
        evidence += math.log(high / low) if one else math.log((1 - high) / (1 - low))
        if evidence >= math.log(8 / ALPHA):
            return place
    return None


def _place(place: int | None) -> int:
    return 1000 if place is None else place + 1


def _p90(numbers: list[int]) -> float:
    return quantiles(numbers, n=10)[-1]


def _share(hits: int, n: int) -> str:
    interval = wilson(hits, n)
    return f"{100 * hits / n:.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def main() -> None:
    """Print the requested table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.alerting.release_alarm", description=__doc__)
    parser.add_argument("what", choices=("stable", "delay"))
    parser.add_argument("--number", type=int, default=1000, help="months or bad releases a row")
    asked = parser.parse_args()
    (stable if asked.what == "stable" else delay)(asked.number)


if __name__ == "__main__":
    main()
