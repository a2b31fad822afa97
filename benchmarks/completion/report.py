"""Common parts of both completion benchmarks' commands: settings as arguments, and table columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.completion.counting import Counts, percentile

_WIDTH: Final = 10
_COLUMNS: Final[Mapping[str, Callable[[Counts], object]]] = {
    "runs": lambda found: found.runs,
    "wrong": lambda found: found.wrong,
    "missing": lambda found: found.missing,
    "innocent": lambda found: found.innocent,
    "passed": lambda found: found.passed,
    "changed": lambda found: found.changed,
    "joined": lambda found: found.joined,
    "blames": lambda found: found.blames,
    "withdrawn": lambda found: found.withdrawn,
    "wait p50": lambda found: _seconds(found, 50),
    "wait p99": lambda found: _seconds(found, 99),
}


def setting(text: str) -> tuple[str, int]:
    """Read ``name=number``."""
    name, _, value = text.partition("=")
    return name, int(value)


def heading(first: str) -> str:
    """Return the header of the table of ``figures``."""
    return first + "".join(f"{name:>{_WIDTH}}" for name in _COLUMNS)


def figures(found: Counts) -> str:
    """Return the counts as one row."""
    return "".join(f"{read(found):>{_WIDTH}}" for read in _COLUMNS.values())


def _seconds(found: Counts, percent: float) -> str:
    value = percentile(found.waits, percent)
    return "-" if value is None else f"{value:.1f}"
