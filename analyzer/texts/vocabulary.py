"""Words by which values are read in many languages: months, numbers, limits. Pure.

``vocabulary.toml`` has the words that are looked for in the languages of a text, ``any_language.toml`` those
that are looked for in all languages at once.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

import tomli

from analyzer.texts.numbers import DENSE
from analyzer.texts.wordings import languages_in

_SENTENCE_END: Final = re.compile(r"[.!?;](?=\s)|[。！？।\n]")  # noqa: RUF001 - other scripts
_KIND: Final = re.compile(r"\{([a-z_]+)\}")
_LONG: Final = 4
_MARKS: Final = re.compile(rf"[{DENSE}]")


@functools.cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    return tomli.loads((files(__package__) / "vocabulary.toml").read_text(encoding="utf-8"))


@functools.cache
def months() -> Mapping[str, int]:
    """Return the number of each month, 1 to 12, by each form of its name in lower case."""
    return {form: number for row in _rows().values() for form, number in _numbered(row["months"])}


@functools.cache
def weekdays(languages: tuple[str, ...]) -> Mapping[str, int]:
    """Return the days of the week by each form of their names in these languages, Monday being 0."""
    rows = _rows()
    known = [rows[code]["weekdays"] for code in languages if code in rows]
    return {form: number - 1 for names in known for form, number in _numbered(names)}


def weekdays_in(text: str, languages: tuple[str, ...]) -> frozenset[int]:
    """Return the days of the week that a text names, Monday being 0; longer names with any ending."""
    small, names = text.casefold(), weekdays(languages)
    whole = set(re.findall(r"\w+", small))
    return frozenset(
        day
        for name, day in names.items()
        if name in whole
        or (len(name) >= _LONG and any(word.startswith(name) for word in whole))
        or (not name.isalpha() and name in small)
    )


@functools.cache
def number_words(languages: tuple[str, ...]) -> Mapping[str, int]:
    """Return small whole numbers by their words in these languages, in lower case.

    ``on`` is a preposition in English and ten in Turkish.
    """
    rows = _rows()
    known = [rows[code]["numbers"] for code in languages if code in rows]
    return {form: number for numbers in known for form, number in _numbered(numbers)}


@functools.cache
def all_number_words() -> frozenset[str]:
    """Return the words for small whole numbers in all languages, in lower case."""
    return frozenset(number_words(tuple(_rows())))


def _numbered(forms: str) -> Iterator[tuple[str, int]]:
    for number, one in enumerate(forms.casefold().split(), start=1):
        yield from ((form.replace("_", " "), number) for form in one.split("/"))


@functools.cache
def titles() -> frozenset[str]:
    """Return words before a name that are no part of it, such as ``Mrs``, in lower case."""
    return frozenset(word for row in _rows().values() for word in row["titles"].casefold().split())


@functools.cache
def phrases(kind: str, languages: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern of some languages' phrases of a kind, the longest first, without capturing.

    Args:
        kind: a key of ``vocabulary.toml`` that holds a list.
        languages: codes of the text's languages; the pattern of none matches nothing.
    """
    rows = _rows()
    words = [one for code in languages if code in rows for one in rows[code][kind]]
    return re.compile(alternatives(words) if words else r"(?!)", re.IGNORECASE)


@functools.cache
def _of_any_language() -> Mapping[str, Mapping[str, list[str]]]:
    return tomli.loads((files(__package__) / "any_language.toml").read_text(encoding="utf-8"))


@functools.cache
def words_for(kind: str) -> frozenset[str]:
    """Return the words of a kind in all languages, in lower case (``any_language.toml``)."""
    return frozenset(word for row in _of_any_language()[kind].values() for word in row)


@functools.cache
def worded(pattern: str) -> re.Pattern[str]:
    """Return a pattern in which ``{kind}`` stands for any word of a kind in all languages, in any case.

    Raises:
        KeyError: ``any_language.toml`` has no such kind.
    """
    return re.compile(_KIND.sub(lambda found: _any_of(words_for(found[1])), pattern), re.IGNORECASE)


def _any_of(one_of: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(_stem, sorted(one_of, key=lambda word: (-len(word), word))))})"


def phrase_at_end(text: str, kind: str, languages: tuple[str, ...]) -> re.Match[str] | None:
    """Return the phrase of a kind with which a text ends; ``None`` if it ends otherwise."""
    matches = phrases(kind, languages).finditer(text)
    return next((one for one in matches if one.end() == len(text)), None)


def denies(text: str) -> bool:
    """Tell whether a text has a word that denies something, in one of its languages."""
    return phrases("no", languages_in(text)).search(text) is not None


def has_alternative(task: str) -> bool:
    """Tell whether a task says what to do instead of what it asks for."""
    return phrases("otherwise", languages_in(task)).search(task) is not None


def begins_with_no(answer: str) -> bool:
    """Tell whether the first sentence of an answer denies something: so it says that nothing was found."""
    return phrases("no", languages_in(answer)).search(first_sentence(answer)) is not None


def first_sentence(text: str) -> str:
    """Return the first sentence or line of a text."""
    return _SENTENCE_END.split(text.lstrip(), maxsplit=1)[0]


def alternatives(words: Iterable[str]) -> str:
    """Return a pattern that matches one of the words; outside dense scripts, as a whole word.

    A word that ends in ``-`` stands for all words that begin with it.
    """
    longest = sorted(dict.fromkeys(words), key=len, reverse=True)
    spaced = [_stem(word) for word in longest if not _MARKS.search(word)]
    dense = [re.escape(word) for word in longest if _MARKS.search(word)]
    bounded = rf"(?<!\w)(?:{'|'.join(spaced)})(?!\w)" if spaced else ""
    return "|".join(filter(None, [bounded, *dense]))


def _stem(word: str) -> str:
    stem = word.removesuffix("-")
    return re.escape(stem) if stem == word else rf"{re.escape(stem)}\w*"
