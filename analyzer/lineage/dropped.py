"""Entries that get lost between agents: one names seven deployments, the answer five of them. Pure.

The agent that made the list has chosen its entries, so whoever passes it on needs a reason to leave some out.
There is none if the answer counts its own entries, or all were asked for and more than names is said of them,
if nothing is said of those left out, and if no word, figure, day or time beside them tells them from the
others. Of bare names only people know which of them a word of the task means.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

from analyzer.inquiry.present import beginning
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.dates import clocks_in, dates_in
from analyzer.lineage.figures import figures, prose_of
from analyzer.lineage.known import Known, beginnings_in, counts_in, words_in
from analyzer.texts.run_view import HEAD, QUOTE, own_words
from analyzer.texts.vocabulary import worded
from semconv.model import Evidence, StepKind
from semconv.record import record

_LEAST: Final = 4
"""Entries of a list, of which two may be left out."""
_LEAST_NAMED: Final = _LEAST // 2
_MOST: Final = 60
_MOST_LISTS: Final = 12
"""Lists for each of which later texts are searched for a reason."""
_LONGEST: Final = 6
"""Words of the longest entry's name; a longer part of a sentence is none."""
_BRACKETS: Final = re.compile(r"[(（\[][^()（）\[\]]{0,120}[)）\]]")  # noqa: RUF001 - Chinese brackets
_COMMA: Final = re.compile(r"[,;](?=\s)|[、，；]")  # noqa: RUF001 - commas of Chinese and Japanese
_AND: Final = r"\s{and}\s"
"""What stands before the last entry."""
_MARK: Final = re.compile(r"^\s*(?:[-*•\u2013]|\(?\d{1,2}[.)])\s+")
_NAME_ENDS: Final = re.compile(r"[:(（=→|]|\s[–—-]\s|\s[−-]?\d[\d.,]*(?![\w-])")  # noqa: RUF001 - as above
_WORD: Final = re.compile(r"[^\W_]+(?:[-.'’/][^\W_]+)*")  # noqa: RUF001 - an apostrophe
_LEAST_LETTERS: Final = 3
_SENTENCE: Final = re.compile(r"(?<=[.!?。])\s|\n")
_BEGINNING: Final = 5
_Read: TypeAlias = "Callable[[str], Sequence[float]]"
"""Reads the values of a kind in what is said of an entry, in order."""


@record
class _Entry:
    """An entry of a list in an agent's words."""

    name: frozenset[str]
    """Its words, in lower case, that no other entry has."""
    shown: str
    said: str
    """What is said of it after its name."""


def dropped_entries(known: Known) -> Iterator[Clue]:
    """Yield the list of which the answer leaves out entries without a reason; at most one."""
    for position, told, left in islice(_parts_told(known), _MOST_LISTS):
        if not _has_reason(known, position, told, left):
            yield from _clue(known, position, told, left)
            return


def _parts_told(known: Known) -> Iterator[tuple[int, Sequence[_Entry], Sequence[_Entry]]]:
    """Yield the lists of agents of which the answer claims to name all and does not: those named, and not."""
    answer = known.answer
    whole = answer.strip()
    agents = (
        (place, step) for place, step in enumerate(known.reading.steps) if step.kind is not StepKind.TOOL
    )
    said = [(place, own_words(step)) for place, step in agents if step.output.strip() != whole]
    said = [(place, text) for place, text in said if text] if whole else []
    counted = (
        frozenset(count for count in counts_in(answer) if count >= _LEAST_NAMED) if said else frozenset()
    )
    wants_all = bool(said) and known.asks_for("every")
    words = words_in(answer) if counted or wants_all else frozenset()
    for position, text in said if words else ():
        for entries in _lists(prose_of(text[:HEAD])):
            told = [entry for entry in entries if entry.name & words]
            left = [entry for entry in entries if not entry.name & words]
            is_whole = len(entries) in counted or len(told) in counts_in(known.asked)
            says_all = len(told) in counted or (wants_all and all(entry.said for entry in entries))
            if len(left) <= len(told) < len(entries) and says_all and not is_whole:
                yield position, told, left


def _lists(text: str) -> Iterator[Sequence[_Entry]]:
    """Yield the lists of a text: lines with marks, and parts of a sentence between commas."""
    lines = [line for line in text.splitlines() if _MARK.match(line)]
    marked = [_MARK.sub("", line, count=1) for line in lines[:_MOST]]
    plain = (line for line in _SENTENCE.split(text) if not _MARK.match(line))
    for parts in (marked, *map(_parts, plain)):
        entries = _entries(parts) if _LEAST <= len(parts) <= _MOST else []
        if entries:
            yield entries


def _parts(sentence: str) -> list[str]:
    """Return the parts of a sentence between commas, without the words that lead to the first."""
    outside = _BRACKETS.sub(lambda found: "_" * len(found[0]), sentence)
    marks = [*_COMMA.finditer(outside)]
    if not _LEAST - 2 <= len(marks) < _MOST:
        return []
    starts, ends = [0, *(mark.end() for mark in marks)], [*(mark.start() for mark in marks), len(sentence)]
    parts = [sentence[start:end] for start, end in zip(starts, ends, strict=True)]
    last = worded(_AND).split(parts[-1], maxsplit=1)
    parts = [*parts[:-1], *(one for one in last if one.strip())]
    _, colon, first = parts[0].rpartition(": ")
    is_name = bool(colon) and len(_WORD.findall(_BRACKETS.sub("", first))) <= _LONGEST
    return [first if is_name else _last_name(parts[0]), *parts[1:]]


def _last_name(words: str) -> str:
    """Return the last word of the beginning of a sentence, with what is in brackets after it."""
    cut = _BRACKETS.sub("", words).split()
    return cut[-1] if cut else ""


def _entries(parts: Sequence[str]) -> list[_Entry]:
    """Return the entries of a list; none if one has no name of its own, or they may be no things.

    Names begin with a capital or have digits; other words name things if something is said of each.
    """
    heads = [_NAME_ENDS.split(part.strip(" *_`"), maxsplit=1)[0] for part in parts]
    named = [frozenset(filter(_can_name, map(str.casefold, _WORD.findall(head)))) for head in heads]
    often = Counter(word for words in named for word in words)
    own = [frozenset(word for word in words if often[word] == 1) for words in named]
    if not all(own) or any(len(_WORD.findall(head)) > _LONGEST for head in heads):
        return []
    if len({_looks(head) for head in heads}) > 1 or any(map(figures, heads)):
        return []
    entries = [
        _Entry(name=name, shown=head.strip(" *_`"), said=part[len(head) :].strip(" .*_`"))
        for name, head, part in zip(own, heads, (part.strip(" *_`") for part in parts), strict=True)
    ]
    are_things = _looks(heads[0]) != (False, False) or all(one.said or "-" in one.shown for one in entries)
    return entries if are_things else []


def _looks(head: str) -> tuple[bool, bool]:
    """Return whether a name begins with a capital, and has a digit: names of one list are alike."""
    return head[:1].isupper(), any(map(str.isdigit, head))


def _can_name(word: str) -> bool:
    return len(word) >= _LEAST_LETTERS and not word.isdigit()


def _has_reason(known: Known, position: int, told: Sequence[_Entry], left: Sequence[_Entry]) -> bool:
    """Tell whether a figure tells the entries apart, or another text speaks of one that is left out."""
    if _are_apart(told, left):
        return True
    lost = frozenset[str]().union(*(entry.name for entry in left))
    small = frozenset(word[:_BEGINNING] for word in lost)
    if small & (beginnings_in(known.answer, _LEAST_LETTERS) | beginnings_in(known.asked, _LEAST_LETTERS)):
        return True
    texts = (
        f"{step.output[:HEAD]} {step.input[:HEAD]}" if step.kind is StepKind.TOOL else own_words(step)[:HEAD]
        for step in known.reading.steps[position + 1 :]
    )
    return any(_speaks_of_some(words_in(text), told, left) for text in texts)


def _speaks_of_some(words: frozenset[str], told: Sequence[_Entry], left: Sequence[_Entry]) -> bool:
    """Tell whether a text names one that is left out, and is no copy of the list."""
    lost = sum(bool(entry.name & words) for entry in left)
    return lost > 0 and not (lost == len(left) and all(entry.name & words for entry in told))


def _are_apart(told: Sequence[_Entry], left: Sequence[_Entry]) -> bool:
    """Tell whether what is said of the entries tells those left out from the others."""
    pairs = ((told, left), (left, told))
    if _are_marked_apart(told, left) or any(_share_words(*pair) for pair in pairs):
        return True
    return any(_are_beyond(told, left, read) for read in _READS)


def _share_words(entries: Sequence[_Entry], rest: Sequence[_Entry]) -> bool:
    """Tell whether some entries have words in common that no other entry has all of."""
    shared = frozenset.intersection(*(words_in(entry.said) for entry in entries))
    words = frozenset(word for word in shared if word.isalpha())
    return bool(words) and not any(words <= words_in(entry.said) for entry in rest)


def _are_marked_apart(told: Sequence[_Entry], left: Sequence[_Entry]) -> bool:
    """Tell whether a word beside each name is its mark, and those named have other marks: grades A to D."""
    ours, theirs = ([entry.said.strip("()") for entry in entries] for entries in (told, left))
    marks = {*ours, *theirs}
    is_mark = len(marks) < len(told) + len(left) and all(map(str.isalpha, marks))
    return is_mark and set(ours).isdisjoint(theirs)


def _are_beyond(told: Sequence[_Entry], left: Sequence[_Entry], read: _Read) -> bool:
    """Tell whether the values of those left out lie outside those of the others, or are more or fewer."""
    ours, theirs = ([read(entry.said) for entry in entries] for entries in (told, left))
    counts, others = ([len(one) for one in each] for each in (ours, theirs))
    if max(others) < min(counts) or min(others) > max(counts):
        return True
    columns = zip(zip(*ours, strict=False), zip(*theirs, strict=False), strict=False)
    return any(not any(min(kept) <= one <= max(kept) for one in out) for kept, out in columns)


def _figures(said: str) -> Sequence[float]:
    return [figure.value for figure in figures(said)]


def _days(said: str) -> Sequence[float]:
    return [one.readings[0].order for one in dates_in(said)]


def _clocks(said: str) -> Sequence[float]:
    return [one.minutes for one in clocks_in(said)]


_READS: Final[tuple[_Read, ...]] = (_figures, _days, _clocks)


def _clue(known: Known, source: int, told: Sequence[_Entry], left: Sequence[_Entry]) -> Iterator[Clue]:
    def names_part(text: str) -> bool:
        words = words_in(text)
        return all(entry.name & words for entry in told) and not any(entry.name & words for entry in left)

    position = known.first_said(names_part, after=source)
    step, giver = known.reading.steps[position], known.reading.steps[source]
    if step.agent != giver.agent:
        whole = f"the {len(told) + len(left)} entries that {giver.agent} listed at step {giver.index}"
        reason = f"named {len(told)} of {whole}, without {left[0].shown}"
        quote = Evidence(step=step.index, quote=beginning(step.output, QUOTE))
        yield known.clue(position, ClueKind.CUT_SHORT, reason, quote)
