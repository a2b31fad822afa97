"""Texts compared by what they say: case, punctuation, white space and the forms of numbers aside."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_GROUPED: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_IDLE_ZEROS: Final = re.compile(r"(?<![\d.])(\d+)\.0+(?![\d.])|(?<![\d.])(\d+\.\d*?[1-9])0+(?![\d.])")
_MARKS: Final = re.compile(r"(?:[^\w.%-]|_|\.(?!\d)|(?<!\d)\.|-(?!\d)|(?<=\w)-)+")


def folded(text: str) -> str:
    """Return a text in the form in which it is compared; its length may differ."""
    text = _GROUPED.sub("", unicodedata.normalize("NFKC", text).casefold())
    text = _IDLE_ZEROS.sub(lambda found: found[1] or found[2], text)
    return " ".join(_MARKS.sub(" ", text).split())


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
