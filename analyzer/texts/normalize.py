"""Text normalisation for comparison: ignores case, punctuation, white space and number formats."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Patterns that begin with a literal are fast to search; those that begin with a lookbehind are slow.
_GROUPED: Final = re.compile(r",(?<=\d,)(?=\d{3}(?!\d))")
_ENDS_IDLE: Final = re.compile(r"\.\d*0(?!\d)")
"""A text without this character cannot match the following patterns:"""
_IDLE_ZEROS: Final = re.compile(r"(?<![\d.])(\d+)\.0+(?![\d.])|(?<![\d.])(\d+\.\d*?[1-9])0+(?![\d.])")
_POINTS: Final = r"\.(?:(?!\d)|(?<!\d\.))|-(?:(?!\d)|(?<=\w-))"
"""Points and dashes outside numbers."""
_MARKS: Final = re.compile(rf"(?:[^\w.%-]|_|{_POINTS})+")
_PLAIN_POINTS: Final = re.compile(_POINTS)
_PLAIN_MARKS: Final = {code: " " for code in range(128) if not chr(code).isalnum() and chr(code) not in ".%-"}
_PARTS: Final = re.compile(r"[a-z]+|[0-9]+")


_TYPESET: Final = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201b\u02bc\uff07"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201f\uff02"), '"'),
    **dict.fromkeys(
        map(ord, "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"), " "
    ),
    **{start + digit: str(digit) for start in (0xFF10, 0x660, 0x6F0, 0x966, 0x9E6) for digit in range(10)},
    0x66B: ".",  # the Arabic decimal separator
    0x66C: ",",
    0x66A: "%",
}
"""Also digits of other scripts: fullwidth, Arabic, Persian, Devanagari, Bengali."""


_TO_CHANGE: Final = re.compile(f"[{''.join(map(chr, _TYPESET))}]")


def plain_typography(text: str) -> str:
    """Return a text with typographic quotes, blanks and digits replaced by plain ones, one for one."""
    return text if text.isascii() or not _TO_CHANGE.search(text) else text.translate(_TYPESET)


_BREAK: Final = re.compile(r"[.!?][\"')\]*]*\s+|\n\s*")
_STOP: Final = re.compile(r"[.!?][\"')\]*]*(?=\s)|(?=\n)")
_STRETCH: Final = 60
"""Extra characters that a quote may have to begin or end with its sentence or line."""


def excerpt(text: str, start: int, end: int, *, before: int, after: int) -> str:
    """Return ``text[start:end]`` with its sentence, or with some characters around it, at word ends."""
    first, last = max(0, start - before), min(len(text), end + after)
    breaks = [found.end() for found in _BREAK.finditer(text, max(0, first - _STRETCH), start)]
    if breaks or first <= _STRETCH:
        first = breaks[-1] if breaks else 0
    elif not text[first - 1].isspace():
        first = min(start, (text.find(" ", first, start) + 1) or start)
    stop = _STOP.search(text, end, last + _STRETCH + 1)
    if stop or last + _STRETCH >= len(text):
        last = stop.end() if stop else len(text)
    elif not text[last].isspace():
        last = max(end, text.rfind(" ", end, last))
    return text[first:last].strip()


def outside_code(text: str) -> list[str]:
    """Return the parts of a text outside code fences, in order."""
    return text.split("```")[::2]


def normalized(text: str) -> str:
    """Return the normalised text for comparison; its length may differ."""
    is_plain = text.isascii()  # the common case: plain search instead of patterns with lookarounds
    text = text.lower() if is_plain else unicodedata.normalize("NFKC", text).casefold()
    text = _GROUPED.sub("", text)
    if _ENDS_IDLE.search(text):
        text = _IDLE_ZEROS.sub(lambda found: found[1] or found[2], text)
    text = _PLAIN_POINTS.sub(" ", text).translate(_PLAIN_MARKS) if is_plain else _MARKS.sub(" ", text)
    return " ".join(text.split())


def lowercased(text: str) -> str:
    """Return a text in lower case that matches where a case-insensitive pattern would match the text.

    ``re`` treats the dotted and the dotless i as an i; ``casefold`` does not.
    """
    if text.isascii():
        return text.lower()
    return text.casefold().replace("i\u0307", "i").replace("\u0131", "i")


class SearchText:
    """A normalised text to search for in many others, most of which lack it."""

    def __init__(self, wanted: str) -> None:
        self._wanted: Final = wanted
        self._part: Final = max(_PARTS.findall(wanted), key=len, default="")

    def is_in(self, text: str) -> bool:
        """Tell whether the normalised ``text`` contains it (see ``contains``)."""
        if text.isascii() and self._part not in text.lower().replace(",", ""):
            return False  # normalising joins no letters, and digits only across a comma
        return contains(normalized(text), self._wanted)


def contains(text: str, wanted: str) -> bool:
    """Return whether a normalised text contains another; parts of longer numbers do not count."""
    at = text.find(wanted)
    while at >= 0:
        if not _cuts_number(text, at) and not _cuts_number(text, at + len(wanted)):
            return True
        at = text.find(wanted, at + 1)
    return False


def _cuts_number(text: str, at: int) -> bool:
    """Tell whether the place ``at`` is inside a number."""
    before, after = text[max(0, at - 2) : at], text[at : at + 2]
    if before[-1:].isdigit():
        return after[:1].isdigit() or (after[:1] == "." and after[1:].isdigit())
    return before[-1:] == "." and before[:1].isdigit() and after[:1].isdigit()
