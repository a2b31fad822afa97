"""What people and models say in many languages when they give up, apologise, promise or claim success.

The phrases are data: one table a language beside this file. ``said`` looks for a kind of phrase in the tables
of the languages that a text is written in, so that a short word of one language does not match in another.
The search is linear in the text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from analyzer.texts.wordings.folding import fold, original_span
from analyzer.texts.wordings.languages import (
    asks_for_text,
    is_covered,
    languages_in,
    may_order_message,
    orders_text,
    speaks_of,
    unchecked,
)
from analyzer.texts.wordings.patterns import first_match, has_words
from analyzer.texts.wordings.tables import ANY_LANGUAGE, Kind, Table, tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A phrase found in a text."""

    kind: Kind
    language: str
    """Code of the table; ``mul`` for a phrase that programs write in any language."""
    start: int
    end: int
    """The phrase is ``text[start:end]``, without the characters around it."""
    words: str
    """The phrase as matched: in lower case, with plain apostrophes, without vocalisation."""


def said(kind: Kind, text: str, languages: tuple[str, ...] | None = None) -> Match | None:
    """Return the first phrase of a kind in a text; ``None`` if there is none.

    Args:
        kind: What the phrase does, such as giving up.
        text: A text, or a sentence of one.
        languages: The languages to look for, by default those of the text. For a sentence, hand over those
            of the whole text: a few words say little about their language.
    """
    folded = fold(text)
    found = _spans(kind, folded, languages_in(text) if languages is None else languages)
    start, end, language = min(found, key=lambda each: each[0], default=(-1, -1, ""))
    if not language:
        return None
    first, last = original_span(text, start, end)
    return Match(kind=kind, language=language, start=first, end=last, words=folded[start:end])


def says(kind: Kind, text: str, languages: tuple[str, ...]) -> bool:
    """Tell whether ``said`` finds a phrase; cheaper where nobody asks for its place."""
    return any(_spans(kind, fold(text), languages))


def may_say(kind: Kind, text: str, languages: tuple[str, ...]) -> bool:
    """Tell whether any sentence of a text may have a phrase: asked once, before ``says`` for each."""
    folded = fold(text)
    return any(has_words(language, kind, folded) for language in (*languages, ANY_LANGUAGE))


def _spans(kind: Kind, folded: str, languages: tuple[str, ...]) -> Iterator[tuple[int, int, str]]:
    """Yield where the first phrase of a kind is in a folded text, for each language that has one."""
    for language in (*languages, ANY_LANGUAGE):
        span = first_match(language, kind, folded)
        if span is not None:
            yield *span, language


_WORD: Final = re.compile(r"[^\W_]")
_KINDS: Final = tuple(Kind)


def kinds_said(text: str, languages: tuple[str, ...] | None = None) -> frozenset[Kind]:
    """Return all kinds of phrases that a text contains (see ``said``)."""
    known, folded = languages_in(text) if languages is None else languages, fold(text)
    return frozenset(kind for kind in _KINDS if any(_spans(kind, folded, known)))


def only_acknowledges(sentence: str, languages: tuple[str, ...] | None = None) -> bool:
    """Tell whether a sentence is nothing but an acknowledgement, such as ``Noted``."""
    found = said(Kind.ACKNOWLEDGES, sentence, languages)
    return found is not None and not _WORD.search(sentence[: found.start] + sentence[found.end :])


def asks_whether(task: str) -> bool:
    """Tell whether a task asks whether something exists, or which things do: then nothing is an answer."""
    return says(Kind.ASKS_WHETHER, task, languages_in(task))


_OF_FAULTS: Final = (Kind.ADMISSION, Kind.GIVING_UP, Kind.REPAIRS)


@functools.lru_cache(maxsize=8)
def mentions_fault(text: str, asked: str = "") -> bool:
    """Tell whether a text may say that something failed, was missing, not done, or done again.

    Args:
        text: any text.
        asked: what it answers: words of it, such as ``error rate``, report nothing.
    """
    return any(says_newly(kind, text, asked) for kind in _OF_FAULTS)


def says_newly(kind: Kind, text: str, asked: str) -> bool:
    """Tell whether a text has a phrase of a kind that was not asked for with a word beside it."""
    known, folded, task = languages_in(text), fold(text), fold(asked)
    for _ in range(_MOST_PHRASES):
        span = next(_spans(kind, folded, known), None)
        if span is None:
            return False
        start, end, _language = span
        before, after = folded[:start].split()[-1:], folded[end:].split()[:1]
        told = {" ".join([*before, folded[start:end]]), " ".join([folded[start:end], *after])}
        if not task or all(one not in task for one in told - {folded[start:end]}):
            return True
        folded = f"{folded[:start]}{' ' * (end - start)}{folded[end:]}"
    return False


_MOST_PHRASES: Final = 8
"""Phrases of what was asked for that are passed over."""


__all__ = [
    "ANY_LANGUAGE",
    "Kind",
    "Match",
    "Table",
    "asks_for_text",
    "asks_whether",
    "is_covered",
    "kinds_said",
    "languages_in",
    "may_order_message",
    "may_say",
    "mentions_fault",
    "only_acknowledges",
    "orders_text",
    "said",
    "says",
    "says_newly",
    "speaks_of",
    "tables",
    "unchecked",
]
