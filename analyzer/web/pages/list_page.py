"""The page of all runs: filters, order, columns, trend, and its live updates. Not pure.

The URL is the view; the form works without JavaScript. Server-sent events tell open pages that the list has
changed: the store is polled once a second for all listeners, and not at all if there are none. The
event says only that something changed: each page then requests its own rows, with its
own filter and tenant.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web
from markupsafe import Markup

from analyzer.issues.labels.run_label import LabelKind
from analyzer.issues.recurrence import Issue
from analyzer.web.front import PageContext, routed
from analyzer.web.pages.run_page import issues_of
from analyzer.web.reads.archive import Trend
from analyzer.web.reads.documents import RunPage, RunRow
from analyzer.web.reads.run_query import FILTERS, MOST_ASKED, InvalidFilter, Sort, read_filters, write_key
from analyzer.web.rendering import percent, seconds, token_count, usd
from collector_processor.core.disk import StoreError

_HIDDEN_COLUMNS: Final = "X-Columns"
"""Header that tells the page's script which columns are hidden: it reloads the page if that changes."""
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
_COLUMNS: Final = (
    "When", "Task", "Service", "Workflow", "Agent to blame", "Step", "Sure", "Steps", "Duration", "Tokens",
    "Cost", "Issue",
)  # fmt: skip
_NUMERIC: Final = frozenset({"Step", "Sure", "Steps", "Duration", "Tokens", "Cost"})
CHOOSABLE: Final = tuple(name for name in _COLUMNS if name not in {"When", "Task", "Agent to blame"})
"""Columns that can be hidden."""
_LEAST_ALIKE: Final = 2
"""Fewest runs of a page whose equal values hide a column."""
_NOT_KNOWN: Final = frozenset({"", "-"})
_WITHOUT_ZONE: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?")
"""A time as a browser's picker sends it; the page says that it is in UTC."""
_HEIGHT: Final = 40
_WIDTH: Final = 600
logger = logging.getLogger(__name__)
EVENTS: Final = "/events"
EVERY_S: Final = 1.0
_PING_S: Final = 20.0
MOST_LISTENERS: Final = 256
_FULL: Final = "too many pages are open\n"
_HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a buffering proxy would delay events
}


def list_routes(context: PageContext) -> list[web.RouteDef]:
    """Return the routes."""
    return routed(context, ("GET", "/", _home), ("GET", "/runs", _listed))


async def _home(_context: PageContext, _request: web.Request) -> web.StreamResponse:
    raise web.HTTPSeeOther("/runs")


async def _listed(context: PageContext, request: web.Request) -> web.StreamResponse:
    fields = _fields(request)
    is_part = fields.pop("part", "") == "rows"
    asked = Asked({name: value for name, value in fields.items() if name != "said"})
    is_clean = all(asked.fields.values()) and len(fields) + is_part == len(request.query)
    if not is_part and not is_clean:  # a form sends its empty fields too, and each chosen column
        raise web.HTTPSeeOther(f"/runs{asked.link()}")
    filters = {name: value for name, value in asked.fields.items() if name != "show"}
    filters = {"limit": str(DEFAULT_LIMIT), **filters}
    try:
        query = read_filters(filters, context.tenant(request), context.pages.now_ns())
    except InvalidFilter as refusal:
        shown = await _whole_page(context, request, RunPage(rows=()), asked, error=str(refusal))
        shown.set_status(400)
        return shown
    page = await context.pages.runs.page(query)
    if is_part:
        return await _page(context, request, "rows.html", page, asked=asked)
    if page.next is not None:
        asked = replace(asked, next=write_key(page.next, query.sort))
    trend = await _drawn(context, await context.trends.of(query), asked)
    return await _whole_page(
        context, request, page, asked, columns=columns_of(asked), choosable=CHOOSABLE, trend=trend
    )


async def _whole_page(
    context: PageContext,
    request: web.Request,
    page: RunPage,
    asked: Asked,
    *,
    columns: Sequence[ShownColumn] = (),
    choosable: Sequence[str] = (),
    trend: str = "",
    error: str = "",
) -> web.StreamResponse:
    return await _page(
        context, request, "runs.html", page, asked=asked, columns=columns, choosable=choosable,
        trend=trend, error=error, ages=AGES, numbers=NUMBERS, sort_words=SORT_WORDS,
    )  # fmt: skip


def _fields(request: web.Request) -> dict[str, str]:
    """Return the fields of a request; of one that is sent twice the last that is not empty, all columns."""
    query = request.query
    found = {name: next((value for value in reversed(query.getall(name)) if value), "") for name in query}
    if "show" in found:
        words = ",".join(query.getall("show")).lower().split(",")
        found["show"] = ",".join(dict.fromkeys(word for word in words if word))[:MOST_ASKED]
    return found | {name: in_utc(found[name]) for name in ("since", "until") if name in found}


async def _page(
    context: PageContext, request: web.Request, template: str, page: RunPage, **values: Any
) -> web.StreamResponse:
    names = [(row.key.tenant, row.key.run_id) for row in page.rows if row.verdict.agent]
    issues = await issues_of(context, names)
    rows = await asyncio.to_thread(
        lambda: [_row(context, row, issues.get((row.key.tenant, row.key.run_id))) for row in page.rows]
    )
    cells = [_cells(row, issues.get((row.key.tenant, row.key.run_id))) for row in page.rows]
    hidden = hidden_columns(values["asked"], cells)
    shown = await context.front.show(request, template, page=page, rows=rows, hidden=hidden, **values)
    shown.headers[_HIDDEN_COLUMNS] = hidden.words
    return shown


def _row(context: PageContext, row: RunRow, issue: Issue | None) -> Markup:
    """Return a row of the list, with the issue that the run is counted in."""
    mark = None if issue is None else (issue.state, issue.fingerprint)
    key, kept = (row.verdict, row.task, row.answer, row.said, row.totals, mark), context.prepared.rows
    known = kept.get(key)
    if known is None:
        known = Markup(context.prepared.render("_row.html", row=row, issue=issue))  # noqa: S704 - from a template
        kept.put(key, known, len(known) + len(row.verdict.document))
    return known


async def _drawn(context: PageContext, trend: Trend, asked: Asked) -> Markup:
    """Return the trend above a list of runs; empty without runs."""

    def make() -> tuple[Markup, int]:
        shown = view_of_trend(trend, asked)
        figure = "" if shown is None else context.prepared.render("_trend.html", trend=shown, asked=asked)
        return Markup(figure), len(figure)  # noqa: S704 - from a template

    filters = tuple(sorted((name, value) for name, value in asked.fields.items() if name != "after"))
    return await context.prepared.of((trend, filters), (), make)


def _cells(row: RunRow, issue: Issue | None) -> dict[str, str]:
    """Return a row's choosable columns as the page shows them."""
    totals = row.totals
    is_corrected = row.said is not None and row.said.kind is LabelKind.CORRECTED
    step = row.said.step if row.said is not None and is_corrected else row.verdict.step
    length_s = None if totals is None or totals.duration_ns is None else totals.duration_ns / 1e9
    return {
        "Service": row.verdict.service,
        "Workflow": totals.workflow if totals else "",
        "Step": "" if step is None else str(step),
        "Sure": percent(row.certainty),
        "Steps": str(totals.steps) if totals else "-",
        "Duration": seconds(length_s),
        "Tokens": token_count(totals),
        "Cost": "-" if totals is None or totals.cost_usd is None else usd(totals.cost_usd),
        "Issue": "" if issue is None else issue.fingerprint.title,
    }


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
        except (ValueError, OverflowError):
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


def columns_of(asked: Asked) -> tuple[ShownColumn, ...]:
    """Return the columns of a view."""
    return tuple(_column(name, asked) for name in _COLUMNS)


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


@dataclass(slots=True, kw_only=True)
class Changes:
    """Polls the store and notifies the open pages."""

    newest: Callable[[], Awaitable[tuple[int, int]]]
    """Returns a version that changes whenever a verdict is added or deleted."""
    every_s: float = EVERY_S
    _listeners: set[asyncio.Event] = field(default_factory=set)
    _watch: asyncio.Task[None] | None = None
    _is_closed: bool = False

    async def listen(self, request: web.Request) -> web.StreamResponse:
        """Answer with a stream that lasts until the browser or the service closes it."""
        if self._is_closed or len(self._listeners) >= MOST_LISTENERS:
            raise web.HTTPServiceUnavailable(text=_FULL, headers={"Retry-After": "60"})
        response = web.StreamResponse(headers=_HEADERS)
        changed = asyncio.Event()
        self._listeners.add(changed)
        try:
            before = await self._version(None)  # before the page is told that it is live
            if self._watch is None or self._watch.done():
                self._watch = asyncio.create_task(self._look(before))
            await response.prepare(request)
            await response.write(b"retry: 5000\n\n")
            await self._tell(changed, response.write)
        except ConnectionError:
            logger.debug("a listening page disconnected")
        finally:
            self._listeners.discard(changed)
        return response

    async def close(self, _app: web.Application | None = None) -> None:
        """Close all streams."""
        self._is_closed = True
        for changed in self._listeners:
            changed.set()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def _tell(self, changed: asyncio.Event, write: Callable[[bytes], Awaitable[None]]) -> None:
        while not self._is_closed:
            try:
                async with asyncio.timeout(_PING_S):
                    await changed.wait()
                message = b"event: runs\ndata: changed\n\n"
            except TimeoutError:
                message = b": still here\n\n"
            changed.clear()
            if not self._is_closed:
                await write(message)

    async def _look(self, before: tuple[int, int] | None) -> None:
        while self._listeners:
            await asyncio.sleep(self.every_s)
            now = await self._version(before)
            if before is not None and now != before:
                for changed in self._listeners:
                    changed.set()
            before = now

    async def _version(self, before: tuple[int, int] | None) -> tuple[int, int] | None:
        try:
            return await self.newest()
        except StoreError:  # changes are noticed once it is back
            return before
