"""Contribution of each signal: ``python -m benchmarks.accuracy.ablation DATASET…``.

Three tables on labelled runs, without a model and without the right answers:

1. signals with each signal left out, and the prior alone;
2. leave one system out: the shipped weights (reasoned, not fitted) beside weights fitted to the other
   systems' labels, tested on the system left out;
3. with ``--ranker``: nested cross-validation of the ranker with each group of features left out (minutes).

Identical histories are never on both sides of a split; a second label of the same conversation is left out.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from analyzer.evaluation.dataset import read_dataset
from analyzer.evaluation.folds import families, split_by_keys
from analyzer.evaluation.scores import Score, score
from analyzer.evaluation.training import Example, fit_linear, train
from analyzer.evaluation.validation import FOLDS, Labelled, prepare
from analyzer.inquiry.intervals import wilson
from analyzer.inquiry.posterior import LogShares, log_softmax, ranked
from analyzer.methods.learned.features import FEATURES, FEATURES_OF, Table
from analyzer.methods.learned.ranker import linear_shares
from analyzer.signals import SIGNALS, findings
from analyzer.signals.run_view import Reading, Signal, read
from analyzer.signals.scoring import posterior, prior
from semconv.model import Attribution, Blame

SEEN_WITHOUT_REFERENCE = tuple(signal for signal in SIGNALS if signal.__name__ != "right_answer_seen")
KINDS = (
    "unhandled_error",
    "unrepaired_error",
    "empty_result",
    "ignored_error",
    "wrong_computation",
    "unsupported_figure",
    "answer_origin",
    "made_up_data",
    "hedging",
    "gave_up",
    "loop",
    "unverified_claim",
)
PENALTY = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dataset", nargs="+", type=Path)
    parser.add_argument("--ranker", action="store_true", help="also the ranker's feature groups (minutes)")
    chosen = parser.parse_args()
    runs = prepare([run for path in chosen.dataset for run in read_dataset(path)])
    readings = [read(replace(one.run.trajectory, reference=None)) for one in runs]
    print(f"{len(runs)} labelled runs\n\n1. Signals, one left out at a time (step % / agent % / top-3 %)")
    ablate_signals(runs, readings)
    print("\n2. Leave one system out: step % [95 % interval] / agent % / top-3 %")
    leave_one_system_out(runs, readings)
    if chosen.ranker:
        print("\n3. Ranker, nested 5-fold, one group of features left out at a time")
        ablate_features(runs)


def ablate_signals(runs: Sequence[Labelled], readings: Sequence[Reading]) -> None:
    for name, scores in without_each(runs, readings):
        show(name, scores)


def without_each(runs: Sequence[Labelled], readings: Sequence[Reading]) -> Iterator[tuple[str, list[Score]]]:
    """Score all signals, all but one for each signal, and the prior alone."""
    kept: list[tuple[str, Sequence[Signal]]] = [("all signals", SEEN_WITHOUT_REFERENCE)]
    kept += [
        (f"without {left_out.__name__}", [s for s in SEEN_WITHOUT_REFERENCE if s is not left_out])
        for left_out in SEEN_WITHOUT_REFERENCE
    ]
    kept.append(("prior alone", ()))
    for name, signals in kept:
        yield name, judge(runs, [weighed(reading, signals) for reading in readings])


def leave_one_system_out(runs: Sequence[Labelled], readings: Sequence[Reading]) -> None:
    rows = [_columns(reading) for reading in readings]
    fitted: list[LogShares] = [()] * len(runs)
    family = families([one.example.keys for one in runs])
    for system in dict.fromkeys(one.example.system for one in runs):
        held = {i for i, one in enumerate(runs) if one.example.system == system}
        alike = {family[i] for i in held}
        seen = [i for i in range(len(runs)) if family[i] not in alike]
        if not seen:
            print("  one system only: nothing to leave out")
            return
        weights = fit_linear([rows[i] for i in seen], [runs[i].example.step for i in seen], PENALTY)
        for i in held:
            fitted[i] = linear_shares(weights, rows[i])
    as_they_are = [weighed(reading, SEEN_WITHOUT_REFERENCE) for reading in readings]
    systems = tuple(dict.fromkeys(one.example.system for one in runs))
    show("as they are", judge(runs, as_they_are), systems)
    show("fitted to the others", judge(runs, fitted), systems)


def ablate_features(runs: Sequence[Labelled]) -> None:
    show("all features", judge(runs, _ranked_out_of_fold([one.example for one in runs])))
    for group, features in FEATURES_OF.items():
        gone = {FEATURES.index(feature) for feature in features}
        blinded = [replace(one.example, table=_without(one.example.table, gone)) for one in runs]
        show(f"without {group}", judge(runs, _ranked_out_of_fold(blinded)))


def _ranked_out_of_fold(examples: Sequence[Example]) -> list[LogShares]:
    shares: dict[int, LogShares] = {}
    for held in split_by_keys([example.keys for example in examples], FOLDS):
        ranker = train([example for i, example in enumerate(examples) if i not in held])
        shares.update({i: ranker.rank(examples[i].table) for i in held})
    return [shares[i] for i in range(len(examples))]


def _without(table: Table, gone: set[int]) -> Table:
    """Set columns to 0 in all rows, so that they carry no information."""
    rows = (tuple(0.0 if i in gone else value for i, value in enumerate(row)) for row in table.rows)
    return replace(table, rows=tuple(rows))


def judge(runs: Sequence[Labelled], shares: Sequence[LogShares]) -> list[Score]:
    """Score the most likely step of each run."""
    scores = []
    for one, share in zip(runs, shares, strict=True):
        ranking = ranked(share, one.run.trajectory, 5)
        first = ranking[0]
        verdict = Blame(
            agent=first.agent, step=first.step, reason="", confidence=first.probability, ranking=ranking
        )
        attribution = Attribution(run_id=one.run.trajectory.run_id, verdict=verdict, method="signals")
        assert one.run.label is not None
        scores.append(score(attribution, one.run.label, one.example.system))
    return scores


def show(name: str, scores: Sequence[Score], systems: Sequence[str] | None = None) -> None:
    for system in systems if systems is not None else (*dict.fromkeys(s.subset for s in scores), None):
        held = [s for s in scores if system in (None, s.subset)]
        right = sum(s.step_right for s in held)
        interval = wilson(right, len(held))
        print(
            f"  {name:28} {system or 'total':34} n {len(held):3}  step {100 * right / len(held):5.1f}"
            f" [{100 * interval.low:4.1f}, {100 * interval.high:4.1f}]"
            f"  agent {_percent(held, lambda s: s.agent_right)}"
            f"  top-3 {_percent(held, lambda s: s.in_top_three)}"
        )


def _percent(scores: Sequence[Score], claim: Callable[[Score], bool]) -> str:
    return f"{100 * sum(claim(s) for s in scores) / len(scores):5.1f}"


def weighed(reading: Reading, signals: Sequence[Signal]) -> LogShares:
    shares = posterior(reading, findings(reading, signals))
    return log_softmax([math.log(max(share, 1e-12)) for share in shares])


def _columns(reading: Reading) -> list[list[float]]:
    """Return one row per step: the prior, and for each kind of finding its presence and strength."""
    rows = [[before, *([0.0] * len(KINDS))] for before in prior(reading.roles)]
    for finding in findings(reading, SEEN_WITHOUT_REFERENCE):
        column = 1 + KINDS.index(finding.signal)
        rows[finding.step][column] = max(rows[finding.step][column], finding.weight)
    return rows


if __name__ == "__main__":
    main()
