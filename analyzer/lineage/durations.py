"""Durations as people write them: in two units, or as the difference of two times of day. Pure.

``6 hours 15 minutes`` is 6.25 hours, and from 02:14 to 02:51 it is 37 minutes, or 38 with both. Words for
hours, minutes and seconds are those of the languages that wording is known in.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from analyzer.lineage.figures import Figure
from analyzer.texts.numbers import DENSE

_HOURS: Final = (
    r"(?:hours?|hrs?|h|stunden?|std\.?|heures?|horas?|or[ae]|uur|uren|jam|saat|godzin\w*|час\w*|ч|小时|小時|時間|시간"
    r"|घंट\w*|ساع\w*|ঘণ্টা|گھنٹ\w*)"
)
_MINUTES: Final = (
    r"(?:minutes?|mins?|m|minuten?|minutos?|minut[ieoy]?|menit|dakika|мин\w*|分钟|分鐘|分|분|मिनट|دقي\w*|মিনিট"
    r"|منٹ)"
)
_SECONDS: Final = (
    r"(?:seconds?|secs?|s|sekunden?|secondes?|segundos?|second[io]|seconden?|detik|saniye|sekund\w*|сек\w*|秒|초"
    r"|सेकंड|ثاني\w*)"
)
_BEGIN: Final = rf"(?<![^\W{DENSE}])(?<![.,])"
_END: Final = rf"(?![^\W\d_{DENSE}])"
_AND: Final = r"\W{0,3}(?:and|und|et|y|e|en|i|ve|dan|и|و|और)?\W{0,3}"
_NUMBER: Final = r"(\d{1,6}(?:[.,]\d{1,4})?)\s?-?"


@functools.cache
def _in_two_units() -> tuple[tuple[re.Pattern[str], float, float], ...]:
    """Return patterns of durations, with the seconds of both units: compiled when first used, in 50 ms."""
    units = ((_HOURS, _MINUTES, 3600.0, 60.0), (_MINUTES, _SECONDS, 60.0, 1.0))
    return tuple(
        (re.compile(rf"{_BEGIN}{_NUMBER}{one}{_AND}{_NUMBER}{other}{_END}", re.IGNORECASE), large, small)
        for one, other, large, small in units
    )


@functools.cache
def _alone() -> tuple[tuple[re.Pattern[str], float], ...]:
    """Return patterns of a unit right after its number, with its seconds."""
    units = ((_HOURS, 3600.0), (_MINUTES, 60.0), (_SECONDS, 1.0))
    return tuple((re.compile(rf"\s?-?{words}{_END}", re.IGNORECASE), seconds) for words, seconds in units)


_CLOCK: Final = re.compile(r"(?<![\d:.])([01]?\d|2[0-3])[:h]([0-5]\d)(?::([0-5]\d))?(?![\d:])")
_MOST_TIMES: Final = 24
_DAY: Final = 86_400.0
_UNITS: Final = (1.0, 60.0, 3600.0, _DAY, 0.001)
"""Seconds of the units that a known value may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """A duration in a text, in seconds."""

    start: int
    end: int
    seconds: float
    precision: float
    """Seconds of its smallest unit."""


def durations(text: str) -> tuple[Duration, ...]:
    """Return the durations that a text gives in two units, in order."""
    found = (one for pattern, large, small in _in_two_units() for one in _in_two(text, pattern, large, small))
    return tuple(sorted(found, key=lambda duration: duration.start))


def _in_two(text: str, pattern: re.Pattern[str], large: float, small: float) -> Iterator[Duration]:
    for found in pattern.finditer(text):
        seconds = _value(found[1]) * large + _value(found[2]) * small
        yield Duration(start=found.start(), end=found.end(), seconds=seconds, precision=small)


def _value(literal: str) -> float:
    return float(literal.replace(",", "."))


def differences(texts: Iterable[str]) -> frozenset[float]:
    """Return the seconds between any two times of day in the texts; the later may be on the next day."""
    times = list(dict.fromkeys(time for text in texts for time in _times(text)))[:_MOST_TIMES]
    apart = {abs(one - other) for one, other in combinations(times, 2)}
    return frozenset({*apart, *(_DAY - each for each in apart)})


def _times(text: str) -> Iterator[float]:
    for hours, minutes, seconds in _CLOCK.findall(text):
        yield int(hours) * 3600.0 + int(minutes) * 60.0 + int(seconds or 0)


def is_time_given(
    text: str, figure: Figure, known: Sequence[float], stated: Sequence[Duration], apart: frozenset[float]
) -> bool:
    """Tell whether a figure is a duration, or a part of one, that known values or times of day give.

    Args:
        text: the text with the figure.
        figure: the figure.
        known: values from outside, in any unit of time.
        stated: the text's ``durations``.
        apart: ``differences`` of the times of day in texts from outside.
    """
    whole = next((one for one in stated if one.start <= figure.start and figure.end <= one.end), None)
    if whole is not None:
        is_known = any(
            abs(value * unit - whole.seconds) <= whole.precision * 0.51 for value in known for unit in _UNITS
        )
        return is_known or _is_apart(whole.seconds, whole.precision, apart)
    unit = next((seconds for words, seconds in _alone() if words.match(text, figure.end)), None)
    return unit is not None and _is_apart(figure.value * unit, unit * figure.step, apart)


def _is_apart(seconds: float, precision: float, apart: frozenset[float]) -> bool:
    """Tell whether two times are so far apart, counted with or without the last unit begun."""
    return any(abs(each - seconds) <= precision for each in apart)
