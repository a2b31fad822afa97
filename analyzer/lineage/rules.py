"""Sentences of the task and the instructions as rules: their quantity, and how they bar a deed. Pure.

"Up to", "more than" and their like stand beside the quantity, before it or after it; "never" and "only" bar a
deed, and two words that deny may cancel each other. What the deed is, and of what record, others tell.
"""

from __future__ import annotations

import re
import unicodedata
from enum import StrEnum
from typing import Final

from analyzer.lineage.barred import EXCEPT
from analyzer.lineage.deeds import SENTENCE, spaced
from analyzer.lineage.figures import Figure, figures
from analyzer.lineage.known import Known, beginnings_in
from analyzer.lineage.vocabulary import phrases
from analyzer.signals.wordings import languages_in
from semconv.record import record

LEAST: Final = 3
"""Letters of the shortest word that counts."""
_HEARD: Final = 2_000
_GAP: Final = 14
"""Characters between a word of a limit and its quantity: a currency, an ending."""
_PHRASE: Final = 40
_MOST_SENTENCES: Final = 120
_SHORT: Final = 4
_UNDECIDED: Final = ("until", "otherwise", "forget")
_UMLAUT: Final = re.compile(r"([aou])e(?=\w{3})")
"""An umlaut as typed in names: ``loeschen``."""
_PARTICIPLE: Final = re.compile(r"\b(ab|an|auf|aus|ein|frei|nach|um|vor|zu|zuruck|)ge(\w{4,16})\b")
"""A German participle, beside which its verb counts: ``gelöscht``, ``ausgezahlt``."""


class Bar(StrEnum):
    """How a clause bars a deed."""

    NEVER = "never"
    """With what it names."""
    ONLY = "only"
    """With all but what it names."""


@record
class Rule:
    """A sentence of the task or the instructions."""

    words: str
    before: str
    following: str
    """The sentences on either side of it."""
    languages: tuple[str, ...]

    def has(self, *kinds: str) -> bool:
        """Tell whether it has a word of one of these kinds."""
        return any(phrases(kind, self.languages).search(self.words) for kind in kinds)

    @property
    def is_open(self) -> bool:
        """Whether it has an exception, or puts off what it speaks of."""
        return self.has(*_UNDECIDED) or EXCEPT.search(self.words) is not None


@record
class Limit:
    """The quantity of a rule."""

    figure: Figure
    is_most: bool


def rules_of(known: Known) -> tuple[Rule, ...]:
    """Return the sentences of the task, and those of the instructions."""
    found: list[Rule] = []
    for text in (known.asked, known.instructions):
        languages = languages_in(text[:_HEARD])
        sentences = dict.fromkeys(one[0].strip() for one in SENTENCE.finditer(text))
        said = ["", *[*sentences][:_MOST_SENTENCES], ""]
        found += [
            Rule(words=words, before=before, following=following, languages=languages)
            for before, words, following in zip(said, said[1:], said[2:], strict=False)
        ]
    return tuple(found)


def limit_of(rule: Rule) -> Limit | None:
    """Return the only quantity of a sentence that has a word of a limit beside it."""
    found = []
    for figure in figures(rule.words) if any(map(str.isdigit, rule.words)) else ():
        is_most = _is_most(rule, figure)
        if is_most is not None and not figure.is_label:
            found.append(Limit(figure=figure, is_most=is_most))
    return found[0] if len(found) == 1 else None


def _is_most(rule: Rule, figure: Figure) -> bool | None:
    """Tell whether a figure is the most or the least that its sentence speaks of; ``None`` if neither."""
    before = rule.words[max(0, figure.start - _PHRASE) : figure.start]
    after = rule.words[figure.end : figure.end + _GAP + _PHRASE]
    best: tuple[int, bool] | None = None
    for is_most, kinds in ((True, ("under", "at_most")), (False, ("exceeds", "at_least"))):
        for kind in kinds:
            pattern = phrases(kind, rule.languages)
            near = [one for one in pattern.finditer(before) if len(before) - one.end() <= _GAP][-1:]
            near += [one for one in pattern.finditer(after) if not near and one.start() <= _GAP][:1]
            for one in near:
                if best is None or len(one[0]) > best[0]:
                    best = len(one[0]), is_most != _is_denied(rule, one)
    return None if best is None else best[1]


def _is_denied(rule: Rule, word: re.Match[str]) -> bool:
    """Tell whether a word that denies stands right before the word of a limit: ``must not exceed``."""
    before = word.string[: word.start()].rstrip()
    return any(one.end() == len(before) for one in phrases("no", rule.languages).finditer(before))


def bar_of(rule: Rule) -> Bar | None:
    """Return how a clause bars a deed; ``None`` if it does not, or in two ways."""
    denied, is_only = len(phrases("no", rule.languages).findall(rule.words)), rule.has("only")
    if denied and not is_only:
        return Bar.NEVER if denied == 1 else None  # two of them may cancel each other
    return Bar.ONLY if is_only and not denied else None


def plain_spans(rule: Rule) -> frozenset[int]:
    """Return the characters of words that only limit, permit or deny."""
    kinds = ("no", "only", "may", "exceeds", "under", "at_most", "at_least")
    found = (one for kind in kinds for one in phrases(kind, rule.languages).finditer(rule.words))
    return frozenset(place for one in found for place in range(*one.span()))


def share(some: frozenset[str], others: frozenset[str]) -> bool:
    """Tell whether two of the beginnings are of one word; a short one may have got an ending."""
    if some & others:
        return True
    short = [one for one in some | others if len(one) == _SHORT]
    return any(one.startswith(each) for each in short for one in (others if each in some else some))


def plain_beginnings(text: str) -> frozenset[str]:
    """Return the beginnings of a text's words without accents: names of tools and keys seldom have them."""
    small = _UMLAUT.sub(r"\1", spaced(text).casefold().replace("\u0131", "i"))
    plain = unicodedata.normalize("NFKD", small)
    letters = "".join(one for one in plain if not unicodedata.combining(one))
    return beginnings_in(_PARTICIPLE.sub(r"\g<0> \1\2", letters), LEAST)
