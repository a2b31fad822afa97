"""Values that changed on their way: a date, a path or a name that nobody gave, beside one that was given.

A value that an agent states and no text from outside has comes from nowhere. That alone says little: agents
know things. It says much if a value that was given differs from it in one place (a digit of the day, the
beginning of a name, the name of a file), and neither the agent nor the answer repeats the given one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, product
from typing import Final

from analyzer.lineage.arguments import is_exchanged
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import agree, dates_in, digits_apart, follows, mistaken, without_dates
from analyzer.lineage.deeds import sentence_at
from analyzer.lineage.derivation import places_apart
from analyzer.lineage.entries import Scalar, rows_in, stands_in, strings_of, tables_in
from analyzer.lineage.figures import prose_of
from analyzer.lineage.known import BEFORE, Known, Told, around, counts_in, words_in
from analyzer.lineage.values import Value, ValueKind, values_in
from analyzer.texts.numbers import numbers
from analyzer.texts.run_view import HEAD
from analyzer.texts.vocabulary import titles, worded, words_for

_MOST: Final = 40
"""Values of the answer that are looked at."""
_WORD: Final = re.compile(r"[^\W\d_][\w'’&-]*")  # noqa: RUF001 - an apostrophe
_MOST_WORDS: Final = 4_000
_NEXT_DAY: Final = 1
"""Days from a given date that need no number: an answer says "tomorrow, Friday 21 February"."""
_CAPITALS: Final = 0.2
"""Share of the words inside sentences from which a text writes all nouns with a capital, as German does."""
_LEAST_SHARED: Final = 5
"""Letters at the end of two names from which one may be taken for the other."""
_SUFFIX: Final = re.compile(
    r"(?:[ts]ion|ment|ness|ship|ity|ism|ción|ção|zione|ung|heit|keit|schaft)[eaos]{0,2}n?$"
)
"""Endings of nouns, which unlike things share."""
_LEAST_DIFFERENT: Final = 3
_YEAR: Final = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_ID: Final = re.compile(r"(?:\d\D*){3}|[-_/].*\d\d")
_LAST_NUMBER: Final = re.compile(r"\d{1,15}$")
_JOINED: Final = re.compile(r"\b\w+(?:[._/:-]\w+){2,8}")
"""Ids of three parts and more."""
_BETWEEN: Final = re.compile(r"[._/:-]")
_LEAST_PARTS: Final = 3
_LONGEST_ID: Final = 60
_LONGEST_NAME: Final = 4
_MOST_NAMES: Final = 2_000
_LEAST_ALIKE: Final = 4
"""Letters at the beginning or the end of two names from which one may be taken for the other."""
_LEAST_BESIDE: Final = 2
"""Values of a record that tell which one is meant."""
_LEAST_APART: Final = 2
_FULL_NAME: Final = (2, 3, 4)
_TITLED: Final = r"(?<!\w){person_title}\.?\s([^\W\d_][\w'’-]{2,40})"  # noqa: RUF001 - an apostrophe
_CLAUSE: Final = re.compile(r"\n|(?<=[.!?])\s|;\s")


def changed_values(known: Known) -> Iterator[Clue]:
    """Yield the answer's values that differ in one place from what was given, which the answer lacks."""
    if known.is_blind or not known.has_results:
        return
    answer = prose_of(known.answer)
    found = (_dates, _codes, _paths, _parts, _names, _words_of_names, _renamed, _addressed)
    for kind, stated, given in (one for find in found for one in find(answer, known)):
        yield _clue(known, kind, stated, given)


def _dates(answer: str, known: Known) -> Iterator[tuple[str, str, Told]]:
    stated = dates_in(answer)[:_MOST]
    for one in stated:
        if known.has_date(one):
            continue
        others = [date for date in known.dates if mistaken(one, date.date)]
        unsaid = [told for told in others if not any(agree(told.date, other) for other in stated)]
        if not unsaid:
            continue
        counts = (*counts_in(without_dates(answer, stated)), *known.counts)
        if not follows(one, known.all_dates, counts, within=_NEXT_DAY):
            heard = dates_in(_heard_by_author(known, one.literal))
            closest = min(
                unsaid,
                key=lambda told: (
                    not any(agree(told.date, date) for date in heard),
                    digits_apart(one, told.date),
                ),
            )
            yield "the date", one.literal, closest.told


def _codes(answer: str, known: Known) -> Iterator[tuple[str, str, Told]]:
    """Yield the ids that no text gives and that are a given id with two digits exchanged, or one changed."""
    codes = [value for value in values_in(answer) if value.kind is ValueKind.CODE][:_MOST]
    strange = [code for code in codes if not known.has(code.key)]
    small = answer.casefold()
    told = [one for one in known.told(ValueKind.CODE) if one.value.key not in small] if strange else []
    for one in strange:
        near = (given for given in told if is_exchanged(one.key, given.value.key))
        changed = (given for given in told if _is_other_digit(one, given, known))
        found = near if _goes_on(one.key, small, known) else chain(near, changed)
        yield from (("the number", one.literal, given) for given in islice(found, 1))


def _is_other_digit(one: Value, given: Told, known: Known) -> bool:
    """Tell whether an id is one of a record with a digit changed.

    It begins with a letter and has three digits or a hyphen: years and models have neighbours that all know.
    """
    ours, theirs = one.key, given.value.key
    is_id = ours[0].isalpha() and _ID.search(ours) is not None and _YEAR.search(ours) is None
    if not is_id or len(ours) != len(theirs) or theirs not in known.whole_values:
        return False
    place, *others = places_apart(ours, theirs)
    return not others and ours[place].isdigit() and theirs[place].isdigit()


def _goes_on(code: str, answer: str, known: Known) -> bool:
    """Tell whether the run or the answer, in lower case, has the id before this one in its series."""
    number = _LAST_NUMBER.search(code)
    if number is None or not int(number[0]):
        return False
    before = f"{code[: number.start()]}{int(number[0]) - 1:0{len(number[0])}}"
    return known.has(before) or stands_in(before, answer)


def _heard_by_author(known: Known, literal: str) -> str:
    """Return what the agent had read that first said these words."""
    return known.reading.steps[known.first_with(literal)].input[:HEAD]


def _paths(answer: str, known: Known) -> Iterator[tuple[str, str, Told]]:
    small = answer.casefold()
    strange = [
        value
        for value in values_in(answer)
        if value.kind is ValueKind.PATH and "/" in value.key and not known.has(value.key)
    ][:_MOST]
    unsaid = [told for told in known.told(ValueKind.PATH) if told.value.key not in small] if strange else []
    siblings = {_folder_and_type(told.value.key): told for told in unsaid}
    for one in strange:
        told = siblings.get(_folder_and_type(one.key))
        if told is not None and _says_the_same(answer, one.literal, known, told):
            yield "the path", one.literal, told


def _says_the_same(answer: str, literal: str, known: Known, told: Told) -> bool:
    """Tell whether a number stands beside a path that a text has beside the given one: a line."""
    given = known.asked if told.position == BEFORE else known.reading.steps[told.position].output
    beside = (
        numbers(around(text, one).replace(one, " "))
        for text, one in ((answer, literal), (given, told.value.literal))
    )
    return bool(frozenset.intersection(*map(frozenset, beside)))


def _folder_and_type(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder, name.rpartition(".")[2]


def _parts(answer: str, known: Known) -> Iterator[tuple[str, str, Told]]:
    """Yield ids that nobody gave and that have another part than a returned one: ``sw-c8/gi0/3``.

    The answer tells of a list: it names another record, and beside the id something else of its record. A
    part that is a number counts for nothing.
    """
    strange = {one: parts for one in dict.fromkeys(_JOINED.findall(answer)) if (parts := _parts_of(one))}
    strange = {one: parts for one, parts in islice(strange.items(), _MOST) if not known.has(one.casefold())}
    small = answer.casefold()
    for position, text in known.results() if strange else ():
        ids = [
            (row, given, parts)
            for row in rows_in(text)
            for given in map(str, row.values())
            if (parts := _parts_of(given))
        ]
        unsaid = [each for each in ids if each[1].casefold() not in small]
        for (row, given, parts), one in product(unsaid, strange) if len(unsaid) < len(ids) else ():
            if _differ_in_one(strange[one], parts) and _has_beside(answer, one, row, given):
                value = Value(kind=ValueKind.CODE, key=given.casefold(), literal=given, start=0, end=0)
                yield "the name", one, Told(value=value, position=position)


def _parts_of(name: str) -> list[str]:
    """Return the parts of an id, in lower case; none if it has fewer than three."""
    is_id = len(name) <= _LONGEST_ID and any(map(str.isalpha, name)) and not any(map(str.isspace, name))
    parts = _BETWEEN.split(name.casefold()) if is_id else []
    return parts if len(parts) >= _LEAST_PARTS and all(parts) else []


def _differ_in_one(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    if len(ours) != len(theirs):
        return False
    apart = [(one, other) for one, other in zip(ours, theirs, strict=True) if one != other]
    return len(apart) == 1 and not any(one.isdigit() for one in apart[0])


def _has_beside(answer: str, literal: str, row: Mapping[str, Scalar], given: str) -> bool:
    """Tell whether another value of a record stands in the sentence of an id."""
    words = words_in(sentence_at(answer, answer.find(literal)).replace(literal, " "))
    others = (
        str(value).casefold() for value in row.values() if value != given and not isinstance(value, bool)
    )
    return any(len(one) > 1 and one in words for one in others)


def _words_of_names(answer: str, known: Known) -> Iterator[tuple[str, str, Told]]:
    """Yield names of several words with a word that nobody gave, which ends as the given one does."""
    small, told = answer.casefold(), frozenset(_WORD.findall(answer))
    given = ((position, name) for position, text in known.results() for _, name in strings_of(text))
    for position, name in islice(given, _MOST_NAMES):
        words = name.split()
        is_name = 1 < len(words) <= _LONGEST_NAME and all(word[0].isupper() for word in words)
        if not is_name or told.isdisjoint(words) or name.casefold() in small:
            continue
        for word in words:
            parts = (re.escape(one) if one != word else r"(\w+)" for one in words)
            found = re.search(r"(?<!\w)" + r"\s".join(parts) + r"(?!\w)", answer)
            if found is not None and _is_other_end(known, found[1], word):
                value = Value(kind=ValueKind.NAME, key=name.casefold(), literal=name, start=0, end=0)
                yield "the name", found[0], Told(value=value, position=position)


def _is_other_end(known: Known, stated: str, given: str) -> bool:
    """Tell whether a word that nobody gave shares the end of a given one, and not its beginning."""
    one, other = stated.casefold(), given.casefold()
    shared = _shared_end(one, other)
    is_alike = shared >= _LEAST_SHARED and min(len(one), len(other)) - shared >= _LEAST_DIFFERENT
    return is_alike and stated[0].isupper() and not known.has(one)


def _names(answer: str, known: Known) -> Iterator[tuple[str, str, Told]]:
    small = answer.casefold()
    unsaid = [name for name in known.names if name.value.key not in small]
    runs = _runs_of_words(answer) if unsaid else []
    if not runs or _capitalises_nouns(runs):
        return
    words = {word for run in runs for word in run if word[0].isupper() and word.casefold() not in titles()}
    yield from _same_ending(answer, {word for word in words if not known.has(word.casefold())}, unsaid)


def _capitalises_nouns(runs: Sequence[Sequence[str]]) -> bool:
    """Tell whether a capital makes no name in these runs of words; the first word of each says nothing."""
    inner = [word for run in runs for word in run[1:]]
    return sum(word[0].isupper() for word in inner) > _CAPITALS * len(inner)


def _addressed(answer: str, known: Known) -> Iterator[tuple[str, str, Told]]:
    """Yield people whom an answer addresses by a family name that nobody gave, and not by a returned one.

    A returned name has two to four words, of which the first and the last begin with a capital.
    """
    has_title = not words_for("person_title").isdisjoint(words_in(answer))  # spares most answers the pattern
    titled = worded(_TITLED).finditer(answer) if has_title else ()
    strange = [one[1] for one in titled if one[1][0].isupper() and not _is_told(known, one[1])]
    people = list(islice(_people(known), _MOST)) if strange else []
    small = answer.casefold()
    if people and not any(word in small for told in people for word in told.value.key.split()):
        yield from (("the name", one, people[0]) for one in strange[:1])


def _people(known: Known) -> Iterator[Told]:
    """Yield what may be the full names of people in results."""
    for position, text in known.results():
        for _, name in strings_of(text):
            words = name.split()
            if len(words) in _FULL_NAME and all(map(_is_own_name, (words[0], words[-1]))):
                value = Value(kind=ValueKind.NAME, key=name.casefold(), literal=name, start=0, end=0)
                yield Told(value=value, position=position)


def _is_own_name(word: str) -> bool:
    return word[0].isupper() and not word.isupper() and all(one.isalpha() or one in "-'’" for one in word)  # noqa: RUF001 - an apostrophe


def _is_told(known: Known, name: str) -> bool:
    """Tell whether a text from outside has a word with the same beginning: the name in another case."""
    start = name.casefold()[:_LEAST_ALIKE]
    texts = (known.instructions, *(source.text for source in known.sources))
    return known.has(name.casefold()) or any(start in text.casefold() for text in texts)


def _renamed(answer: str, known: Known) -> Iterator[tuple[str, str, Told]]:
    """Yield the word of an answer that nobody gave in place of a returned name that it shares a part with.

    Whoever says the word has two other values of the record beside it, which no other record of its list has,
    and the answer names another record rightly. Several new names are proposals.
    """
    small, words = answer.casefold(), dict.fromkeys(_WORD.findall(answer))
    for position, text in known.results():
        for rows in tables_in(text):
            named = [(row, name) for row in rows[:_MOST] for name in _names_of(row)]
            unsaid = [(row, name) for row, name in named if name.casefold() not in small]
            found = [
                (name, one)
                for (row, name), one in product(unsaid, words if len(unsaid) < len(named) else ())
                if _is_half(one.casefold(), name.casefold())
                and not known.has(one.casefold())
                and _tells_of(known, one, row, name, [other for other in rows if other is not row])
            ]
            if len({name for name, _ in found}) == 1:
                (name, one), *_ = found
                value = Value(kind=ValueKind.NAME, key=name.casefold(), literal=name, start=0, end=0)
                yield "the name", one, Told(value=value, position=position)


def _names_of(row: Mapping[str, Scalar]) -> Iterator[str]:
    """Yield the values of a record that are names of one word."""
    texts = (value for value in row.values() if isinstance(value, str))
    return (one for one in texts if _WORD.fullmatch(one) and len(one) <= _LONGEST_ID)


def _values_besides(row: Mapping[str, Scalar], name: str) -> frozenset[str]:
    values = (str(value).removesuffix(".0") for value in row.values() if not isinstance(value, bool))
    return frozenset(map(str.casefold, values)) - {name.casefold()}


def _tells_of(
    known: Known, word: str, row: Mapping[str, Scalar], name: str, others: Sequence[Mapping[str, Scalar]]
) -> bool:
    """Tell whether who first says a word has two values of a record beside it that no other record has."""
    text, values = known.reading.outputs[known.first_with(word)], _values_besides(row, name)
    lines = (words_in(line) & values for line in _CLAUSE.split(text) if word in line)
    return any(
        len(beside) >= _LEAST_BESIDE and not any(beside <= _values_besides(one, name) for one in others)
        for beside in lines
    )


def _is_half(one: str, name: str) -> bool:
    """Tell whether two words have one part in common: ids begin or end alike, names in letters do both."""
    if one[:_LEAST_ALIKE] != name[:_LEAST_ALIKE] and one[-_LEAST_ALIKE:] != name[-_LEAST_ALIKE:]:
        return False
    pairs = enumerate(zip(one, name, strict=False))
    start = next((at for at, (a, b) in pairs if a != b), min(len(one), len(name)))
    end = _shared_end(one[start:], name[start:])
    is_alike = (max if _has_parts(one) and _has_parts(name) else min)(start, end) >= _LEAST_ALIKE
    return is_alike and min(len(one), len(name)) - start - end >= _LEAST_APART


def _has_parts(name: str) -> bool:
    return not name.isalpha()


def _runs_of_words(text: str) -> list[list[str]]:
    """Return the words of a text that only blanks part, together."""
    runs: list[list[str]] = []
    end = -1
    for found in islice(_WORD.finditer(text), _MOST_WORDS):
        if end < 0 or text[end : found.start()].strip(" "):
            runs.append([])
        runs[-1].append(found[0])
        end = found.end()
    return runs


def _same_ending(answer: str, strange: set[str], names: Sequence[Told]) -> Iterator[tuple[str, str, Told]]:
    """Yield words that nobody gave and that end as a given name does."""
    by_end: defaultdict[str, list[str]] = defaultdict(list)
    for word in sorted(strange):
        by_end[word.casefold()[-_LEAST_SHARED:]].append(word)
    for told in names:
        name = told.value.key
        for word in by_end.get(name[-_LEAST_SHARED:], ())[:_MOST]:
            shared = _shared_end(word.casefold(), name)
            rest = min(len(word), len(name)) - shared
            is_noun = _SUFFIX.search(name) is not None
            if rest >= _LEAST_DIFFERENT and not is_noun and not _begins_sentence(answer, word):
                yield "the name", word, told
                break


def _shared_end(one: str, other: str) -> int:
    count = 0
    while count < min(len(one), len(other)) and one[-1 - count] == other[-1 - count]:
        count += 1
    return count


def _begins_sentence(text: str, word: str) -> bool:
    """Tell whether a word begins a sentence or a line wherever it stands: a capital says nothing there."""
    places = [found.start() for found in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text)]
    before = [text[max(0, at - 8) : at] for at in places]
    return all(not one.strip() or one.rstrip(" \"'“„*_(")[-1:] in ".!?:;\n-•" for one in before)


def _clue(known: Known, what: str, stated: str, given: Told) -> Clue:
    step, literal = known.first_with(stated), given.value.literal
    quotes = [known.quote(given.position, literal)] if given.position != BEFORE else []
    reason = f"gave {what} {stated}, where {known.giver(given.position)} gave {literal}"
    sign = what.removeprefix("the ")
    return known.clue(step, ClueKind.CHANGED, reason, *quotes, known.quote(step, stated), sign=sign)
