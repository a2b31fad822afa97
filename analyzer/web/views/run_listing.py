"""Parts of the list of runs besides its rows: links to other views, columns, the trend. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from analyzer.web.reads.page_records import Sort, Trend
from analyzer.web.run_list import FILTERS

DEFAULT_LIMIT: Final = 50
AGES: Final = ("1h", "24h", "7d", "30d")
"""Ages that the page offers."""
NUMBERS: Final = (
    ("confidence", "Sure, 0 to 1"),
    ("steps", "Steps"),
    ("duration_s", "Duration in s"),
    ("tokens", "Tokens"),
    ("cost_usd", "Cost in $"),
)
"""Numbers that the page can bound, each with its label."""
SORT_WORDS: Final[Mapping[Sort, str]] = {sort: sort.value.replace("_", " ") for sort in Sort}
_SORTED: Final[Mapping[str, tuple[Sort, Sort]]] = {
    "When": (Sort.NEWEST, Sort.OLDEST),
    "Sure": (Sort.SUREST, Sort.LEAST_SURE),
    "Steps": (Sort.MOST_STEPS, Sort.FEWEST_STEPS),
    "Duration": (Sort.LONGEST, Sort.SHORTEST),
    "Tokens": (Sort.MOST_TOKENS, Sort.FEWEST_TOKENS),
    "Cost": (Sort.COSTLIEST, Sort.CHEAPEST),
}
"""Columns that sort the list, each with its descending and its ascending order."""
_NAMES: Final = (
    "When", "Task", "Service", "Workflow", "Agent to blame", "Step", "Sure", "Steps", "Duration", "Tokens",
    "Cost", "Issue",
)  # fmt: skip
_NUMERIC: Final = frozenset({"Step", "Sure", "Steps", "Duration", "Tokens", "Cost"})
_HEIGHT: Final = 40
_WIDTH: Final = 600


@dataclass(frozen=True, slots=True)
class Asked:
    """The filters of a request as given, with links to other views."""

    fields: Mapping[str, str]
    next: str = ""
    """Position of the next page; empty after the last."""

    def get(self, name: str) -> str:
        """Return a filter's text; empty if it is not set."""
        return self.fields.get(name, "")

    def link(self, **changes: str) -> str:
        """Return the query of another view, from its first page on; empty filters are left out."""
        fields = {**{name: value for name, value in self.fields.items() if name != "after"}, **changes}
        return "?" + urlencode({name: value for name, value in fields.items() if value})

    @property
    def is_first(self) -> bool:
        """Whether it is the first page."""
        return not self.get("after")

    @property
    def is_live(self) -> bool:
        """Whether new runs appear at its top."""
        return self.is_first and self.sort is Sort.NEWEST

    @property
    def is_filtered(self) -> bool:
        """Whether some runs are left out."""
        return any(self.get(name) for name in FILTERS if name not in {"limit", "after", "sort"})

    @property
    def has_bounds(self) -> bool:
        """Whether a number is bounded."""
        return any(self.get(f"{end}_{name}") for name, _ in NUMBERS for end in ("min", "max"))

    @property
    def sort(self) -> Sort:
        """The order; newest if it is not a known one."""
        asked = self.get("sort")
        return Sort(asked) if asked in set(Sort) else Sort.NEWEST


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownColumn:
    """A column of the list."""

    name: str
    is_number: bool
    link: str = ""
    """Link to the view sorted by this column, reversed if it is sorted so now; empty if it cannot sort."""
    sorted: str = ""
    """``ascending`` or ``descending``, as ``aria-sort`` says it."""


def columns(asked: Asked) -> tuple[ShownColumn, ...]:
    """Return the columns of a view."""
    return tuple(_column(name, asked) for name in _NAMES)


def _column(name: str, asked: Asked) -> ShownColumn:
    is_number = name in _NUMERIC
    if name not in _SORTED:
        return ShownColumn(name=name, is_number=is_number)
    down, up = _SORTED[name]
    other = up if asked.sort is down else down
    link = asked.link(sort="" if other is Sort.NEWEST else other.value)
    direction = {down: "descending", up: "ascending"}.get(asked.sort, "")
    return ShownColumn(name=name, is_number=is_number, link=link, sorted=direction)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBar:
    """A period of the trend."""

    x: float
    width: float
    height: float
    """Height of its runs, in pixels."""
    failed_height: float
    runs: int
    failed: int
    since_ns: int
    link: str
    """The view of this period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTrend:
    """The trend above the list."""

    bars: tuple[ShownBar, ...]
    width: int
    height: int
    runs: int
    failed: int
    since_ns: int
    period: str
    """Length of a bar's period in words."""
    is_whole: bool


def view_of_trend(trend: Trend, asked: Asked) -> ShownTrend | None:
    """Return the trend as bars; ``None`` without runs."""
    if not trend.buckets:
        return None
    most = max(bucket.runs for bucket in trend.buckets)
    wide = _WIDTH / len(trend.buckets)
    bars = tuple(
        ShownBar(
            x=round(place * wide, 2),
            width=round(max(1.0, wide - 2), 2),
            height=round(_HEIGHT * bucket.runs / most, 2),
            failed_height=round(_HEIGHT * bucket.failed / most, 2),
            runs=bucket.runs,
            failed=bucket.failed,
            since_ns=bucket.since_ns,
            link=asked.link(
                since=_written(bucket.since_ns), until=_written(bucket.since_ns + trend.width_ns)
            ),
        )
        for place, bucket in enumerate(trend.buckets)
        if bucket.runs
    )
    return ShownTrend(
        bars=bars,
        width=_WIDTH,
        height=_HEIGHT,
        runs=sum(bar.runs for bar in bars),
        failed=sum(bar.failed for bar in bars),
        since_ns=trend.buckets[0].since_ns,
        period=_in_words(trend.width_ns),
        is_whole=trend.is_whole,
    )


def _written(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _in_words(width_ns: int) -> str:
    minutes = width_ns // (60 * 10**9)
    for name, unit in (("day", 1440), ("hour", 60)):
        if minutes % unit == 0:
            return f"{minutes // unit} {name}{'' if minutes == unit else 's'}"
    return f"{minutes} minute{'' if minutes == 1 else 's'}"
