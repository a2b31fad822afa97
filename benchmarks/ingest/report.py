"""Rows of measurements as Markdown tables. Pure.

A figure is the median of its rounds, with minimum and maximum; a ratio is computed within each round, between
neighbours, and its median is shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Final, TypeAlias

from benchmarks.ingest.measuring import Case, Figures
from benchmarks.ingest.subjects import BASELINE, SUBJECTS

_TOLERANCE: Final = 0.1
"""Share of acknowledged bytes that may be missing or duplicated in a row that is shown."""
Rounds: TypeAlias = Mapping[Case, Mapping[int, Figures]]
"""The figures of each row, by the number of the round."""

_HEADS: Final = (
    "",
    "acknowledged means",
    "spans/s per core",
    f"÷ {BASELINE}",
    "spans/s",
    "ack p50 ms",
    "ack p99 ms",
    "at half load p99 ms",
    "of it sent late p99 ms",
    "disk's flush p99 ms",
    "peak MiB",
    "delivered",
    "n",
)


def render(rounds: Rounds, refused: Mapping[Case, str]) -> str:
    """Return the tables, and why rows are not in them."""
    telling = {case: found for case, found in rounds.items() if _is_telling(found)}
    left_out = [_why(case, reason) for case, reason in refused.items()]
    left_out += [_why(case, _undelivered(found)) for case, found in rounds.items() if case not in telling]
    parts = [*_tables(telling), _shares(telling)]
    if left_out:
        parts.append("Left out:\n\n" + "\n".join(left_out))
    return "\n\n".join(part for part in parts if part)


def _is_telling(found: Mapping[int, Figures]) -> bool:
    """Return whether everything acknowledged arrived exactly once; otherwise the speed is meaningless."""
    return abs(_delivered(found) - 1) <= _TOLERANCE


def _delivered(found: Mapping[int, Figures]) -> float:
    return median(figures.delivered for figures in found.values())


def _undelivered(found: Mapping[int, Figures]) -> str:
    speed = median(figures.spans_per_s for figures in found.values())
    return f"{_delivered(found):.0%} of what it acknowledged had come out in the end ({speed:,.0f} spans/s)"


def _why(case: Case, reason: str) -> str:
    return f"- {case.subject}, {_title(case)}: {reason}"


def _tables(rounds: Rounds) -> Iterable[str]:
    groups: defaultdict[Case, list[Case]] = defaultdict(list)
    for case in rounds:
        groups[replace(case, subject="")].append(case)
    for group, cases in groups.items():
        cases.sort(key=lambda case: list(SUBJECTS).index(case.subject))
        yield f"### {_title(group)}\n\n{_table([_HEADS, *(_row(case, rounds) for case in cases)])}"


_CARRY: Final = {"agent": "an agent's", "count": "with a count of tokens", "text": "with a text about tokens"}


def _title(case: Case) -> str:
    parts = [{"grpc": "gRPC", "http": "HTTP"}[case.protocol], f"{case.spans} spans a request"]
    if case.is_gzip:
        parts.append("gzip")
    if case.agents:
        parts.append(f"{case.agents} % of the traces {_CARRY[case.sign]}")
    return ", ".join(parts)


def _row(case: Case, rounds: Rounds) -> tuple[str, ...]:
    found = list(rounds[case].values())

    def spread(read: Callable[[Figures], float], form: str = ",.0f") -> str:
        return _spread([read(figures) for figures in found], form)

    return (
        case.subject,
        SUBJECTS[case.subject].acknowledges,
        spread(lambda figures: figures.spans_per_cpu_s),
        _ratio(rounds, case, replace(case, subject=BASELINE)),
        spread(lambda figures: figures.spans_per_s),
        spread(lambda figures: figures.p50_ms, ".1f"),
        spread(lambda figures: figures.p99_ms, ".1f"),
        spread(lambda figures: figures.half_load_p99_ms, ".1f"),
        spread(lambda figures: figures.late_p99_ms, ".1f"),
        spread(lambda figures: figures.flush_p99_ms, ".1f"),
        spread(lambda figures: figures.peak_mib),
        f"{_delivered(rounds[case]):.1%}",
        str(len(found)),
    )


def _shares(rounds: Rounds) -> str:
    """Return the cost of agents' traces, relative to the same load without them."""
    heads = ("", "", "of the throughput per core without agents")
    rows = [
        (case.subject, _title(case), _ratio(rounds, case, plain))
        for case in rounds
        if case.agents and (plain := replace(case, agents=0, sign="agent")) in rounds
    ]
    return f"### What agents' traces cost\n\n{_table([heads, *rows])}" if rows else ""


def _ratio(rounds: Rounds, case: Case, other: Case) -> str:
    """Compare round by round: disturbances of the machine then affect both."""
    theirs: Mapping[int, Figures] = rounds.get(other, {})
    pairs = [(figures, theirs[number]) for number, figures in rounds[case].items() if number in theirs]
    return _spread([mine.spans_per_cpu_s / base.spans_per_cpu_s for mine, base in pairs], ".2f")


def _spread(values: Sequence[float], form: str) -> str:
    if not values:
        return "-"
    middle = format(median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), form)} to {format(max(values), form)})"


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = rows
    lines = [head, ["---"] * len(head), *rest]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
