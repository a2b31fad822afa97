"""Typed rows of ``support.toml``: which aspects each dialect records, and which are missing.

One `Support` describes one framework as one instrumentation writes its spans. The table is TOML because the
standard library reads it: ``blamespan lint`` needs it at run time. ``docs/support.md`` and
``docs/frameworks`` are generated from it, and ``tests/contract/test_support.py`` checks it against
recordings.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Any, Final

ASPECTS: Final = ("agent", "text", "tools", "handoff", "task", "errors")
"""The aspects declared for each framework, in the order of the page's columns; fields of `Support`."""
_LISTS: Final = ("scopes", "recordings", "switches", "replay")


class Level(StrEnum):
    """Extent to which the spans record an aspect."""

    YES = "yes"
    """Everything is recorded."""
    PARTLY = "partly"
    """Some of it is recorded, or only with a setting; the note says which."""
    NO = "no"
    """Nothing is recorded; the note says what blamespan does instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Extent to which the spans record one aspect, and where."""

    level: Level
    note: str = ""
    """Place of the aspect, or why it is missing and the setting that adds it; one line of Markdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """The aspects that the spans of one framework record, as one instrumentation writes them."""

    framework: str
    """The framework's usual name: ``openai-agents``, ``langgraph``."""
    instrumentation: str
    """The library that writes the spans, with the version that was read or recorded."""
    source: str
    """``recorded`` if spans of a real run were seen, ``source`` if only the code that writes them."""
    agent: Coverage
    """The agent of each step."""
    text: Coverage
    """The input and output of model calls."""
    tools: Coverage
    """Tool calls with arguments and results."""
    handoff: Coverage
    """The source and target of each handoff."""
    task: Coverage
    """The run's question and its answer."""
    errors: Coverage
    """Failures and their messages."""
    scopes: tuple[str, ...] = ()
    """Prefixes of the scope names of its spans; they tell recordings of one dialect apart."""
    recordings: tuple[str, ...] = ()
    """Recorded runs that show it, without suffix (``../shared/captures``, ``tests/frameworks/fixtures``)."""
    switches: tuple[str, ...] = ()
    """Settings that make it record more, as a user writes them: ``TRACELOOP_TRACE_CONTENT=true``."""
    replay: tuple[str, ...] = ()
    """Advice for replays if even ``switches`` record no model calls, or that there is none."""

    def aspects(self) -> Iterator[tuple[str, Coverage]]:
        """Yield the aspects by name, in the order of ``ASPECTS``."""
        for name in ASPECTS:
            yield name, getattr(self, name)


@functools.cache
def support_table() -> Mapping[str, tuple[Support, ...]]:
    """Return the rows by dialect name, in the file's order; read once per process.

    Raises:
        ValueError: A row misses an aspect or names an unknown level.
        TypeError: A row misses another field or has an unknown one.
    """
    table = tomllib.loads(files("semconv.dialects").joinpath("support.toml").read_text(encoding="utf-8"))
    return {dialect: tuple(map(_support, rows)) for dialect, rows in table.items()}


def lines_of(dialect: str, scope: str, field: Callable[[Support], tuple[str, ...]]) -> tuple[str, ...] | None:
    """Return the lines that a dialect declares for spans of a scope; ``None`` if it declares none."""
    rows = support_table().get(dialect, ())
    return next(
        (
            field(support)
            for support in rows
            if field(support) and (scope.startswith(support.scopes) if support.scopes else len(rows) == 1)
        ),
        None,
    )


def _support(row: Mapping[str, Any]) -> Support:
    aspects = {name: _coverage(row.get(name, {})) for name in ASPECTS}
    lists = {name: tuple(row.get(name, ())) for name in _LISTS}
    return Support(**{**row, **aspects, **lists})


def _coverage(cell: Mapping[str, str]) -> Coverage:
    ((level, note),) = cell.items()
    return Coverage(level=Level(level), note=note)
