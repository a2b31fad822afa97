"""Columns of figures that an answer may add up: of tables, lists and repeated calls of a tool. Pure."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.signals.run_view import Reading
from analyzer.signals.suspicion.figure_sources import Source
from analyzer.signals.suspicion.figures import Figure, figures

_COLUMN: Final = range(2, 401)


def listed_columns(stated: Sequence[Figure], loose: frozenset[float]) -> Iterator[tuple[float, ...]]:
    """Yield the known figures in an answer, by unit: the answer may add up some of a tool's figures."""
    by_unit: defaultdict[str, list[float]] = defaultdict(list)
    for figure in stated:
        if figure.value in loose:
            by_unit[figure.unit].append(figure.value)
    for values in by_unit.values():
        if len(values) in _COLUMN:
            yield tuple(values)


def columns_of(reading: Reading, origins: Sequence[Source]) -> Iterator[tuple[float, ...]]:
    """Yield the columns of each source: of its table or lines, and of equal positions in a tool's results."""
    by_tool: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for source in origins:
        table = _json_columns(source.text)
        columns = list(table.values()) if table else _line_columns(source.text)
        yield from (tuple(column) for column in columns if len(column) in _COLUMN)
        if source.is_result and source.step is not None:
            tool = reading.steps[source.step].target or ""
            for place, figure in enumerate(source.figures[:8]):
                by_tool[tool, place].append(figure.value)
    yield from (tuple(column) for column in by_tool.values() if len(column) in _COLUMN)


def _json_columns(text: str) -> dict[str, list[float]]:
    """Return the numbers of a JSON document by their key, in order."""
    if text[:1] not in "[{":
        return {}
    try:
        stack: list[tuple[str, Any]] = [("", json.loads(text))]
    except (ValueError, RecursionError):
        return {}
    found: defaultdict[str, list[float]] = defaultdict(list)
    while stack:
        key, value = stack.pop()
        if isinstance(value, Mapping):
            stack += [(str(name), one) for name, one in reversed(list(value.items()))]
        elif isinstance(value, list):
            stack += [(key, one) for one in reversed(value)]
            found[f"#{key}"] += [float(len(value))]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[key].append(float(value))
        elif isinstance(value, str):
            found[key] += [figure.value for figure in figures(value)[:1]]
    return found


def _line_columns(text: str) -> list[list[float]]:
    """Return the n-th figures of the lines of a text, for each n; of its clauses if it is one line."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        lines = re.split(r"[;,] (?=[A-Za-z])|\. ", text)
    rows = [row for line in lines if (row := [figure.value for figure in figures(line)])]
    width = max((len(row) for row in rows), default=0)
    return [[row[place] for row in rows if len(row) > place] for place in range(min(width, 8))]
