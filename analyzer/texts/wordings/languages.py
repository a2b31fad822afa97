"""Which languages a text is written in, judged by its scripts and by the function words of the tables.

Function words (``the``, ``nicht``, ``что``) are frequent in any text of two sentences, whatever it is about.
A very short text may have none: then every language of its script is possible.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter, itemgetter
from typing import Final

from analyzer.texts.wordings.folding import fold
from analyzer.texts.wordings.tables import ANY_LANGUAGE, Boundary, Table, tables

_HEAD: Final = 2_000
_TAIL: Final = 1_000
"""Characters at the beginning and the end of a text that its languages are judged by."""
_TOKEN: Final = re.compile(
    r"[^\s\d_!-@\[-^{-\u00bf\u00d7\u00f7\u2000-\u206f\u2190-\u2bff\u3000-\u303f\u0964\u0965\u060c\u061b\u061f\u06d4]+"
)
_LATIN: Final = re.compile("[a-z]")
_FAMILIES: Final = {"HIRAGANA": "CJK", "KATAKANA": "CJK"}
"""Scripts that one text mixes: Japanese is written with Han characters too."""
_SPACED: Final = frozenset({"LATIN", "CYRILLIC", "GREEK"})
"""Scripts of which every language has blanks between its words."""
_CLOSE: Final = 0.7
"""Share of the best language's function words from which another is as likely."""
_FEW: Final = 1
"""Function words that may be there by chance: ``hasta`` is a Spanish one, and a patient in Turkish."""
_MORE: Final = 3
"""Function words that no better language has, from which a text has a second language."""
_ENOUGH_CHARACTERS: Final = 400
"""Characters from which only every second is counted by script, from twice as many every third, and so on."""
_ENOUGH_LETTERS: Final = 24
_ENOUGH_WORDS: Final = 12
"""Letters and different words below which a text is too short to say that no table fits."""
_LEAST_SHARE: Final = 0.1
"""Share of a text's letters below which a script is that of units and names (``km``)."""
_SHARE: Final = 0.2
"""Share of a text's letters from which a script counts as one that it is written in."""
_LEAST_KNOWN: Final = 0.2
"""Least share of words in a table among different words: 0.33 to 0.53 in the tests of its own language."""
_FOREIGN: Final = 0.025
"""Share of letters that none of a text's languages has, from which it is another language."""


def languages_in(text: str) -> tuple[str, ...]:
    """Return the codes of a text's languages that have a table, most likely first.

    All languages of a script are returned if the text is too short to tell them apart.
    """
    return _languages(_sample(text))


def speaks_of(language: str, text: str) -> bool:
    """Tell whether a text names a language, or speaks of languages or of translating at all.

    Beginnings of words are looked for anywhere: a text that only seems to name the language counts too.
    """
    folded = fold(text)
    words = (word for table in tables().values() for word in table.language_words)
    return any(word in folded for word in (*tables()[language].named, *words))


def asks_for_text(language: str, text: str) -> bool:
    """Tell whether a text in a language may ask to write to somebody, who may read another language."""
    folded, table = fold(text), tables()[language]
    return any(word in folded for word in (*table.writing_verbs, *table.writing_words))


def orders_text(text: str) -> bool:
    """Tell whether a text asks for a text, to write, translate or sum up; not merely to send one.

    In any language: a few words before a text to translate do not show in which language they are.
    """
    folded = fold(text)
    beginnings, anywhere = _verbs_of_text()
    words = frozenset(_TOKEN.findall(folded))
    return any(verb in folded for verb in anywhere) or any(word.startswith(beginnings) for word in words)


def may_order_message(text: str) -> bool:
    """Tell whether a text may ask to let somebody know; true for a text in a language without a table."""
    folded = fold(text)
    found = [tables()[code] for code in languages_in(text)]
    words = (word for table in found for word in (*table.sending_words, *table.writing_words))
    return not found or not is_covered(text) or any(word in folded for word in words)


@functools.cache
def _verbs_of_text() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return verbs that begin a word, and those that may stand within other letters."""
    beginnings: list[str] = []
    anywhere: list[str] = []
    for table in tables().values():
        joins = table.boundary is Boundary.NONE or table.prefixes
        (anywhere if joins else beginnings).extend((*table.writing_verbs, *table.rewording_words))
    return tuple(beginnings), tuple(anywhere)


def is_covered(text: str) -> bool:
    """Tell whether tables cover a text's languages; true for a text that is too short to tell."""
    return not unchecked(text)


def unchecked(text: str) -> str:
    """Name the script or language of a text that no table covers, for people; empty if tables cover it."""
    return _unchecked(_sample(text))


def _sample(text: str) -> str:
    if len(text) <= _HEAD + _TAIL:
        return text
    head, tail = text[:_HEAD], text[-_TAIL:]  # without the parts of words at the cuts, which may be words
    return f"{head[: head.rfind(' ')]}\n{tail[tail.find(' ') + 1 :]}"


@functools.lru_cache(maxsize=64)
def _languages(sample: str) -> tuple[str, ...]:
    folded = fold(sample)
    words = frozenset(_TOKEN.findall(folded))
    chosen: list[str] = []
    letters = _letters(folded)
    for family, count in letters.items():
        if count < _ENOUGH_LETTERS and count < _LEAST_SHARE * sum(letters.values()):
            continue
        hits = _hits(family, words, folded)
        if max(map(len, hits.values()), default=0) <= _FEW + 1:
            codes = _codes(family, _vocabulary)
            for word in words & codes.keys():
                for code in codes[word]:
                    hits[code].add(word)
        chosen += _likely(hits)
    return tuple(chosen)


@functools.cache
def _vocabulary(table: Table) -> frozenset[str]:
    """Return the words of a language's phrases: a text of a few words may have no others to judge by."""
    rows = (*table.phrases.values(), *table.unless.values(), *table.groups.values())
    return frozenset(_TOKEN.findall(fold("\n".join(phrase for row in rows for phrase in row))))


def _likely(hits: Mapping[str, AbstractSet[str]]) -> list[str]:
    """Return the languages that explain the words found, most likely first; all if there are hardly any.

    One that has fewer of them than a related language, and no other ones, explains nothing.
    """
    ordered = sorted(hits, key=lambda code: -len(hits[code]))
    best = len(hits[ordered[0]]) if ordered else 0
    if best <= _FEW:
        return ordered
    chosen: list[str] = []
    explained: AbstractSet[str] = frozenset()
    for code in ordered:
        if len(hits[code]) < _MORE and len(hits[code]) < _CLOSE * best:
            break  # and so are all after it
        alone = len(hits[code] - explained)
        is_close = len(hits[code]) >= _CLOSE * best and (alone or len(hits[code]) == best)
        if is_close or alone >= _MORE:
            chosen.append(code)
            explained |= hits[code]
    return chosen


def _hits(family: str, words: frozenset[str], folded: str) -> dict[str, set[str]]:
    """Return the function words in a text by language; in a script without blanks, parts of the text."""
    known = _by_family().get(family, ())
    codes = _codes(family, _function_words)
    found: dict[str, set[str]] = {table.code: set() for table in known}
    for word in codes.keys() & words:
        for code in codes[word]:
            found[code].add(word)
    for table in known if family not in _SPACED else ():
        if table.boundary is Boundary.NONE:
            found[table.code] = {word for word in table.function_words if word in folded}
    return found


_function_words: Final = attrgetter("function_words")


@functools.cache
def _codes(family: str, words_of: Callable[[Table], Iterable[str]]) -> Mapping[str, Sequence[str]]:
    """Return which languages of a family have a word; most words of a text are in one or none of them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for table in _by_family().get(family, ()):
        for word in words_of(table):
            found[word].append(table.code)
    return found


@functools.lru_cache(maxsize=16)
def _letters(folded: str) -> Mapping[str, int]:
    """Count the letters of each family of scripts, most frequent first; in a long text, estimate."""
    if folded.isascii():
        return {"LATIN": 1} if _LATIN.search(folded) else {}
    counted: defaultdict[str, int] = defaultdict(int)
    each = 1 + len(folded) // _ENOUGH_CHARACTERS
    for character, times in Counter(folded[::each]).items():
        script = _script(character)
        if script:
            counted[script] += times * each
    return dict(sorted(counted.items(), key=itemgetter(1), reverse=True))


@functools.lru_cache(maxsize=4096)
def _script(character: str) -> str:
    """Return a letter's family of scripts, as its Unicode name begins; empty for other characters."""
    if not character.isalpha():
        return ""
    script = unicodedata.name(character, "").partition(" ")[0]
    return _FAMILIES.get(script, script)


@functools.cache
def _by_family() -> Mapping[str, tuple[Table, ...]]:
    found: dict[str, tuple[Table, ...]] = {}
    for table in tables().values():
        for family in {_FAMILIES.get(script, script) for script in table.scripts}:
            if table.code != ANY_LANGUAGE:
                found[family] = (*found.get(family, ()), table)
    return found


@functools.lru_cache(maxsize=64)
def _unchecked(sample: str) -> str:
    folded = fold(sample)
    letters = _letters(folded)
    if folded.isascii():
        letters = {"LATIN": sum(map(str.isalpha, folded))}
    for family, count in letters.items():
        if count < _ENOUGH_LETTERS or count < _SHARE * sum(letters.values()):
            continue
        known = [tables()[code] for code in _languages(sample)]
        those = [table for table in known if table in _by_family().get(family, ())]
        if not those:
            return f"{family.capitalize()} script"
        if not _fits(those, folded, family):
            return f"a language in {family.capitalize()} script"
    return ""


def _fits(known: Iterable[Table], folded: str, family: str) -> bool:
    """Tell whether the languages explain enough of a text's words and letters."""
    known = list(known)
    if not all(table.boundary is Boundary.BOTH for table in known):
        return True  # Chinese, Japanese and Korean share their scripts with no other large language
    words = frozenset(_TOKEN.findall(folded))
    begins = {first for first in {word[0] for word in words} if _script(first) == family}
    words = frozenset([word for word in words if word[0] in begins])
    rows = (row for table in known for row in (table.function_words, _vocabulary(table)))
    hits = frozenset[str]().union(*(words & row for row in rows))
    if len(words) >= _ENOUGH_WORDS and len(hits) < _LEAST_KNOWN * len(words):
        return False
    if folded.isascii() or not all(table.letters for table in known):
        return True
    own = frozenset(fold("".join(table.letters for table in known)))
    counted = [
        (character, times) for character, times in Counter(folded).items() if _script(character) == family
    ]
    foreign = sum(times for character, times in counted if not character.isascii() and character not in own)
    return foreign <= _FOREIGN * sum(times for _character, times in counted)


def forget_samples() -> None:
    """Drop the texts whose languages were recognised last."""
    for cache in (_languages, _unchecked, _letters):
        cache.cache_clear()
