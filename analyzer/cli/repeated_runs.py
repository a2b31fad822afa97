"""Many runs in few lines: one on each, and a ranking of what breaks them. Pure.

A repetition counts once for each failure that it shows, whatever the number of its runs. Failures are grouped
as issues are: by agent, mode, kind of step, tool and error. Intervals are Wilson's, of 95 %.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analyzer.inquiry.intervals import wilson
from analyzer.inquiry.present import counted, plain
from semconv.model import Attribution, Blame, Status, Trajectory
from semconv.record import record

if TYPE_CHECKING:
    from analyzer.issues.recurrence import Fingerprint

ENDED_BY_USER: Final = (0, 130, 143)
"""Exit codes of success, and of programs ended by Ctrl-C and SIGTERM, which are no failure of an agent."""
_FAILED: Final = frozenset({Status.ATTRIBUTED, Status.UNDETERMINED})
_TO_SHOW: Final = _FAILED | {Status.SUSPECTED}
_UNJUDGED: Final = frozenset({Status.UNREADABLE, Status.ERROR})
_MOST_STEPS: Final = 3
"""Places of one failure that the table shows; JSON has all."""
_MOST_NUMBERS: Final = 6
"""Runs with one failure that the table names; JSON has all."""
_MOST_IN_FULL: Final = 3
"""Runs that are all shown with their steps."""


@record
class Judged:
    """One run of a program with its verdict."""

    trajectory: Trajectory
    attribution: Attribution


@record
class Repetition:
    """One execution of the program."""

    code: int
    """Its exit code."""
    judged: tuple[Judged, ...]
    """Its runs; empty if it showed none, or they could not be judged."""

    @property
    def statuses(self) -> frozenset[Status]:
        """The statuses of its runs."""
        return frozenset(one.attribution.status for one in self.judged)

    @property
    def has_failed(self) -> bool:
        """Whether its exit code or a verdict says that it failed."""
        return self.code not in ENDED_BY_USER or not _FAILED.isdisjoint(self.statuses)

    @property
    def to_show(self) -> tuple[Judged, ...]:
        """Its runs whose steps explain a failure."""
        return tuple(one for one in self.judged if one.attribution.status in _TO_SHOW)

    @property
    def is_suspected(self) -> bool:
        """Whether it reported no failure and is only suspected."""
        return not self.has_failed and Status.SUSPECTED in self.statuses

    @property
    def is_unjudged(self) -> bool:
        """Whether nothing is known of it."""
        return not self.has_failed and (not self.judged or self.statuses <= _UNJUDGED)


@record
class Breaking:
    """One way in which repetitions broke."""

    mark: Fingerprint
    repetitions: tuple[int, ...]
    """Their numbers, from 1."""
    steps: tuple[tuple[int, int], ...]
    """Indices of the decisive step with the number of repetitions, the most frequent first."""


def ranking(program: str, repetitions: Sequence[Repetition]) -> tuple[Breaking, ...]:
    """Return the ways in which repetitions broke, the most frequent first."""
    numbers: defaultdict[Fingerprint, list[int]] = defaultdict(list)
    steps: defaultdict[Fingerprint, Counter[int]] = defaultdict(Counter)
    for number, one in enumerate(repetitions, 1):
        for mark, step in dict(_blames(program, one)).items():
            numbers[mark].append(number)
            steps[mark][step] += 1
    found = (
        Breaking(mark=mark, repetitions=tuple(those), steps=tuple(steps[mark].most_common()))
        for mark, those in numbers.items()
    )
    return tuple(sorted(found, key=lambda one: (-len(one.repetitions), one.repetitions)))


def _blames(program: str, one: Repetition) -> Iterator[tuple[Fingerprint, int]]:
    from analyzer.issues.recurrence import fingerprint  # noqa: PLC0415 - one run has no ranking

    for judged in one.judged:
        blame = judged.attribution.verdict
        steps = {step.index: step for step in judged.trajectory.steps}
        if isinstance(blame, Blame) and blame.step in steps:
            yield fingerprint(program, blame, steps[blame.step]), blame.step


def in_full(judged: Sequence[Judged]) -> list[tuple[int, Judged]]:
    """Return the runs to show with their steps, numbered from 1: all of a few, else the first failed one.

    Without a failed one it is the first suspected one.
    """
    numbered = list(enumerate(judged, 1))
    if len(numbered) <= _MOST_IN_FULL:
        return numbered
    found = [(number, one) for number, one in numbered if one.attribution.status in _TO_SHOW]
    return sorted(found, key=lambda each: each[1].attribution.status not in _FAILED)[:1]


def lines_of(judged: Sequence[Judged]) -> Iterator[str]:
    """Yield a line on each run, and one on all neighbours of which the same is to be said."""
    numbered = enumerate((in_a_line(one.attribution) for one in judged), 1)
    for told, alike in groupby(numbered, key=itemgetter(1)):
        numbers = [number for number, _ in alike]
        which = f"run {numbers[0]}" if len(numbers) == 1 else f"runs {numbers[0]} to {numbers[-1]}"
        yield f"{which} of {len(judged)}: {told}"


def progress_line(number: int, planned: int, one: Repetition) -> str:
    """Return one line on a repetition that has ended."""
    told = "; ".join(in_a_line(each.attribution) for each in one.judged) or "nothing to judge"
    return f"{number} of {planned}: exit code {one.code}, {told}"


def in_a_line(attribution: Attribution) -> str:
    """Return a verdict in one line: its status, and for a failure the agent, the step and why."""
    verdict, status = attribution.verdict, attribution.status.value.replace("_", " ")
    if isinstance(verdict, Blame):
        return f"{status}: {plain(verdict.agent, 24)}, step {verdict.step}: {plain(verdict.reason, 120)}"
    return status if attribution.status is Status.NO_FAILURE else f"{status}: {plain(verdict.reason, 120)}"


def final_document(program: str, repetitions: Sequence[Repetition], planned: int) -> dict[str, Any]:
    """Return the last object of ``--format json``."""
    n = len(repetitions)
    return {
        "final": True,
        "program": program,
        "planned": planned,
        "repetitions": n,
        "exit_codes": dict(sorted(Counter(str(repetition.code) for repetition in repetitions).items())),
        "failed": _rate(sum(repetition.has_failed for repetition in repetitions), n),
        "suspected": _rate(sum(repetition.is_suspected for repetition in repetitions), n),
        "unjudged": sum(repetition.is_unjudged for repetition in repetitions),
        "broken_by": [
            {
                "agent": one.mark.agent,
                "mode": one.mark.mode or None,
                "kind": one.mark.kind,
                "target": one.mark.tool or None,
                "error": one.mark.error or None,
                "suspected": one.mark.is_suspected,
                "title": one.mark.title,
                **_rate(len(one.repetitions), n),
                "steps": [{"step": step, "count": count} for step, count in one.steps],
                "repetitions": list(one.repetitions),
            }
            for one in ranking(program, repetitions)
        ],
    }


def _rate(count: int, n: int) -> dict[str, Any]:
    interval = wilson(count, n)
    return {
        "count": count,
        "rate": count / n if n else None,
        "interval": [round(interval.low, 4), round(interval.high, 4)],
    }


def final_table(program: str, repetitions: Sequence[Repetition]) -> RenderableType:
    """Return how often the program, or anything if it has no name, broke, and what broke it."""
    n = len(repetitions)
    failed = sum(repetition.has_failed for repetition in repetitions)
    suspected = sum(repetition.is_suspected for repetition in repetitions)
    unjudged = sum(repetition.is_unjudged for repetition in repetitions)
    counts = [
        f"{failed} failed ({_share(failed, n)})",
        f"{suspected} suspected ({_share(suspected, n)})" if suspected else "",
        f"{unjudged} showed nothing to judge" if unjudged else "",
        f"{n - failed - suspected - unjudged} without a sign of failure",
    ]
    of_program = f" of {plain(program, 60)}" if program else ""
    heading = Text(f"\nof {counted(n, 'run')}{of_program}: {', '.join(filter(None, counts))}")
    found = ranking(program, repetitions)
    return Group(heading, "", _table(found, n)) if found else heading


def _table(found: Sequence[Breaking], n: int) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    table.add_column("what broke it", overflow="fold")
    table.add_column("runs", justify="right")
    table.add_column("share, 95 % interval")  # wraps: kept in one line, it broke the words beside it
    table.add_column("at step", overflow="fold")
    table.add_column("in run", overflow="fold")
    for one in found:
        places = ", ".join(f"{step} (in {count})" for step, count in one.steps[:_MOST_STEPS])
        more = ", …" if len(one.steps) > _MOST_STEPS else ""
        count = len(one.repetitions)
        those = ", ".join(map(str, one.repetitions[:_MOST_NUMBERS])) + ", …" * (count > _MOST_NUMBERS)
        row = (str(count), _share(count, n), f"{places}{more}", those)
        table.add_row(Text(plain(one.mark.title, 120)), *row)
    return table


def _share(count: int, n: int) -> str:
    interval = wilson(count, n)
    return f"{count / n:.0%}, {interval.low:.0%} to {interval.high:.0%}"
