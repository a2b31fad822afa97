"""One spelling for comparison: lower case, composed letters, plain apostrophes, no optional marks."""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Final

_DROPPED: Final = (
    *range(0x064B, 0x0660),  # Arabic vowel marks, which few people write
    0x0670,
    0x0640,  # tatweel, which stretches a word
    *range(0x0591, 0x05C0),  # Hebrew vowel and reading marks
    *(0x05BF, 0x05C1, 0x05C2, 0x05C4, 0x05C5, 0x05C7),
    *range(0x200B, 0x2010),  # joiners and marks of direction
    *(0x00AD, 0x2060, 0xFEFF, 0xFE0F),
    0x0307,  # what is left of the Turkish capital İ; letters composed with it are kept
)
_ALIKE: Final = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201b\u02bc\u02b9\u0060\u00b4"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u00ab\u00bb"), '"'),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013"), "-"),
    0x0131: "i",  # the Turkish dotless i: its capital is the I of other languages
    0x0451: "\u0435",  # the Russian yo, which is mostly written as ye
    **dict.fromkeys((0x0623, 0x0625, 0x0622, 0x0671), "\u0627"),  # alef with hamza
    0x0649: "\u064a",  # Arabic, Persian and Urdu forms of yeh, kaf and heh
    0x06CC: "\u064a",
    0x06A9: "\u0643",
    0x06C1: "\u0647",
    0x0629: "\u0647",
}
_UNPAIRED: Final = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
"""Halves of surrogate pairs, which UTF-8 and so RE2 cannot read."""
_PLAIN: Final[dict[int, str | None]] = {**dict.fromkeys(_DROPPED), **_ALIKE, **_UNPAIRED}
_TO_CHANGE: Final = re.compile(f"[{re.escape(''.join(map(chr, _PLAIN)))}]")
"""Most texts have no such character, and looking for one takes a tenth of the time of ``translate``."""
_KEPT: Final = 64
"""Texts whose folded form is kept: readers ask for several kinds of phrases of the same texts of a run."""


@functools.lru_cache(maxsize=_KEPT)
def fold(text: str) -> str:
    """Return a text in the spelling of the patterns; its length may differ."""
    if text.isascii():
        return text.lower().replace("`", "'")
    composed = _composed(_composed(text).casefold())
    return composed.translate(_PLAIN) if _TO_CHANGE.search(composed) else composed


def _composed(text: str) -> str:
    return text if unicodedata.is_normalized("NFKC", text) else unicodedata.normalize("NFKC", text)


def original_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the part of a text that ``fold(text)[start:end]`` comes from."""
    if text.isascii():
        return start, end
    first, folded, place = 0, 0, 0
    for place, after in _clusters(text):
        if folded <= start:
            first = place
        folded += len(fold.__wrapped__(text[place:after]))
        if folded >= end:
            return first, after
    return first, len(text)


def _clusters(text: str) -> list[tuple[int, int]]:
    """Return the smallest parts of a text that can be folded one by one: letters with their marks."""
    starts = [place for place, character in enumerate(text) if not place or not _continues(character)]
    return list(zip(starts, [*starts[1:], len(text)], strict=True))


def _continues(character: str) -> bool:
    """Tell whether a character may compose with the one before it: a mark, or a later part of a syllable."""
    return unicodedata.category(character).startswith("M") or "\u1160" <= character <= "\u11ff"
