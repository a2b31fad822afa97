"""Failures a day as a drawing: a bar a day, its number above it, the first day and today below. Pure.

Colours are the style sheet's, as for the picture of a run (``picture.py``); everything in it
is a number or a date of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

_DAY: Final = 24
_GAP: Final = 4
_TALLEST: Final = 72
_ABOVE: Final = 16
_BELOW: Final = 20
_DAY_S: Final = 86_400


def draw_trend(counts: Sequence[int], today: int) -> str:
    """Return the drawing as SVG, for a page that has the style sheet.

    Args:
        counts: failures a day, oldest first; the last is today's.
        today: in days since the epoch.
    """
    days = range(today - len(counts) + 1, today + 1)
    width, floor = _DAY * len(counts), _ABOVE + _TALLEST
    said = ", ".join(f"{_date(day)}: {count}" for day, count in zip(days, counts, strict=True))
    most = max([*counts, 1])
    bars = "".join(
        _bar(place * _DAY, count, round(_TALLEST * count / most)) for place, count in enumerate(counts)
    )
    return (
        f'<svg class="trend" width="{width}" height="{floor + _BELOW}" viewBox="0 0 {width} {floor + _BELOW}"'
        f' role="img" aria-label="failures a day: {said}">'
        f'<line x1="0" y1="{floor}" x2="{width}" y2="{floor}"/>{bars}'
        f'<text class="first" x="0" y="{floor + 15}">{_date(days[0])}</text>'
        f'<text class="last" x="{width}" y="{floor + 15}">today</text></svg>'
    )


def _bar(left: int, count: int, tall: int) -> str:
    if not count:
        return ""
    top = _ABOVE + _TALLEST - max(tall, 2)
    middle = left + _DAY // 2
    return (
        f'<rect x="{left + _GAP // 2}" y="{top}" width="{_DAY - _GAP}" height="{max(tall, 2)}" rx="2"/>'
        f'<text class="count" x="{middle}" y="{top - 4}">{_short(count)}</text>'
    )


def _short(count: int) -> str:
    """Return a number that fits above a bar."""
    if count < 1_000:
        return str(count)
    return f"{count / 1_000:.1f}k" if count < 10_000 else f"{count // 1_000}k"


def _date(day: int) -> str:
    moment = datetime.fromtimestamp(day * _DAY_S, UTC)
    return f"{moment:%b} {moment.day}"
