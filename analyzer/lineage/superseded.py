"""Figures of a version that its source marks as replaced: a repealed tariff beside the one in force. Pure.

The mark stands in the result that the agent read. An answer that passes it on, in any of the languages, or a
task that asks for an old version, is right.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.deeds import SENTENCE
from analyzer.lineage.entries import document_in
from analyzer.lineage.figures import figures
from analyzer.lineage.known import Known, words_in
from analyzer.texts.vocabulary import denies, worded, words_for
from semconv.model import StepKind
from semconv.record import record

_REPLACED: Final = r"\b{replaced}\b|\b{replaced_stem}|{dense_replaced}"
"""Words by which documents and rates are marked as replaced; not those of what has merely run out."""
_SUCCESSOR: Final = r"(?:superseded|replaced|succeeded)_?by$|{successor_key}"
"""Keys that name the version which holds now."""
_MOST_PIECES: Final = 60
_MOST_RESULTS: Final = 100
_MOST_MARKED: Final = 20
"""A run in which more is marked lists what was replaced."""
_LONGEST_FIELD: Final = 80
_LEAST_NAME: Final = 3


@record
class _Piece:
    """A record, or a whole text, of a result."""

    position: int
    text: str
    names: frozenset[str]
    """Its short texts in lower case, by which a call may open it."""
    mark: str
    """The words that say that it is replaced; empty if none do."""


def replaced_versions(known: Known) -> Iterator[Clue]:
    """Yield the replaced versions from which the answer has figures that nothing else gives."""
    answer = known.answer
    if not answer:
        return
    small = "\n".join(text for _, text in islice(known.results(), _MOST_RESULTS)).casefold()
    if not any(one in small for one in _beginnings()):
        return
    pieces = [one for result in islice(known.results(), _MOST_RESULTS) for one in _pieces(*result)]
    marked = [one for one in pieces if one.mark]
    if not marked or len(marked) > _MOST_MARKED:
        return
    if worded(_REPLACED).search(answer) or worded(_REPLACED).search(known.asked):
        return
    literals = {figure.value: figure.literal for figure in figures(_affirmed(answer)) if not figure.is_label}
    givers = _givers(pieces, literals.keys() - _values(known.asked))
    if not givers:
        return
    opened = {place: words_in(text) for place, text in _calls(known, pieces)}
    for piece in marked:
        names = _own_names(piece, pieces)
        if any(name in known.asked.casefold() for name in names) or _lists(piece, givers.values()):
            continue
        places = {
            place for place, words in opened.items() if place > piece.position and not names.isdisjoint(words)
        }
        used = [
            literals[value]
            for value, given in givers.items()
            if all(one is piece or one.position in places for one in given)
        ]
        if used:
            yield _clue(known, piece, used[0])


@functools.cache
def _beginnings() -> tuple[str, ...]:
    """Return texts of which each match of both patterns has one in lower case, if JSON has not escaped it.

    Most results have none of them.
    """
    kinds = ("replaced", "replaced_stem", "dense_replaced", "successor_key")
    marks = {word.casefold() for kind in kinds for word in words_for(kind)}
    return tuple(sorted({"succeeded", "replaced", "\\u", *marks}))


def _givers(pieces: Sequence[_Piece], wanted: Collection[float]) -> dict[float, list[_Piece]]:
    """Return the pieces that give each of the wanted values, if any does."""
    givers: dict[float, list[_Piece]] = {}
    for piece in pieces if wanted else ():
        for value in _values(piece.text).intersection(wanted):
            givers.setdefault(value, []).append(piece)
    return givers


def _calls(known: Known, pieces: Sequence[_Piece]) -> Iterator[tuple[int, str]]:
    """Yield the places of results that calls asked for, and what these calls were given."""
    for place in dict.fromkeys(piece.position for piece in pieces):
        step = known.reading.steps[place]
        if step.kind is StepKind.TOOL:
            yield place, step.input


def _own_names(piece: _Piece, pieces: Sequence[_Piece]) -> frozenset[str]:
    """Return the names of a record that no other record of its result has: a call opens it by one of them."""
    others = (each.names for each in pieces if each is not piece and each.position == piece.position)
    return piece.names.difference(*others)


def _lists(piece: _Piece, givers: Iterable[Sequence[_Piece]]) -> bool:
    """Tell whether the answer has figures of other records of the list: these are things, not versions."""
    return any(all(one.position == piece.position and not one.mark for one in pieces) for pieces in givers)


def _affirmed(answer: str) -> str:
    """Return the sentences that deny nothing: the others may say what holds no longer."""
    return "\n".join(part for part in SENTENCE.findall(answer) if not denies(part))


def _pieces(position: int, text: str) -> Iterator[_Piece]:
    """Yield the records of a result's lists, or the result itself if it has none."""
    document = document_in(text)
    rows = _rows(document)
    if len(rows) > 1:
        yield from (_piece(position, row) for row in rows[:_MOST_PIECES])
    elif isinstance(document, dict):
        yield _piece(position, document)
    else:
        lines = text.splitlines()
        marks = [
            found[0]
            for line in lines
            if len(line) <= _LONGEST_FIELD and (found := worded(_REPLACED).search(line))
        ]
        yield _Piece(
            position=position,
            text=text,
            names=frozenset(),
            mark=marks[0] if len(marks) == 1 else "",
        )


def _rows(document: Any) -> list[Any]:
    """Return the records of the first list of a document, at its top or under a key."""
    inner = document.values() if isinstance(document, dict) else [document]
    lists = (
        one for one in inner if isinstance(one, list) and one and all(isinstance(row, dict) for row in one)
    )
    return next(lists, [])


def _piece(position: int, row: dict[str, Any]) -> _Piece:
    fields = [(str(key), value) for key, value in row.items()]
    texts = [value for _, value in fields if isinstance(value, str) and len(value) <= _LONGEST_FIELD]
    marks = [found[0] for value in texts if (found := worded(_REPLACED).search(value))]
    marks += [
        key for key, value in fields if isinstance(value, str) and value and worded(_SUCCESSOR).search(key)
    ]
    return _Piece(
        position=position,
        text="\n".join(str(value) for _, value in fields),
        names=frozenset(text.casefold() for text in texts if len(text) >= _LEAST_NAME),
        mark=marks[0] if marks else "",
    )


def _values(text: str) -> set[float]:
    return {value for figure in figures(text) for value in figure.readings}


def _clue(known: Known, piece: _Piece, literal: str) -> Clue:
    position = known.first_with(literal, after=piece.position)
    reason = f"answered {literal} from what {known.giver(piece.position)} marks as “{piece.mark[:40]}”"
    quotes = (known.quote(position, literal), known.quote(piece.position, piece.mark))
    return known.clue(position, ClueKind.OUT_OF_DATE, reason, *quotes)
