"""The API's list of runs: filters of a request, cursor, and the answer. Pure.

A filter that is not known is refused: a program that misspells one would otherwise act on all runs.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from analyzer.inquiry.errors import AnalyzerError
from analyzer.web.reads.page_records import Bounds, Measure, RunKey, RunQuery, Sort
from collector_processor.otlp import Tenant
from semconv.model import Status

MAX_LISTED: Final = 500
MOST_ASKED: Final = 200
"""Longest search, in characters."""
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
_MOST_NS: Final = 1 << 63
_SHORT: Final = re.compile(r"[1-9][0-9]{0,5}[smhd]")
_SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TIME: Final = "expected an RFC 3339 time such as 2026-01-31T09:00:00Z, or an age such as 30m, 24h or 7d"


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
