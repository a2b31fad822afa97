"""Changes of a workflow's success over time: change points, what explains them, and alarms after releases.

Change points are found afterwards, by a permutation test: in a workflow that did not change, the order of
its outcomes means nothing, so the largest split of the real order must be larger than that of shuffled
ones (at level ``ALPHA`` for all splits of the period together). After a point the halves are tested in
turn, with half of the level.

Alarms come run by run. After a release, a test bets that more runs fail than the runs before it predict
(``recurrence.watch`` does the same from every run on, without knowing when something changed): by Ville's
inequality a release that changes nothing ever raises an alarm with a probability of at most its level,
however often the test is evaluated. ``ALPHA`` is shared among ``RELEASES`` releases.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Final

from analyzer.inquiry.intervals import Interval, fisher, newcombe, wilson
from semconv.record import record

ALPHA: Final = 0.04
"""Level shared by a workflow's releases; the level promised to users is 0.05."""
_LEVEL: Final = 0.05
"""Level of one comparison of a fix."""
RELEASES: Final = 8
"""Releases among which the level is shared; further ones each have the same share."""
_SHUFFLES: Final = 499
_LEAST_RUNS: Final = 8
"""Runs on each side of a change point."""
_RATIOS: Final = (1.25, 1.5, 2.0, 3.0, 5.0)
"""Growth factors of the share of failures that are bet on together."""
_MOST_POINTS: Final = 8
_SEED: Final = 1970


@record
class ChangePoint:
    """A moment from which a workflow succeeds more or less often."""

    place: int
    """Number of the first run after the change."""
    before: tuple[int, int]
    """Runs that passed, and all, between the change point before and this one."""
    after: tuple[int, int]
    difference: Interval
    """Share of passing runs after minus before, 95 %."""
    p_value: float

    @property
    def is_drop(self) -> bool:
        """Whether the workflow has succeeded less often since then."""
        return self.after[0] * self.before[1] < self.before[0] * self.after[1]


def change_points(passed: Sequence[bool], alpha: float = ALPHA) -> tuple[ChangePoint, ...]:
    """Return the change points of a period's outcomes, in order.

    Args:
        passed: whether each run passed, oldest first; runs of unknown outcome are left out.
        alpha: chance of any change point if nothing changed.
    """
    draw = random.Random(_SEED)  # noqa: S311 - for statistics, not secrets
    places: dict[int, float] = {}
    waiting = [(0, len(passed), alpha)]
    while waiting and len(places) < _MOST_POINTS:
        low, high, level = waiting.pop(0)
        found = _split(passed[low:high], level, draw)
        if found is not None:
            place, p_value = found
            places[low + place] = p_value
            waiting += [(low, low + place, level / 2), (low + place, high, level / 2)]
    return _points(passed, places)


def _points(passed: Sequence[bool], places: Mapping[int, float]) -> tuple[ChangePoint, ...]:
    bounds = [0, *sorted(places), len(passed)]
    points = []
    for at, place in enumerate(sorted(places), start=1):
        before, after = passed[bounds[at - 1] : place], passed[place : bounds[at + 1]]
        counts = (sum(before), len(before)), (sum(after), len(after))
        points.append(
            ChangePoint(
                place=place,
                before=counts[0],
                after=counts[1],
                difference=newcombe(counts[1], counts[0]),
                p_value=places[place],
            )
        )
    return tuple(points)


def _split(passed: Sequence[bool], level: float, draw: random.Random) -> tuple[int, float] | None:
    """Return the best split and its p-value; ``None`` if shuffled outcomes split as well."""
    if len(passed) < 2 * _LEAST_RUNS or len(set(passed)) < 2:
        return None
    weights = _weights(sum(passed), len(passed))
    best, place = _largest(passed, weights)
    shuffled, larger = list(passed), 0
    for _ in range(_SHUFFLES):
        draw.shuffle(shuffled)
        larger += _largest(shuffled, weights)[0] >= best
        if (larger + 1) / (_SHUFFLES + 1) > level:
            return None  # more shuffles cannot make it significant
    return place, (larger + 1) / (_SHUFFLES + 1)


def _weights(hits: int, n: int) -> list[float]:
    """Return, for each number of runs before a split, one over the spread of their hits (hypergeometric)."""
    share = hits / n
    return [
        1 / math.sqrt(k * share * (1 - share) * (n - k) / (n - 1))
        if _LEAST_RUNS <= k <= n - _LEAST_RUNS
        else 0.0
        for k in range(n)
    ]


def _largest(passed: Sequence[bool], weights: Sequence[float]) -> tuple[float, int]:
    """Return the largest standardised difference of any split, and its place."""
    share, hits, best, place = sum(passed) / len(passed), 0.0, -1.0, 0
    for k, (one, weight) in enumerate(zip(passed, weights, strict=True)):
        found = abs(hits) * weight
        if found > best:
            best, place = found, k
        hits += one - share
    return best, place


@record
class Explanation:
    """One issue's part in a drop."""

    issue: str
    before: tuple[int, int]
    """Runs that failed because of the issue, and all runs."""
    after: tuple[int, int]
    rise: float
    """Rise of the share of runs that fail because of the issue."""
    interval: Interval
    part: float
    """Its part in the whole rise of failures; above 1 if other issues fell."""


def explain(
    before: Sequence[str | None], after: Sequence[str | None], *, most: int = 5
) -> tuple[Explanation, ...]:
    """Return which issues explain a drop, the largest rise first; only those whose interval excludes 0.

    Args:
        before: the issue of each run before the change; ``None`` for a run that passed.
        after: the same after it.
        most: how many to return.
    """
    whole = _failing(after) - _failing(before)
    explanations = []
    for issue in sorted({one for one in (*before, *after) if one is not None}):
        ours = (sum(one == issue for one in before), len(before))
        theirs = (sum(one == issue for one in after), len(after))
        interval = newcombe(theirs, ours)
        rise = theirs[0] / max(1, theirs[1]) - ours[0] / max(1, ours[1])
        if interval.low > 0:
            part = rise / whole if whole > 0 else 0.0
            explanations.append(
                Explanation(issue=issue, before=ours, after=theirs, rise=rise, interval=interval, part=part)
            )
    return tuple(sorted(explanations, key=lambda explanation: -explanation.rise)[:most])


def _failing(issues: Sequence[str | None]) -> float:
    return sum(issue is not None for issue in issues) / len(issues) if issues else 0.0


@record
class Regression:
    """Evidence of the runs since a release on whether it fails more often."""

    is_alarm: bool
    place: int | None
    """Number of the run since the release at which the alarm was raised."""
    evidence: float
    """The largest value of the bets; an alarm from ``threshold()`` on."""
    before: tuple[int, int]
    """Runs that failed, and all, before the release."""
    after: tuple[int, int]
    share: Interval
    """Share of failing runs since the release, 95 %."""


def threshold() -> float:
    """Return the evidence at which a release raises an alarm."""
    return RELEASES / ALPHA


def regression(before: tuple[int, int], failed: Sequence[bool]) -> Regression:
    """Tell whether a workflow has failed more often since a release.

    Args:
        before: runs that failed, and all, before the release; versions shown to be equal count together.
        failed: whether each run since then failed, oldest first.
    """
    hits, n = before
    logs, highest, place = [0.0] * len(_RATIOS), 0.0, None
    for number, one in enumerate(failed):
        base = (hits + 0.5) / (n + 1)
        for at, ratio in enumerate(_RATIOS):
            bet = min(base * ratio, (base + 1) / 2)
            logs[at] += math.log(bet / base if one else (1 - bet) / (1 - base))
        hits, n = hits + one, n + 1
        evidence = sum(math.exp(min(log, 500.0)) for log in logs) / len(logs)
        highest = max(highest, evidence)
        if place is None and before[1] >= _LEAST_RUNS and evidence >= threshold():
            place = number
    count = (sum(failed), len(failed))
    return Regression(
        is_alarm=place is not None,
        place=place,
        evidence=highest,
        before=before,
        after=count,
        share=wilson(*count),
    )


@record
class BeforeAfter:
    """A workflow before and after a fix."""

    before: tuple[int, int]
    """Runs that passed, and all."""
    after: tuple[int, int]
    difference: Interval
    verdict: str
    """``better``, ``worse`` or ``unclear``."""


def before_and_after(before: Sequence[bool], after: Sequence[bool]) -> BeforeAfter:
    """Compare the shares of passing runs before and after a fix.

    With few runs Newcombe's interval excludes 0 too easily, so the verdict also asks for Fisher's exact test.
    """
    ours, theirs = (sum(before), len(before)), (sum(after), len(after))
    interval = newcombe(theirs, ours)
    verdict = "better" if interval.low > 0 else "worse" if interval.high < 0 else "unclear"
    if fisher(ours, theirs) > _LEVEL:
        verdict = "unclear"
    return BeforeAfter(before=ours, after=theirs, difference=interval, verdict=verdict)
