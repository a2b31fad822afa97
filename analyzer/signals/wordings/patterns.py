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

from analyzer.signals.wordings.folding import fold
from analyzer.signals.wordings.tables import Boundary, Kind, Table, tables
from collector_processor.core.patterns import compile_rule

_PIECES: Final = re.compile(r" ?… ?| |\*|\{\w+\}")
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
    pattern = _compiled(language, kind)
    for found in pattern.finditer(folded) if pattern is not None else ():
        for group in (1, 2):
            start, end = found.span(group)
            if start >= 0:
                return int(start), int(end)
    return None


@functools.cache
def _compiled(language: str, kind: Kind) -> Any:
    """Return the pattern of a kind; ``None`` if the table has no such phrases."""
    table = tables()[language]
    phrases = table.phrases.get(kind, ())
    if not phrases:
        return None
    before = "" if table.boundary is Boundary.NONE else rf"(?:^|{_NO_LETTER})"
    after = rf"(?:$|{_NO_LETTER})" if table.boundary is Boundary.BOTH else ""
    prefix = f"(?:{'|'.join(map(fold, table.prefixes))})?" if table.prefixes else ""
    unless = _any_of(table.unless.get(kind, ()), table) or _NEVER
    anywhere = _any_of([each for each in phrases if not each.startswith(_FIRST)], table) or _NEVER
    first = _any_of([each[1:] for each in phrases if each.startswith(_FIRST)], table) or _NEVER
    return compile_rule(f"(?:{before}{prefix}(?:{unless}|({anywhere}))|{_BEGIN}({first})){after}")


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
