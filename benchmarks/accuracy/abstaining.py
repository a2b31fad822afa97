# ruff: noqa: E501 - rows of Markdown tables cannot be wrapped
"""Withheld verdicts, and accuracy of the others: ``python -m benchmarks.accuracy.abstaining FOLDER``.

Tables of docs/accuracy.md, by system, on the labelled runs of a folder, without a model and without the right answers:

- ``default``: every run answered, beside the trivial rule that does best on the same runs, and only those with at
  least the default of ``BLAMESPAN_PRECISION``;
- ``floors``: the same for other floors, the curve of share answered against precision;
- ``calibration``: calibration error with its interval, beside that of perfect calibration; the ranker is trained on
  all systems but the tested one;
- ``left_out``: the floor for each system chosen on the other systems;
- ``worths``: verdicts by the evidence that leads them, and their confidence corrected by half of the labels;
- ``sets``: sets of steps that state 90 % coverage, of rankers trained on the other folds of the same system; not in
  ``--only``'s default, because training takes minutes.

``signals`` learns nothing, but its rules and limits were written with these logs in view: no table is a blind test.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Final, TypeVar

from analyzer.inquiry.calibration import Worth, least_confidence
from analyzer.inquiry.intervals import wilson
from analyzer.inquiry.posterior import steps_within
from analyzer.inquiry.visible import visible_run
from analyzer.lab.evaluation.benchmark import withhold
from analyzer.lab.evaluation.dataset import read_dataset
from analyzer.lab.evaluation.folds import split_by_keys
from analyzer.lab.evaluation.scores import Score, confident, score
from analyzer.lab.evaluation.significance import bootstrap, calibration_error, error_if_calibrated
from analyzer.lab.evaluation.training import train
from analyzer.lab.evaluation.validation import FOLDS, Labelled, across_systems, named, prepare
from analyzer.methods.without_model import judge_by_signals
from analyzer.signals.registry import findings
from analyzer.signals.scoring import marks, most_confidence, posterior
from analyzer.texts.run_view import read
from benchmarks.accuracy.trivial import best_agent, best_step
from collector_processor.settings.fields import PRECISION
from semconv.model import Attribution, Blame

DATASETS: Final = (
    "who_and_when.dev.jsonl.gz",
    "agenterrorbench_gaia.dev.jsonl.gz",
    "trail.dev.jsonl.gz",
    "tracertraj_code.dev.jsonl.gz",
    "agentrx.dev.jsonl.gz",
)
READ_BY_AUTHORS: Final = ("who_and_when", "tracertraj")
"""Systems whose logs were read when the rules of signals were written."""
FLOORS: Final = (0.15, PRECISION, 0.25, 0.3, 0.4, 0.5)
_DRAWS: Final = 40
TARGET: Final = 0.45
"""Precision for which ``left_out`` chooses a floor."""


Item = TypeVar("Item")


@cache
def labelled_runs(folder: Path) -> tuple[Labelled, ...]:
    """Return the labelled runs of all data sets of a folder, each conversation once."""
    return prepare([run for name in DATASETS for run in read_dataset(folder / name)])


@cache
def by_signals(folder: Path) -> tuple[Score, ...]:
    """Score the verdicts of signals, with none withheld."""
    return tuple(_scored(one, _verdict(one)) for one in labelled_runs(folder))


@cache
def unlimited(folder: Path) -> tuple[Score, ...]:
    """Score the same verdicts with their confidence before the limits of ``scoring.earned``."""
    return tuple(_scored(one, _unlimited(one, _verdict(one))) for one in labelled_runs(folder))


def default_table(folder: Path) -> list[str]:
    """Return the table with all runs answered, and with the default."""
    rows = [
        "| system | n | all answered: step % | best trivial rule | agent % | best trivial rule | answered by default | % of runs | step % of these | best trivial rule | agent % of these | best trivial rule |",
        "|---" * 12 + "|",
    ]
    runs = labelled_runs(folder)
    for (name, scores), (_, held) in zip(
        parts(by_signals(folder)), parts(runs, lambda one: one.example.system), strict=True
    ):
        told = answered(scores, PRECISION)
        cells = (
            name,
            len(scores),
            _share([s.step_right for s in scores]),
            best_step([one.run for one in held]),
            _share([s.agent_right for s in scores]),
            best_agent([one.run for one in held]),
            len(told),
            _share([s.confidence is not None and s.confidence >= PRECISION for s in scores]),
            *_beside(told, held),
        )
        rows.append(_row(cells))
    return rows


def floors_table(folder: Path) -> list[str]:
    """Return the share answered and the precision of the step, by floor."""
    rows = [
        "| system | n | " + " | ".join(f"floor {floor:g}" for floor in FLOORS) + " |",
        "|---|---|" + "---|" * len(FLOORS),
    ]
    for name, scores in parts(by_signals(folder)):
        cells = []
        for floor in FLOORS:
            told = answered(scores, floor)
            right = f"{100 * sum(s.step_right for s in told) / len(told):.0f}" if told else "-"
            cells.append(f"{100 * len(told) / len(scores):.0f} / {right}")
        rows.append(_row((name, len(scores), *cells)))
    return rows


def calibration_table(folder: Path) -> list[str]:
    """Return calibration errors with intervals, beside that of perfect calibration at this n."""
    rows = [
        "| system | n | `signals` without limits | `signals` | `ranker` of the other systems |",
        "|---|---|---|---|---|",
    ]
    tiers = (unlimited(folder), by_signals(folder), across_systems(labelled_runs(folder)))
    for (name, scores), *others in zip(*(parts(tier) for tier in tiers), strict=True):
        rows.append(_row((name, len(scores), *(_error(held) for held in (scores, *(o[1] for o in others))))))
    return rows


def left_out_table(folder: Path) -> list[str]:
    """Return, for each system, a floor that reaches the target on the others."""
    rows = [
        f"| system left out | n | floor that reaches {100 * TARGET:.0f} % on the others | answered | % of runs | step % of these | best trivial rule | agent % of these | best trivial rule |",
        "|---" * 9 + "|",
    ]
    scores, kept, runs = by_signals(folder), list[Score](), labelled_runs(folder)
    for system in dict.fromkeys(s.subset for s in scores):
        held = [s for s in scores if s.subset == system]
        floor = least_confidence(confident([s for s in scores if s.subset != system]), TARGET)
        told = [] if floor is None else answered(held, floor)
        kept += told
        rows.append(
            _row((system, len(held), "-" if floor is None else f"{floor:.2f}", *_told(told, held, runs)))
        )
    return [*rows, _row(("total", len(scores), "", *_told(kept, scores, runs)))]


def worths_table(folder: Path) -> list[str]:
    """Return how right shown verdicts are by the evidence that leads them, and what labels do to their confidence.

    Each system's runs are halved at random; the labels of one half correct the confidence of the other half.
    """
    rows = [
        "| leading evidence | n | right steps, % | confidence, % | Brier score | corrected | ECE | corrected |",
        "|---|---|---|---|---|---|---|---|",
    ]
    judged = [(one, _verdict(one)) for one in labelled_runs(folder)]
    shown = [(one, verdict) for one, verdict in judged if verdict.confidence >= PRECISION]
    pairs = [pair for salt in range(_DRAWS) for pair in _corrected(shown, salt)]
    counts = Counter(verdict.mode for _, verdict in shown if verdict.mode)
    for mode in [*(mode for mode, _ in counts.most_common()), "all"]:
        own = [each for each in pairs if mode in {each[0], "all"}]
        before = [(stated, right) for _, stated, _, right in own]
        after = [(corrected, right) for *_, corrected, right in own]
        cells = (
            mode,
            len(own) // _DRAWS,
            f"{100 * fmean(right for _, right in before):.0f}",
            f"{100 * fmean(stated for stated, _ in before):.0f}",
            *(f"{fmean((told - right) ** 2 for told, right in each):.3f}" for each in (before, after)),
            *(f"{calibration_error(each) or 0.0:.3f}" for each in (before, after)),
        )
        rows.append(_row(cells))
    return rows


def _corrected(
    shown: Sequence[tuple[Labelled, Blame]], salt: int
) -> Iterator[tuple[str, float, float, bool]]:
    """Yield mode, stated and corrected confidence of each verdict, and whether its step is right."""
    draw = random.Random(salt)
    first = [bool(draw.getrandbits(1)) for _ in shown]
    worths: defaultdict[tuple[str, bool, str], Worth] = defaultdict(Worth)
    for (one, verdict), half in zip(shown, first, strict=True):
        key = (one.example.system, half, verdict.mode)
        found, right = worths[key], verdict.step == one.example.step
        worths[key] = Worth(
            labelled=found.labelled + 1,
            right=found.right + right,
            stated=found.stated + verdict.confidence,
        )
    for (one, verdict), half in zip(shown, first, strict=True):
        worth = worths[one.example.system, not half, verdict.mode]
        stated, right = verdict.confidence, verdict.step == one.example.step
        yield verdict.mode, stated, worth.corrected(stated), right


def sets_table(folder: Path) -> list[str]:
    """Return, for each system with enough labels, what its rankers' sets of steps held in runs they had not seen."""
    rows = [
        "| system | labels | sets shown | held the decisive step, % | steps in a set | of the run's steps, % |",
        "|---|---|---|---|---|---|",
    ]
    runs = named(labelled_runs(folder))
    for system in dict.fromkeys(one.example.system for one in runs):
        own = [one for one in runs if one.example.system == system]
        if not (sets := list(_sets(own))):
            continue
        steps = [len(found) for _, found, _, _ in sets]
        cells = (
            _share([is_shown for *_, is_shown, _ in sets]),
            _share([held for held, *_ in sets]),
            f"{fmean(steps):.1f}",
            f"{100 * sum(steps) / sum(length for *_, length in sets):.0f}",
        )
        rows.append(_row((system, len(own), *cells)))
    return rows


def _sets(runs: Sequence[Labelled]) -> Iterator[tuple[bool, tuple[int, ...], bool, int]]:
    """Yield whether a set holds the decisive step, its steps, whether it would be shown, and the run's length."""
    for held in split_by_keys([one.example.keys for one in runs], FOLDS):
        ranker = train([one.example for place, one in enumerate(runs) if place not in held])
        if ranker.set_rule is None:  # too few labels
            return
        for one in (runs[place] for place in held):
            found = steps_within(ranker.rank(one.example.table), ranker.set_rule)
            yield one.example.step in found, found, ranker.set_rule.is_shown, len(one.example.table.rows)


def parts(
    items: Sequence[Item], system_of: Callable[[Item], str] = attrgetter("subset")
) -> Iterator[tuple[str, Sequence[Item]]]:
    """Yield the scores of each system, of those whose logs were read for the rules, of the others, and of all."""
    for system in dict.fromkeys(map(system_of, items)):
        yield system, [each for each in items if system_of(each) == system]
    yield (
        "read when the rules were written",
        [each for each in items if system_of(each).startswith(READ_BY_AUTHORS)],
    )
    yield "the other systems", [each for each in items if not system_of(each).startswith(READ_BY_AUTHORS)]
    yield "total", items


def answered(scores: Sequence[Score], floor: float) -> list[Score]:
    """Return the scores of verdicts that are not withheld."""
    return [s for s in withhold(scores, floor) if s.step is not None]


def _verdict(one: Labelled) -> Blame:
    verdict = judge_by_signals(visible_run(replace(one.run.trajectory, reference=None)))
    assert isinstance(verdict, Blame)
    return verdict


def _unlimited(one: Labelled, verdict: Blame) -> Blame:
    reading = read(visible_run(replace(one.run.trajectory, reference=None)))
    found = findings(reading)
    stated = posterior(reading, found)[verdict.step]
    return replace(verdict, confidence=min(stated, most_confidence(marks(reading, found), verdict.step)))


def _scored(one: Labelled, verdict: Blame) -> Score:
    assert one.run.label is not None
    attribution = Attribution(run_id=one.run.trajectory.run_id, verdict=verdict, method="signals")
    return score(attribution, one.run.label, one.example.system)


def _error(scores: Sequence[Score]) -> str:
    pairs = confident(scores)
    if not pairs:
        return "-"
    error, ideal = calibration_error(pairs), error_if_calibrated(pairs)
    ends = bootstrap(pairs, lambda drawn: calibration_error(drawn) or 0.0)
    return f"{error:.3f} [{ends.low:.3f}, {ends.high:.3f}] ({ideal:.3f})"


def _told(told: Sequence[Score], held: Sequence[Score], runs: Sequence[Labelled]) -> tuple[str, ...]:
    return str(len(told)), f"{100 * len(told) / len(held):.1f}", *_beside(told, runs)


def _beside(told: Sequence[Score], runs: Sequence[Labelled]) -> tuple[str, ...]:
    """Return the shares of right answers, each beside that of the best trivial rule on the same runs."""
    asked = {s.run_id for s in told}
    own = [one.run for one in runs if one.run.trajectory.run_id in asked]
    return (
        _share([s.step_right for s in told]),
        best_step(own).share,
        _share([s.agent_right for s in told]),
        best_agent(own).share,
    )


def _share(claims: Sequence[bool]) -> str:
    if not claims:
        return "-"
    ends = wilson(sum(claims), len(claims))
    return f"{100 * sum(claims) / len(claims):.1f} [{100 * ends.low:.1f}, {100 * ends.high:.1f}]"


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


TABLES: Final[Mapping[str, Callable[[Path], list[str]]]] = {
    "default": default_table,
    "floors": floors_table,
    "calibration": calibration_table,
    "left_out": left_out_table,
    "worths": worths_table,
    "sets": sets_table,
}
DEFAULT: Final = ("default", "floors", "calibration", "left_out", "worths")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the labelled data sets lie")
    parser.add_argument("--only", choices=TABLES, action="append", help="this table; may be repeated")
    chosen = parser.parse_args()
    for name in chosen.only or DEFAULT:
        print(f"\n{name}\n" + "\n".join(TABLES[name](chosen.folder)))


if __name__ == "__main__":
    main()
