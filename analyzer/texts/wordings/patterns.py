"""Phrases as patterns for RE2, whose time is linear in the text.

A phrase is a plain text with marks: ``^`` before it, if it must begin a sentence; ``…`` for up to 40
characters of the same sentence; ``*`` at the end of a word for any ending; ``{name}`` for one of a group of
alternatives in the table; and a blank for any white space. Phrases of ``unless`` come first: where one begins
no later than a phrase, it is taken instead.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, Final

from analyzer.texts.wordings.folding import fold
from analyzer.texts.wordings.tables import Boundary, Kind, Table, tables
from collector_processor.core.patterns import compile_rule

_PIECES: Final = re.compile(r" ?… ?| |\*|\{\w+\}")
_GROUP: Final = re.compile(r"\{\w+\}")
_MARKS: Final = r"\x00-/:-@\[-^`{-\x{bf}\x{2000}-\x{206f}\x{2190}-\x{2bff}\x{3000}-\x{303f}।॥،؛؟\x{6d4}"
"""Blanks and punctuation; classes such as ``\\pL`` have hundreds of ranges and compile in 200 ms."""
_NO_LETTER: Final = f"[{_MARKS}]"
_GAP: Final = r"[^.!?;\n。؟।؛]{0,40}"
_FIRST: Final = "^"
_BEGIN: Final = r"(?:^|[.!?:;\n。।؟\x{6d4}])[\s\"'*_(-]*"
_NEVER: Final = r"[^\x00-\x{10FFFF}]"
_ENDING: Final = f"[^{_MARKS}]*"


def first_match(language: str, kind: Kind, folded: str) -> tuple[int, int] | None:
    """Return where the first phrase of a kind begins and ends in a folded text."""
    phrases = _phrases(language, kind)
    for found in phrases.pattern.finditer(folded) if phrases.may_be_in(folded) else ():
        for group in (1, 2):
            start, end = found.span(group)
            if start >= 0:
                return int(start), int(end)
    return None


def has_words(language: str, kind: Kind, folded: str) -> bool:
    """Tell whether a folded text has a word of a phrase; if not, no part of it has such a phrase."""
    return _phrases(language, kind).has_words(folded)


class Phrases:
    """The phrases of a kind in one language.

    Their pattern takes 2 ms to compile, so this waits for a text with words of a phrase: a short text may
    be in any of twenty languages.
    """

    def __init__(self, table: Table, kind: Kind) -> None:
        self._table, self._unless = table, table.unless.get(kind, ())
        self._phrases = table.phrases.get(kind, ())
        self._words = _words_in_any(self._phrases, table)

    def may_be_in(self, folded: str) -> bool:
        """Tell whether the pattern may match a folded text; costs less than a search until it is compiled."""
        return "pattern" in vars(self) or self.has_words(folded)

    def has_words(self, folded: str) -> bool:
        """Tell whether a folded text has a word of a phrase."""
        return any(word in folded for word in self._words)

    @functools.cached_property
    def pattern(self) -> Any:
        """The pattern, with the phrases in the groups 1 and 2."""
        table = self._table
        before = "" if table.boundary is Boundary.NONE else rf"(?:^|{_NO_LETTER})"
        after = rf"(?:$|{_NO_LETTER})" if table.boundary is Boundary.BOTH else ""
        prefix = f"(?:{'|'.join(map(fold, table.prefixes))})?" if table.prefixes else ""
        unless = _any_of(self._unless, table) or _NEVER
        anywhere = _any_of([each for each in self._phrases if not each.startswith(_FIRST)], table) or _NEVER
        first = _any_of([each[1:] for each in self._phrases if each.startswith(_FIRST)], table) or _NEVER
        return compile_rule(f"(?:{before}{prefix}(?:{unless}|({anywhere}))|{_BEGIN}({first})){after}")


@functools.cache
def _phrases(language: str, kind: Kind) -> Phrases:
    return Phrases(tables()[language], kind)


def _words_in_all(phrase: str, table: Table) -> frozenset[str]:
    """Return words of which every text with the phrase has one: the longest of its parts."""
    parts = [frozenset([fold(part)]) for part in _PIECES.split(phrase.removeprefix(_FIRST)) if part]
    parts += [_words_in_any(table.groups[group[1:-1]], table) for group in _GROUP.findall(phrase)]
    return max(parts, key=lambda words: min(map(len, words)))


@functools.cache
def _words_in_any(phrases: tuple[str, ...], table: Table) -> frozenset[str]:
    return frozenset(word for phrase in phrases for word in _words_in_all(phrase, table))


def _any_of(phrases: Sequence[str], table: Table) -> str:
    """Return the alternatives, longer ones first: the first that fits is taken."""
    ordered = sorted(phrases, key=len, reverse=True)
    return f"(?:{'|'.join(_pattern(phrase, table) for phrase in ordered)})" if ordered else ""


def _pattern(phrase: str, table: Table) -> str:
    parts: list[str] = []
    end = 0
    for piece in _PIECES.finditer(phrase):
        parts += (re.escape(fold(phrase[end : piece.start()])), _piece(piece[0], table))
        end = piece.end()
    return "".join((*parts, re.escape(fold(phrase[end:]))))


def _piece(piece: str, table: Table) -> str:
    if "…" in piece:
        return _GAP if piece == "…" else rf"{_NO_LETTER}(?:{_GAP}{_NO_LETTER})?"
    if piece == " ":
        return r"\s*" if table.boundary is Boundary.NONE else r"\s+"
    return _ENDING if piece == "*" else _any_of(table.groups[piece[1:-1]], table)
