"""Step and agent accuracy of signals, a ranker, the history and their pool, by number of passing runs.

In-distribution: the ranker learns from failures of the same three systems, and the exponent of the history in
the pool was chosen on other seeds of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from analyzer.evaluation.significance import paired
from analyzer.evaluation.training import train
from analyzer.evaluation.validation import named, prepare
from analyzer.history.elements import elements_of, pack, unpack
from analyzer.history.spectrum import Comparison, Said, compare, spectrum_of
from analyzer.inquiry.conversation import Conversation, Label
from analyzer.inquiry.intervals import wilson
from analyzer.inquiry.visible import visible_run
from analyzer.methods.history import judge_by_history, pooled_with
from analyzer.methods.learned.ranker import Ranker
from analyzer.methods.without_model import blame, judge_by_signals, ranking
from benchmarks.history.stories import FLOWS, KINDS, SHAPES, Played, played
from semconv.model import Attribution, Blame, Trajectory, Verdict
from semconv.record import replace

PASSING: Final = (0, 5, 20, 100)
FAILING: Final = 10
_LABELLED: Final = 60
_TUNING: Final = 10**6
METHODS: Final = ("signals", "ranker", "history", "signals+history", "ranker+history")


@dataclass(frozen=True, kw_only=True)
class Named:
    """One failed run: its fault, and whether each method named the step and the agent."""

    kind: str
    steps: dict[str, bool]
    agents: dict[str, bool]


def measure(groups: int, seed: int) -> dict[int, list[Named]]:
    """Judge ``groups`` groups of ten failing runs of each system, with each number of passing runs."""
    found: dict[int, list[Named]] = {passing: [] for passing in PASSING}
    for system in FLOWS:
        ranker = _trained(system, seed)
        for group in range(groups):
            first = seed * _TUNING + group * 1000
            failed = [_failed(system, first + number) for number in range(FAILING)]
            good = [played(system, first + number) for number in range(max(PASSING))]
            for passing in PASSING:
                found[passing] += _judged(failed, good[:passing], ranker)
    return found


def _failed(system: str, number: int) -> Played:
    return played(system, number, random.Random(f"kind {system} {number}").choice(KINDS))


def _trained(system: str, seed: int) -> Ranker:
    runs = [_failed(system, seed * _TUNING + 900_000 + number) for number in range(_LABELLED)]
    talks = [
        Conversation(
            trajectory=_unsaid(one.trajectory), label=Label(agent=one.agent, step=one.step), source=system
        )
        for one in runs
    ]
    return train([one.example for one in named(prepare(talks))])


def _unsaid(trajectory: Trajectory) -> Trajectory:
    return replace(trajectory, reference=None)


def _judged(failed: Sequence[Played], good: Sequence[Played], ranker: Ranker) -> Iterator[Named]:
    past = [(Said.PASSED, unpack(pack(elements_of(one.trajectory)))) for one in good]
    packed = [(Said.FAILED, unpack(pack(elements_of(one.trajectory)))) for one in failed]
    for place, one in enumerate(failed):
        others = spectrum_of([*past, *packed[:place], *packed[place + 1 :]])
        seen = visible_run(_unsaid(one.trajectory))
        verdicts = _verdicts(seen, compare(seen, others), ranker)
        yield Named(
            kind=one.kind,
            steps={
                name: isinstance(each, Blame) and each.step == one.step for name, each in verdicts.items()
            },
            agents={
                name: isinstance(each, Blame) and each.agent == one.agent for name, each in verdicts.items()
            },
        )


def _verdicts(run: Trajectory, known: Comparison, ranker: Ranker) -> dict[str, Verdict]:
    by_signals = judge_by_signals(run)
    assert isinstance(by_signals, Blame)
    seen = ranking(ranker, run)
    by_ranker = blame(ranker, run, seen)
    return {
        "signals": by_signals,
        "ranker": by_ranker,
        "history": judge_by_history(run, known),
        "signals+history": _pooled(by_signals, run, known),
        "ranker+history": _pooled(by_ranker, run, known),
    }


def _pooled(verdict: Verdict, run: Trajectory, known: Comparison) -> Verdict:
    alone = Attribution(run_id=run.run_id, verdict=verdict, method="alone")
    return pooled_with(alone, run, known).verdict


def table(found: dict[int, list[Named]]) -> None:
    """Print accuracy by number of passing runs and kind of fault, and the paired comparisons."""
    for passing, runs in found.items():
        print(f"\n{passing} passing and {FAILING} failing runs: step / agent right, % [95 %]")
        print(f"{'fault':<20}{'n':>5}  " + "".join(f"{name:<30}" for name in METHODS))
        shapes = [one for one in runs if one.kind in SHAPES]
        groups = {"shape": shapes, "value": [one for one in runs if one.kind not in SHAPES]}
        groups |= {kind: [one for one in runs if one.kind == kind] for kind in KINDS}
        for kind, own in groups.items():
            cells = "".join(f"{_cell(own, name):<30}" for name in METHODS)
            print(f"{kind:<20}{len(own):>5}  {cells}")
    print(
        "\nthe pool against its best part, step right: only the part, only the pool, p (Holm over all rows)"
    )
    for line in _paired(found):
        print(line)


def _cell(runs: Sequence[Named], name: str) -> str:
    right, agent = sum(one.steps[name] for one in runs), sum(one.agents[name] for one in runs)
    if not runs:
        return "-"
    interval = wilson(right, len(runs))
    return (
        f"{100 * right / len(runs):.1f} [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"
        f" / {100 * agent / len(runs):.1f}"
    )


def _paired(found: dict[int, list[Named]]) -> Iterator[str]:
    rows = []
    for passing, runs in found.items():
        for pooled in ("signals+history", "ranker+history"):
            for label, own in (
                ("shape", [one for one in runs if one.kind in SHAPES]),
                ("value", [one for one in runs if one.kind not in SHAPES]),
                ("all", runs),
            ):
                parts = (pooled.split("+")[0], "history")
                best = max(parts, key=lambda name: sum(one.steps[name] for one in own))
                result = paired([one.steps[best] for one in own], [one.steps[pooled] for one in own])
                rows.append((result.p_value, passing, label, pooled, best, result))
    rows.sort(key=lambda row: row[0])
    highest = 0.0
    for place, (p_value, passing, label, pooled, best, result) in enumerate(rows):
        highest = max(highest, min(1.0, p_value * (len(rows) - place)))
        sign = "worse" if result.only_first > result.only_second else "not worse"
        yield (
            f"{passing:>4} {label:<6}{pooled:<16} against {best:<10}{result.only_first:>5}"
            f"{result.only_second:>5}  p {highest:.3f}  {sign}{' *' if highest <= 0.05 else ''}"
        )
