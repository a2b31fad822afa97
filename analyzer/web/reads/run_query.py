"""Query of the list of runs: its record, its filters in a URL, its cursor, and its SQL. Pure.

A filter that is not known is refused: a program that misspells one would otherwise act on all runs. The SQL
reads only ``run_totals``, whose rows are compact; documents of verdicts are read for one page only.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from analyzer.inquiry.errors import AnalyzerError
from analyzer.telemetry.metric import CUT
from collector_processor.core.records import StoredVerdict
from collector_processor.core.runs import RunTotals
from collector_processor.otlp import NO_TENANT, Tenant
from semconv.model import Status
from semconv.record import record

RunName = tuple[Tenant, str]
"""A run's tenant and id."""
MAX_LISTED: Final = 500
MOST_ASKED: Final = 200
"""Longest search, in characters."""
_MOST_NS: Final = 1 << 63
_SHORT: Final = re.compile(r"[1-9][0-9]{0,5}[smhd]")
_SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TIME: Final = "expected an RFC 3339 time such as 2026-01-31T09:00:00Z, or an age such as 30m, 24h or 7d"
VERDICT: Final = tuple(StoredVerdict.__dataclass_fields__)
TOTALS: Final = tuple(RunTotals.__dataclass_fields__)
TIME: Final = "decided_ns"


class Measure(StrEnum):
    """A number of each run; the value is its column."""

    CONFIDENCE = "confidence"
    STEPS = "steps"
    DURATION = "duration_ns"
    TOKENS = "tokens"
    COST = "cost_usd"


class Sort(StrEnum):
    """An order of the list of runs; runs without the number are left out."""

    NEWEST = "newest"
    OLDEST = "oldest"
    LONGEST = "longest"
    SHORTEST = "shortest"
    MOST_STEPS = "most_steps"
    FEWEST_STEPS = "fewest_steps"
    MOST_TOKENS = "most_tokens"
    FEWEST_TOKENS = "fewest_tokens"
    COSTLIEST = "costliest"
    CHEAPEST = "cheapest"
    SUREST = "surest"
    LEAST_SURE = "least_sure"


@record
class RunKey:
    """A position in the list of runs: the last run of a page."""

    at: int | float
    """The run's number that the list is sorted by; the time of its verdict in Unix ns if by time."""
    tenant: Tenant
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds on a number of each run; a run without the number does not fit."""

    of: Measure
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Query of the list of runs."""

    tenant: Tenant = NO_TENANT
    """Empty for all tenants."""
    statuses: tuple[Status, ...] = ()
    """Only runs with one of these; empty for all."""
    text: str = ""
    """Searched in the run's id, service, blamed agent, verdict's reason and kept texts; case is ignored."""
    service: str = ""
    """Only runs of this service, named as in the metrics; empty for all."""
    agent: str = ""
    """Only runs blamed on this agent, named as in the metrics; empty for all."""
    since_ns: int | None = None
    """Only verdicts decided at this time or later, Unix ns."""
    until_ns: int | None = None
    """Only verdicts decided before this time, Unix ns."""
    workflow: str = ""
    """Only runs of this workflow; empty for all."""
    bounds: tuple[Bounds, ...] = ()
    sort: Sort = Sort.NEWEST
    before: RunKey | None = None
    """The last run of the previous page; only runs after it are returned."""
    limit: int = 50
    has_tasks: bool = True
    """Whether the rows have the runs' tasks, which are read from the kept runs."""


_MEASURES: Final[Mapping[str, tuple[Measure, float, float]]] = {
    "confidence": (Measure.CONFIDENCE, 1, 1),
    "steps": (Measure.STEPS, 1, 1e9),
    "duration_s": (Measure.DURATION, 1e9, 1e9),
    "tokens": (Measure.TOKENS, 1, 1e15),
    "cost_usd": (Measure.COST, 1, 1e9),
}
"""Numbers that can be bounded: the stored measure, its units per requested unit, and the largest bound."""
FILTERS: Final = (
    "limit", "after", "sort", "q", "status", "service", "agent", "workflow", "since", "until",
    *(f"{end}_{name}" for name in _MEASURES for end in ("min", "max")),
)  # fmt: skip


class InvalidFilter(AnalyzerError):  # noqa: N818 - a statement reads better at the ``raise``
    """A filter is unknown or invalid; the text says what is expected."""


def read_filters(asked: Mapping[str, str], tenant: Tenant, now_ns: int) -> RunQuery:
    """Read the filters of a request.

    Args:
        asked: the query of the URL.
        tenant: the tenant of the request; empty for all.
        now_ns: the present, from which ages are counted, Unix ns.

    Raises:
        InvalidFilter: a filter is unknown or invalid.
    """
    unknown = sorted(asked.keys() - set(FILTERS))
    if unknown:
        raise _refused(f"{unknown[0][:50]!r}: unknown filter; expected {', '.join(FILTERS)}")
    sort = _sort(asked.get("sort", Sort.NEWEST))
    return RunQuery(
        tenant=tenant,
        statuses=_statuses(asked.get("status", "")),
        text=_text(asked, "q").strip(),
        service=_text(asked, "service"),
        agent=_text(asked, "agent"),
        workflow=_text(asked, "workflow"),
        since_ns=_time(asked, "since", now_ns),
        until_ns=_time(asked, "until", now_ns),
        bounds=tuple(_bounds(asked)),
        sort=sort,
        before=read_key(asked["after"], sort) if asked.get("after") else None,
        limit=read_limit(asked),
    )


def read_limit(query: Mapping[str, str]) -> int:
    """Read the maximum number of results.

    Raises:
        InvalidFilter: the limit is invalid.
    """
    asked = query.get("limit", "100")
    if not (asked.isascii() and asked.isdigit() and len(asked) < 5 and 0 < int(asked) <= MAX_LISTED):
        raise _refused(f"limit: expected 1 to {MAX_LISTED}")
    return int(asked)


def write_key(key: RunKey, sort: Sort = Sort.NEWEST) -> str:
    """Encode a position in the list, and the list's order, for a URL."""
    packed = json.dumps([key.at, key.tenant, key.run_id, sort.value]).encode()
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def read_key(word: str, sort: Sort = Sort.NEWEST) -> RunKey:
    """Decode a position in a list of this order.

    Raises:
        InvalidFilter: the text is not an encoded position, or of another order.
    """
    try:
        at, tenant, run_id, order = json.loads(base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)))
        is_text = isinstance(tenant, str) and isinstance(run_id, str) and f"{tenant}{run_id}".isprintable()
        is_number = isinstance(at, int | float) and not isinstance(at, bool) and 0 <= at < _MOST_NS
        if is_text and is_number and order == sort:
            return RunKey(at=at, tenant=Tenant(tenant), run_id=run_id)
    except (ValueError, TypeError, RecursionError):
        pass
    raise _refused("after: expected the value from a page's link, with the same sort")


def _sort(asked: str) -> Sort:
    if asked not in set(Sort):
        raise _refused(f"sort: expected one of {', '.join(Sort)}")
    return Sort(asked)


def _bounds(asked: Mapping[str, str]) -> Iterator[Bounds]:
    for name, (measure, times, most) in _MEASURES.items():
        lower, upper = (_amount(asked, f"{end}_{name}", most) for end in ("min", "max"))
        if lower is not None or upper is not None:
            yield Bounds(
                of=measure,
                least=None if lower is None else lower * times,
                most=None if upper is None else upper * times,
            )


def _statuses(asked: str) -> tuple[Status, ...]:
    words = [word for word in asked.split(",") if word]
    if not set(words) <= set(Status):
        raise _refused(f"status: expected one or several, with commas, of {', '.join(Status)}")
    return tuple(Status(word) for word in dict.fromkeys(words))


def _text(asked: Mapping[str, str], name: str) -> str:
    text = asked.get(name, "")
    if len(text) > MOST_ASKED or "\0" in text or not text.isprintable():
        raise _refused(f"{name}: expected at most {MOST_ASKED} printable characters")
    return text


def _amount(asked: Mapping[str, str], name: str, most: float) -> float | None:
    text = asked.get(name)
    if text is None:
        return None
    try:
        value = float(text) if len(text) < 30 and text.isascii() else math.nan
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:  # this also rejects NaN
        raise _refused(f"{name}: expected a number from 0 to {most:g}")
    return value


def _time(asked: Mapping[str, str], name: str, now_ns: int) -> int | None:
    text = asked.get(name)
    return None if text is None else read_moment(text, name, now_ns)


def read_moment(text: str, name: str, now_ns: int) -> int:
    """Read a moment, Unix ns: an RFC 3339 time, or an age before ``now_ns``.

    Args:
        text: what was given.
        name: of the filter or option, for the error.
        now_ns: the present, Unix ns.

    Raises:
        InvalidFilter: it is neither.
    """
    if _SHORT.fullmatch(text):
        return max(0, now_ns - int(text[:-1]) * _SECONDS[text[-1]] * 10**9)
    try:
        moment = datetime.fromisoformat(text)
        is_whole = moment.tzinfo is not None and moment >= datetime(1970, 1, 1, tzinfo=UTC)
        found = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 10**9 if is_whole else -1
    except (ValueError, OverflowError):
        found = -1
    if not 0 <= found < _MOST_NS:
        raise _refused(f"{name}: {_TIME}")
    return found


def _refused(text: str) -> InvalidFilter:
    return InvalidFilter(text)


_ORDERS: Final[Mapping[Sort, tuple[str, str]]] = {
    Sort.NEWEST: (TIME, "DESC"),
    Sort.OLDEST: (TIME, "ASC"),
    Sort.LONGEST: (Measure.DURATION, "DESC"),
    Sort.SHORTEST: (Measure.DURATION, "ASC"),
    Sort.MOST_STEPS: (Measure.STEPS, "DESC"),
    Sort.FEWEST_STEPS: (Measure.STEPS, "ASC"),
    Sort.MOST_TOKENS: (Measure.TOKENS, "DESC"),
    Sort.FEWEST_TOKENS: (Measure.TOKENS, "ASC"),
    Sort.COSTLIEST: (Measure.COST, "DESC"),
    Sort.CHEAPEST: (Measure.COST, "ASC"),
    Sort.SUREST: (Measure.CONFIDENCE, "DESC"),
    Sort.LEAST_SURE: (Measure.CONFIDENCE, "ASC"),
}
_INDEXES: Final = {
    TIME: "time",
    Measure.DURATION: "duration",
    Measure.STEPS: "steps",
    Measure.TOKENS: "tokens",
    Measure.COST: "cost",
    Measure.CONFIDENCE: "confidence",
}


class Condition(NamedTuple):
    """Part of a WHERE clause, with its values."""

    sql: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order of the list, as SQL."""

    column: str
    direction: str
    """``ASC`` or ``DESC``."""
    index: str
    """Name of the index with this order; a tenant's newest runs have one of their own."""

    @staticmethod
    def of(query: RunQuery) -> Order:
        """Return the order of a query."""
        column, direction = _ORDERS[query.sort]
        name = "tenant" if query.tenant and column == TIME else _INDEXES[column]
        return Order(column=str(column), direction=direction, index=f"run_totals_by_{name}")

    @property
    def by(self) -> str:
        """The ORDER BY clause."""
        names = (self.column, "tenant", "run_id")
        return f"ORDER BY {', '.join(f'run_totals.{name} {self.direction}' for name in names)}"

    def after(self, key: RunKey) -> Condition:
        """Return the condition on places after a given one."""
        return self._against(">" if self.direction == "ASC" else "<", key)

    def within(self, key: RunKey) -> Condition:
        """Return the condition on places up to a given one."""
        return self._against("<=" if self.direction == "ASC" else ">=", key)

    def _against(self, sign: str, key: RunKey) -> Condition:
        names = f"run_totals.{self.column}, run_totals.tenant, run_totals.run_id"
        return Condition(f"({names}) {sign} (?, ?, ?)", (key.at, key.tenant, key.run_id))


def joined(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """Return a WHERE clause and its values."""
    where = " AND ".join(condition.sql for condition in conditions)
    return f"WHERE {where}" if where else "", [value for one in conditions for value in one.values]


def on_index(query: RunQuery) -> list[Condition]:
    """Return the conditions that the index of the order decides, without reading a row."""
    order = Order.of(query)
    found = [] if order.column == TIME else [Condition(f"run_totals.{order.column} IS NOT NULL")]
    if query.tenant:
        found.append(Condition("run_totals.tenant = ?", (query.tenant,)))
    return [*found, *_within_time(query)] if order.column == TIME else found


def on_row(query: RunQuery) -> list[Condition]:
    """Return the conditions that need a row of ``run_totals``."""
    found = [] if Order.of(query).column == TIME else _within_time(query)
    if query.statuses:
        marks = ", ".join("?" for _ in query.statuses)
        found.append(Condition(f"run_totals.status IN ({marks})", tuple(one.value for one in query.statuses)))
    for name in ("service", "agent", "workflow"):
        if wanted := getattr(query, name):
            found.append(
                Condition(f"lower(run_totals.{name}) LIKE lower(?) ESCAPE '\\'", (_labelled(wanted),))
            )
    for bounds in query.bounds:
        for sign, bound in ((">=", bounds.least), ("<=", bounds.most)):
            if bound is not None:
                found.append(Condition(f"run_totals.{bounds.of} {sign} ?", (bound,)))
    return found


def totals_in(row: Sequence[Any]) -> RunTotals | None:
    """Return the totals in a row's columns ``TOTALS``; ``None`` if they are not known."""
    told = dict(zip(TOTALS, row, strict=True))
    return None if told["steps"] is None else RunTotals(**told)


def _within_time(query: RunQuery) -> list[Condition]:
    bounds = ((">=", query.since_ns), ("<", query.until_ns))
    return [Condition(f"run_totals.{TIME} {sign} ?", (ns,)) for sign, ns in bounds if ns is not None]


def _labelled(name: str) -> str:
    """Return the ``LIKE`` pattern of a name from the metrics, which truncate long names."""
    return f"{_literal(name[:-1])}%" if name.endswith(CUT) else _literal(name)


def _literal(text: str) -> str:
    """Escape text for a LIKE pattern."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
