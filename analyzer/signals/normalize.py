"""Texts compared by what they say: case, punctuation, white space and the forms of numbers aside."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Patterns that begin with a sign are found by plain search; those that begin with what is before it, slowly.
_GROUPED: Final = re.compile(r",(?<=\d,)(?=\d{3}(?!\d))")
_ENDS_IDLE: Final = re.compile(r"\.\d*0(?!\d)")
"""Without it, there are none of these:"""
_IDLE_ZEROS: Final = re.compile(r"(?<![\d.])(\d+)\.0+(?![\d.])|(?<![\d.])(\d+\.\d*?[1-9])0+(?![\d.])")
_POINTS: Final = r"\.(?:(?!\d)|(?<!\d\.))|-(?:(?!\d)|(?<=\w-))"
"""Points and dashes that belong to no number."""
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
    **{0xFF10 + digit: str(digit) for digit in range(10)},
}


def typed(text: str) -> str:
    """Return a text with plain quotes, blanks and digits for typeset ones, each at its own place."""
    return text if text.isascii() else text.translate(_TYPESET)


def outside_code(text: str) -> list[str]:
    """Return the parts of a text that are not fenced as code, in order."""
    return text.split("```")[::2]


def folded(text: str) -> str:
    """Return a text in the form in which it is compared; its length may differ."""
    is_plain = text.isascii()  # as most are: then what takes looking around can be found by plain search
    text = text.lower() if is_plain else unicodedata.normalize("NFKC", text).casefold()
    text = _GROUPED.sub("", text)
    if _ENDS_IDLE.search(text):
        text = _IDLE_ZEROS.sub(lambda found: found[1] or found[2], text)
    text = _PLAIN_POINTS.sub(" ", text).translate(_PLAIN_MARKS) if is_plain else _MARKS.sub(" ", text)
    return " ".join(text.split())


def in_small(text: str) -> str:
    """Return a text in small letters, such that a pattern that ignores case finds there what it finds here.

    ``re`` takes the dotted and the dotless i for an i, which ``casefold`` does not.
    """
    if text.isascii():
        return text.lower()
    return text.casefold().replace("i\u0307", "i").replace("\u0131", "i")


class Sought:
    """A folded text that is looked for in many others, most of which do not have it."""

    def __init__(self, wanted: str) -> None:
        self._wanted: Final = wanted
        self._part: Final = max(_PARTS.findall(wanted), key=len, default="")

    def is_in(self, text: str) -> bool:
        """Tell whether ``text``, folded, has it in it (``contains``)."""
        if text.isascii() and self._part not in text.lower().replace(",", ""):
            return False  # folding joins no letters, and digits only where a comma was
        return contains(folded(text), self._wanted)


def contains(text: str, wanted: str) -> bool:
    """Tell whether a folded text has another in it, and not only as part of a longer number."""
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
