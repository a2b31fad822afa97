"""``python -m benchmarks.accuracy.mutated_runs``: which faults are noticed when right runs are made wrong.

Each right run of ``right_runs`` that is not accused gives one faulty run for each kind of fault that it has a
place for (``answers.py``, ``deeds.py``). The choice is the same each time: by the run and the kind.
The texts are those that the rules were mended on; the faults are not.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from analyzer.inquiry.intervals import wilson
from benchmarks.accuracy.mutated_runs.answers import ANSWER_FAULTS, Change
from benchmarks.accuracy.mutated_runs.deeds import DEED_FAULTS, Mutant, replaced
from benchmarks.accuracy.mutated_runs.seen import Run, Seen
from benchmarks.accuracy.right_runs.__main__ import judged, runs_of
from semconv.record import record

_RIGHT: Final = Path(__file__).parent.parent / "right_runs"
_MOST: Final = 150
"""Faulty runs of one kind; 95 % intervals are then at most 16 points wide."""


@record
class Judged:
    """A faulty run and its verdict."""

    kind: str
    mutant: Mutant
    is_noticed: bool
    agent: str | None
    step: int


def mutants_of(run: Run) -> Iterator[tuple[str, Mutant]]:
    """Yield the faulty runs that a right one gives, with their kinds."""
    seen = Seen(run)
    for kind, changes in ANSWER_FAULTS.items() if seen.answered >= 0 else ():
        found = sorted(set(changes(seen)))
        mutant = _with_answer(seen, _coin(run, kind).choice(found)) if found else None
        if mutant is not None:
            yield kind, mutant
    for kind, fault in DEED_FAULTS.items():
        made = fault(seen, _coin(run, kind))
        if made is not None:
            yield kind, made


def _coin(run: Run, kind: str) -> random.Random:
    return random.Random(f"{run['id']} {kind}")


def _with_answer(seen: Seen, change: Change) -> Mutant | None:
    answer = seen.answer.replace(*change) if change[1] == "" else replaced(seen.answer, *change)
    if answer == seen.answer:
        return None
    steps = list(seen.steps)
    steps[seen.answered] = {**steps[seen.answered], "said": answer}
    agent = seen.steps[seen.answered]["agent"]
    return Mutant(run={**seen.run, "steps": steps, "output": answer}, agent=agent, step=seen.answered)


def sampled(files: Sequence[Path], most: int, kinds: Sequence[str]) -> Iterator[tuple[str, Mutant]]:
    """Yield the faulty runs of all files in an order that mixes them, at most so many of a kind."""
    runs = [run for file in files for run in runs_of(file)]
    random.Random(0).shuffle(runs)
    counts = dict.fromkeys(kinds, 0)
    for run, _, blame, _ in judged(runs):
        if min(counts.values()) >= most:
            return
        for kind, mutant in mutants_of(run) if blame is None else ():
            if counts.get(kind, most) < most:
                counts[kind] += 1
                yield kind, mutant


def measured(mutants: Sequence[tuple[str, Mutant]]) -> Iterator[Judged]:
    """Yield the verdicts on faulty runs, in order."""
    verdicts = judged(mutant.run for _, mutant in mutants)
    for (kind, mutant), (_, _, blame, step) in zip(mutants, verdicts, strict=True):
        yield Judged(
            kind=kind,
            mutant=mutant,
            is_noticed=blame is not None,
            agent=blame.agent if blame else None,
            step=step,
        )


def row_of(kind: str, runs: Sequence[Judged]) -> str:
    """Return the line of the table for one kind of fault."""
    noticed = sum(one.is_noticed for one in runs)
    agents = sum(one.agent == one.mutant.agent for one in runs)
    steps = sum(one.step == one.mutant.step for one in runs)
    share = wilson(noticed, len(runs))
    return (
        f"| {kind} | {len(runs)} | {noticed / len(runs):.0%} | [{share.low:.0%}, {share.high:.0%}]"
        f" | {agents / len(runs):.0%} | {steps / len(runs):.0%} |"
    )


def main() -> None:
    """Make the faulty runs, judge them, and print a line for each kind of fault."""
    kinds = (*ANSWER_FAULTS, *DEED_FAULTS)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=sorted(_RIGHT.glob("*.jsonl.gz")))
    parser.add_argument("--most", type=int, default=_MOST, help="faulty runs of one kind")
    parser.add_argument("--kind", choices=kinds, action="append", help="only this kind, with its missed runs")
    options = parser.parse_args()
    found = list(measured(list(sampled(options.files, options.most, options.kind or kinds))))
    print("| fault | n | noticed | 95 % | right agent | right step |\n|---|---|---|---|---|---|")
    for kind in options.kind or kinds:
        of_kind = [one for one in found if one.kind == kind]
        if of_kind:
            print(row_of(kind, of_kind))
        for one in of_kind if options.kind else ():
            if not one.is_noticed:
                print(_shown(one.mutant))


def _shown(mutant: Mutant) -> str:
    run: Mapping[str, Any] = mutant.run
    return f"{run['id']} {run['language']}, step {mutant.step} of {mutant.agent}: {run['output']!r}"


if __name__ == "__main__":
    main()
