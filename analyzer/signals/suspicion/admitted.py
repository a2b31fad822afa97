"""How an answer shows that a part of the task failed, without a phrase that says so.

A cell of a table is empty, a value is ``null`` or a dash, a line has a cross, a list names what a tool
refused; or the part stands in a clause of its own, apart from the others, and that clause claims nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final

from analyzer.lineage.deeds import acts_in
from analyzer.lineage.entries import fields_in
from analyzer.signals.suspicion.ending import Ending, Missed, tokens_of
from analyzer.texts.numbers import numbers
from analyzer.texts.run_view import HEAD
from analyzer.texts.vocabulary import worded
from analyzer.texts.wordings import Kind, kinds_said
from semconv.model import Step

_MOST_VALUES: Final = 24
_LONGEST_VALUE: Final = 60
"""Characters of an argument that names something; longer ones are texts."""
_WORD: Final = re.compile(r"\w+(?:[-/_]\w+)*")
_LONG: Final = 4
"""Letters of a word that is not a mere function word."""
_NO_VALUE: Final = re.compile(
    r"[-\s.?/\u2010-\u2015\u2026\u2212\uff1f]*|n\W{0,3}(?:[av]\W*)?|null|none|nan|false"
)
"""What stands in a cell of a table, or after a name, in place of a value."""
_CROSS: Final = re.compile("[\u2610\u2612\u2717\u2718\u274c\u26a0]")
_CELL: Final = re.compile(r"[|\t]|</?td>")
_CLAUSE: Final = re.compile(r"[\n;\u3002\uff01\uff1b\uff0c]|[.!?](?=\s|$)")
_SYLLABLES: Final = re.compile(r"[\u3040-\u309f]")
"""Of Japanese endings and particles, which tell nothing."""
_EXCEPT: Final = r"\b{except}\b|{dense_except}"


def leaves_open(line: str, words: Sequence[str], lines: Sequence[str]) -> bool:
    """Tell whether a line of an answer has no value for what words name, or makes an exception of it."""
    if _CROSS.search(line) or worded(_EXCEPT).search(line):
        return True
    if _CELL.search(line):
        cells = _CELL.split(line.strip(" |"))
    elif line.startswith(("{", "[", '"')):
        cells = [value for word in words for value in _after(word, line)]
    elif " " not in line and (mark := next((one for one in ",;" if one in line), "")):
        rows = sum(" " not in one and one.count(mark) == line.count(mark) for one in lines)
        cells = line.split(mark) if rows > 1 else []  # else a greeting
    else:
        value = re.split("[:=]", line)[-1]
        cells = [value] if value.strip() and value != line else []
    return any(_NO_VALUE.fullmatch(cell.strip()) for cell in cells)


def _after(word: str, line: str) -> list[str]:
    """Return the values of a JSON object's key, or of the fields beside a word, that are plain."""
    name, plain = rf'"{re.escape(word)}[^"]*"', r':\s*("[^"]*"|[^\s",{}\[\]]+)'
    objects = [each for each in re.findall(r"{[^{}]*}", line) if re.search(rf":\s*{name}", each)]
    found = [*re.findall(name + plain, line), *(one for each in objects for one in re.findall(plain, each))]
    return [one.strip('"') for one in found]


def names_refused(answer: str, task: str, missed: Missed, step: Step) -> bool:
    """Tell whether an answer names an entry of a list in a failure's text that the run was not given."""
    known, said = f"{task}\n{step.input[:HEAD]}".casefold(), answer.casefold()
    lists = [each for each in fields_in(missed.text[:HEAD]).values() if isinstance(each, list)]
    entries = [str(each).casefold() for each in islice(_leaves(lists), _MOST_VALUES)]
    return any(entry.strip() and is_in(entry, said) and not is_in(entry, known) for entry in entries)


def is_set_apart(ending: Ending, missed: Missed, words: Sequence[str], others: Sequence[str]) -> bool:
    """Tell whether an answer has other words for a part than for the others, and claims nothing of it."""
    clauses = [one.casefold() for one in _CLAUSE.split(ending.answer)]
    own = [clause for clause in clauses if any(is_in(word, clause) for word in words)]
    rest = [clause for clause in clauses if any(is_in(word, clause) for word in others)]
    if not own or not rest or any(one in rest for one in own):
        return False
    text = "\n".join(own)
    claims = Kind.CLAIM_DONE in kinds_said(text, ending.languages) or acts_in(text)
    known = numbers(f"{ending.task}\n{missed.text[:HEAD]}")
    return not claims and numbers(text) <= known and not _are_alike(own, rest, (*words, *others))


def _are_alike(own: Iterable[str], rest: Iterable[str], names: Iterable[str]) -> bool:
    """Tell whether clauses say the same of their names: they have a telling word or all marks in common."""
    any_name = re.compile("|".join(map(re.escape, names)))
    bare, others = ({any_name.sub("", one).strip() for one in each} for each in (own, rest))
    shared = tokens_of("\n".join(bare)) & tokens_of("\n".join(others))
    return not bare.isdisjoint(others) or any(not _SYLLABLES.search(word) for word in shared)


@lru_cache(maxsize=64)
def words_of(arguments: str) -> tuple[str, ...]:
    """Return the words of short arguments that may name something, in lower case."""
    found: dict[str, None] = {}
    for value in list(_leaves(fields_in(arguments[:HEAD])))[:_MOST_VALUES]:
        if len(value) <= _LONGEST_VALUE:
            found |= dict.fromkeys(word.casefold() for word in _WORD.findall(value) if _tells(word, value))
    return tuple(found)


def _tells(word: str, value: str) -> bool:
    """Tell whether a word of a value names something: a long word, an id, or the whole value."""
    is_dense = not word.isascii() and len(word) > 1
    return word == value.strip() or len(word) >= _LONG or is_dense or not word.isalpha()


def _leaves(value: object) -> Iterator[str]:
    """Yield the texts and numbers in the arguments of a call, without recursion."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
        elif isinstance(one, str | int | float) and not isinstance(one, bool):
            yield str(one)


def is_in(word: str, text: str) -> bool:
    """Tell whether a text has a word, with any ending; words of dense scripts are found within others."""
    if not word.isascii():
        return (word if len(word) <= _LONG else word[: max(_LONG, len(word) - 2)]) in text
    end = "" if word.isalpha() else r"(?!\w)"
    return word in text and re.search(rf"(?<!\w){re.escape(word)}{end}", text) is not None
