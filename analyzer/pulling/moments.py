"""Moments as backends' filters take them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def rfc3339(moment_ns: int) -> str:
    """Return a moment, Unix ns, as RFC 3339 in UTC with milliseconds, rounded down."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment_ns // 10**6)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
