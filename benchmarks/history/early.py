"""Early warnings on the example systems: AUPRC, false alarms and lead, with the threshold out of fold.

A run is looked at after each of its steps but the last. Runs that are judged are neither among those that
are counted nor among those that set the threshold; all are of the same systems (in-distribution).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from analyzer.history.early import EarlyAlarm, KnownPart, Part, early_alarm, part_of
from analyzer.history.elements import digest_of, elements_of
from analyzer.history.spectrum import Said
from analyzer.inquiry.intervals import wilson
from benchmarks.history.stories import FLOWS, KINDS, SHAPES, Played, played
from semconv.record import replace

SHARE: Final = 0.05
KNOWN: Final = (60, 200)
"""Passing runs that were seen; with 59 the threshold exists."""
_FAILED: Final = 10
_APART: Final = 10**7
_RESAMPLED: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Watched:
    """One run as it was watched: the score after each step but the last, and the first warning."""

    kind: str
    """Its fault; empty if it passed."""
    steps: int
    score: float
    """The highest score before its end."""
    warned_at: int | None
    """Number of steps that had arrived at the first warning; ``None`` without one."""

    @property
    def left(self) -> int:
        """Steps still to come at the warning."""
        assert self.warned_at is not None
        return self.steps - self.warned_at


def parts_of(one: Played) -> Iterator[Part]:
    """Yield what had arrived of a run after each of its steps but the last."""
    run = one.trajectory
    for end in range(1, len(run.steps)):
        yield part_of(elements_of(replace(run, steps=run.steps[:end])))


def known(one: Played) -> KnownPart:
    """Return a run that has ended, with what was seen before its end."""
    seen = Part()
    for part in parts_of(one):
        seen = part.joined(seen)
    whole = frozenset(digest_of(each.key) for each in elements_of(one.trajectory))
    return KnownPart(said=Said.FAILED if one.kind else Said.PASSED, part=seen, whole=whole)


def watched(one: Played, alarm: EarlyAlarm) -> Watched:
    """Look at a run after each of its steps but the last."""
    scores = [alarm.score(part) for part in parts_of(one)]
    at = next((place for place, score in enumerate(scores, start=1) if alarm.is_warning(score)), None)
    steps = len(one.trajectory.steps)
    return Watched(kind=one.kind, steps=steps, score=max(scores, default=0.0), warned_at=at)


def measure(groups: int, seed: int) -> dict[int, list[Watched]]:
    """Watch ``groups`` groups of 18 passing and 18 failing runs of each system, by number of known runs."""
    found: dict[int, list[Watched]] = {passing: [] for passing in KNOWN}
    for system in FLOWS:
        for group in range(groups):
            first = (seed + 1) * _APART + group * 1000
            before = [known(played(system, first + number)) for number in range(max(KNOWN))]
            failed = [known(played(system, first + 300 + n, _kind(first + n))) for n in range(_FAILED)]
            asked = [played(system, first + 400 + n) for n in range(2 * len(KINDS))]
            asked += [played(system, first + 500 + n, kind) for n in range(2) for kind in KINDS]
            for passing in KNOWN:
                alarm = early_alarm([*before[:passing], *failed], SHARE)
                found[passing] += [watched(one, alarm) for one in asked]
    return found


def _kind(number: int) -> str:
    return random.Random(number).choice(KINDS)


def auprc(runs: Sequence[Watched]) -> float:
    """Return the average precision of the highest score before the end; tied runs count together."""
    positives = sum(bool(one.kind) for one in runs)
    total, before = 0.0, 0.0
    for score in sorted({one.score for one in runs}, reverse=True):
        above = [one for one in runs if one.score >= score]
        hits = sum(bool(one.kind) for one in above)
        total += (hits / positives - before) * hits / len(above)
        before = hits / positives
    return total


def _resampled(runs: Sequence[Watched]) -> tuple[float, float]:
    coin = random.Random(0)
    values = sorted(auprc(coin.choices(runs, k=len(runs))) for _ in range(_RESAMPLED))
    return values[int(0.025 * _RESAMPLED)], values[int(0.975 * _RESAMPLED)]


def table(found: dict[int, list[Watched]]) -> None:
    """Print the measures by number of known passing runs and kind of fault."""
    for passing, runs in found.items():
        good = [one for one in runs if not one.kind]
        low, high = _resampled(runs)
        base = 1 - len(good) / len(runs)
        print(f"\n{passing} passing and {_FAILED} failing runs known, in-distribution, n = {len(runs)}")
        print(f"AUPRC {auprc(runs):.2f} [{low:.2f}, {high:.2f}], base rate {base:.2f}")
        print(f"false alarms per 100 passing runs: {_share(good)} (n = {len(good)})")
        print(f"{'fault':<20}{'n':>5}  {'warned, % [95 %]':<22}{'median lead: steps / % of the run left'}")
        groups = {
            "shape": [one for one in runs if one.kind in SHAPES],
            "value": [one for one in runs if one.kind and one.kind not in SHAPES],
        }
        groups |= {kind: [one for one in runs if one.kind == kind] for kind in KINDS}
        for kind, own in groups.items():
            print(f"{kind:<20}{len(own):>5}  {_share(own):<22}{_lead(own)}")


def _share(runs: Sequence[Watched]) -> str:
    warned = sum(one.warned_at is not None for one in runs)
    interval = wilson(warned, len(runs))
    return f"{100 * warned / len(runs):.1f} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def _lead(runs: Sequence[Watched]) -> str:
    early = [one for one in runs if one.warned_at is not None]
    if not early:
        return "-"
    return (
        f"{median(one.left for one in early):.0f} / {100 * median(one.left / one.steps for one in early):.0f}"
    )


__all__ = ["KNOWN", "SHARE", "Watched", "auprc", "known", "measure", "parts_of", "table", "watched"]
