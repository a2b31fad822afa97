"""The tables of phrases, one TOML file a language: what they contain, and their loading."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from typing import Any, Final

import tomli

from analyzer.texts.wordings.folding import fold

ANY_LANGUAGE: Final = "mul"
"""Code of the table of what programs write whatever the language of the text around it (ISO 639-2)."""


_BEGINNINGS: Final = (
    "named",
    "language_words",
    "writing_verbs",
    "writing_words",
    "rewording_words",
    "sending_words",
)


class Kind(StrEnum):
    """What a phrase does."""

    GIVING_UP = "giving_up"
    """The speaker did not or could not do what was asked."""
    EXCUSE = "excuse"
    """An apology; alone it is no failure."""
    ADMISSION = "admission"
    """Something failed, was empty, missing or unavailable."""
    PROMISE = "promise"
    """The work is put off until later."""
    GOES_ON = "goes_on"
    """An answer may follow the excuse or the admission before it."""
    CLAIM_DONE = "claim_done"
    """The work is said to be done."""
    ASKS_WHETHER = "asks_whether"
    """A question whether something exists or holds, or which things do: nothing found is an answer."""
    CITES = "cites"
    """What stands beside it was said or written by somebody else."""
    EVADES = "evades"
    """The sentence says that something failed or is missing, where an answer should stand."""
    ACKNOWLEDGES = "acknowledges"
    """As a whole sentence, only takes note. ``Done`` and ``yes`` are not included: they may be answers."""
    REPAIRS = "repairs"
    """Something is done again, otherwise or without: words of a repair as well as of a failure."""
    GENERAL = "general"
    """What is said is general knowledge and was not looked up."""
    CONCLUDES = "concludes"
    """A result is called right or final."""


class Boundary(StrEnum):
    """Where a phrase must not be continued by further letters."""

    BOTH = "both"
    START = "start"
    """Endings may follow, as in Korean."""
    NONE = "none"
    """The script has no blanks between words."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """The phrases of a language; see ``patterns`` for how they are written."""

    code: str
    """ISO 639-1; the file has this name."""
    name: str
    """In English, for readers of a verdict."""
    scripts: tuple[str, ...]
    """As the Unicode names of their letters begin: ``LATIN``, ``CJK``."""
    letters: str
    """All letters of the language beyond a to z; many others are a sign of a language without a table."""
    boundary: Boundary
    prefixes: tuple[str, ...]
    """What may be written together with the first word of a phrase, such as the Arabic ``و`` (and)."""
    source: str
    checked: str
    function_words: frozenset[str]
    """Folded. Frequent words with little meaning, by which the language is recognised."""
    named: tuple[str, ...]
    """Folded. Beginnings of this language's name in the languages of the tables."""
    language_words: tuple[str, ...]
    """Folded. Beginnings of this language's words for translating and for a language."""
    writing_verbs: tuple[str, ...]
    """Folded. Beginnings of this language's words for writing to somebody."""
    writing_words: tuple[str, ...]
    """Folded. Beginnings of this language's words for what is written to somebody."""
    rewording_words: tuple[str, ...]
    """Folded. Beginnings of this language's words for making a text of the text that the task gives."""
    sending_words: tuple[str, ...]
    """Folded. Beginnings of this language's words for letting somebody know."""
    groups: Mapping[str, tuple[str, ...]]
    """Alternatives that phrases refer to as ``{name}``."""
    phrases: Mapping[Kind, tuple[str, ...]]
    unless: Mapping[Kind, tuple[str, ...]]
    """Phrases that contain a phrase of the kind and mean something else, such as ``no errors``."""


@functools.cache
def tables() -> Mapping[str, Table]:
    """Return the tables by code; read once per process.

    Raises:
        ValueError: A table has an unknown kind, or is not named as its language.
        KeyError: A table misses a field.
        TypeError: A table has an unknown field.
    """
    found = sorted(
        (file for file in files(__package__).iterdir() if file.name.endswith(".toml")),
        key=lambda file: file.name,
    )
    read = [(file.name, _table(tomli.loads(file.read_text(encoding="utf-8")))) for file in found]
    for name, table in read:
        if name != f"{table.code}.toml":
            raise ValueError(f"{name}: expected a file named {table.code}.toml")
    return {table.code: table for _name, table in read}


def _table(row: Mapping[str, Any]) -> Table:
    given = {
        "letters": "",
        "prefixes": (),
        "boundary": Boundary.BOTH,
        "named": "",
        "language_words": "",
        "writing_verbs": "",
        "writing_words": "",
        "rewording_words": "",
        "sending_words": "",
        "groups": {},
        "unless": {},
        **row,
    }
    return Table(
        **{
            **given,
            "scripts": tuple(given["scripts"]),
            "boundary": Boundary(given["boundary"]),
            "prefixes": tuple(given["prefixes"]),
            "function_words": frozenset(fold(given["function_words"]).split()),
            **{name: tuple(fold(given[name]).split()) for name in _BEGINNINGS},
            "groups": {name: tuple(words) for name, words in given["groups"].items()},
            "phrases": _by_kind(given["phrases"]),
            "unless": _by_kind(given["unless"]),
        }
    )


def _by_kind(rows: Mapping[str, list[str]]) -> dict[Kind, tuple[str, ...]]:
    return {Kind(kind): tuple(phrases) for kind, phrases in rows.items()}
