"""Parts of the list of runs besides its rows: links to other views, columns, the trend. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
CHOOSABLE: Final = tuple(name for name in _NAMES if name not in {"When", "Task", "Agent to blame"})
"""Columns that can be hidden."""
_LEAST_ALIKE: Final = 2
"""Fewest runs of a page whose equal values hide a column."""
_NOT_KNOWN: Final = frozenset({"", "-"})
_WITHOUT_ZONE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?")
"""A time as a browser's picker sends it; the page says that it is in UTC."""
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
    def filters(self) -> int:
        """Number of filters set, besides the search."""
        names = set(FILTERS) - {"limit", "after", "sort", "q"}
        return sum(bool(self.get(name)) for name in names)

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns that a person chose, in small letters; empty for those that say something."""
        return tuple(word for word in self.get("show").split(",") if word)

    def is_age(self, name: str) -> bool:
        """Tell whether a bound of the time is an age, such as ``24h``."""
        return bool(self.get(name)) and not self.moment(name)

    def moment(self, name: str) -> str:
        """Return a bound of the time for a browser's picker, in UTC; empty without one, and for an age."""
        try:
            found = datetime.fromisoformat(self.get(name))
        except ValueError:
            return ""
        return found.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")

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


def in_utc(text: str) -> str:
    """Return a time of a browser's picker with its zone; other texts as they are."""
    return f"{text}Z" if _WITHOUT_ZONE.fullmatch(text) else text


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenColumns:
    """The columns that a view leaves out."""

    names: tuple[str, ...] = ()
    alike: tuple[tuple[str, str], ...] = ()
    """Names and values of those that are the same for all runs of the page, and known."""

    @property
    def words(self) -> str:
        """Their names in small letters, for the page's style."""
        return " ".join(f"no-{name.lower()}" for name in self.names)


def hidden_columns(asked: Asked, rows: Sequence[Mapping[str, str]]) -> HiddenColumns:
    """Return the columns to leave out: those not chosen, or by default those with one value.

    Args:
        asked: the view.
        rows: the values of each row's choosable columns, as shown.
    """
    if asked.shown:
        return HiddenColumns(names=tuple(name for name in CHOOSABLE if name.lower() not in asked.shown))
    if len(rows) < _LEAST_ALIKE:
        return HiddenColumns()
    values = {name: _only({row[name] for row in rows}) for name in CHOOSABLE}
    return HiddenColumns(
        names=tuple(name for name, value in values.items() if value is not None),
        alike=tuple(
            (name, value) for name, value in values.items() if value is not None and value not in _NOT_KNOWN
        ),
    )


def _only(values: Iterable[str]) -> str | None:
    found = [*values]
    return found[0] if len(found) == 1 else None


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
