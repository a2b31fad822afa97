"""Where a run's words come from and what becomes of them, as figures a step.

A failed run's answer is wrong, so the step that coins its words, and the steps
before that, are where it can have gone wrong; a step whose new words nobody says
again changed nothing. Words are compared, not meanings: a figure is a word too.

Cost: linear in the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from analyzer.agent_names import normalise
from analyzer.reading import Reading, final_answer

_WORD: Final = re.compile(r"[^\W\d_]{3,}|\d+")
_READ: Final = 6_000
_ANSWER: Final = 400
"""Characters of the answer whose words count: beyond them it is a report, not an answer."""
_STANDS: Final = 0.8
"""Share of the answer's words with which a step says the answer."""

ANSWER: Final = ("answer_coined", "answer_known", "answer_apart", "answer_first")
LASTING: Final = ("lasting", "lasting_count", "like_own_before")


def answer_figures(reading: Reading) -> Mapping[str, Sequence[float]]:
    """Return ``ANSWER``: how each step stands to the words of the run's answer that the task did not say.

    The share it is first to say, the share said before it, how far it is from the first
    step that says (nearly) all (logarithmic, negative after it), and whether it is that step.
    """
    bags = [words(text) for text in reading.texts]
    answer = words(final_answer(reading.trajectory)[:_ANSWER]) - words(reading.trajectory.task)
    whole = max(1, len(answer))
    first = next((i for i, bag in enumerate(bags) if answer and _says(bag, answer)), len(bags))
    coined: list[float] = []
    known: list[float] = []
    said: set[str] = set()
    for bag in bags:
        known.append(len(said) / whole)
        coined.append(len((answer & bag) - said) / whole)
        said |= answer & bag
    return {
        "answer_coined": coined,
        "answer_known": known,
        "answer_apart": [
            math.copysign(math.log1p(abs(first - i)), first - i) if answer else 0.0 for i in range(len(bags))
        ],
        "answer_first": [float(i == first) for i in range(len(bags))],
    }


def lasting_figures(reading: Reading) -> Mapping[str, Sequence[float]]:
    """Return ``LASTING``: how much of a step is new and said again later, and how much its last turn said.

    The share of its new words that a later step repeats, their number (logarithmic), and the share of
    all its words that its agent's turn before had. New is what neither task nor earlier step said.
    """
    bags = [words(text) for text in reading.texts]
    new: list[frozenset[str]] = []
    said = set(words(reading.trajectory.task))
    for bag in bags:
        new.append(bag - said)
        said |= bag
    again = [0] * len(bags)
    to_come: set[str] = set()
    for position in range(len(bags) - 1, -1, -1):
        again[position] = len(new[position] & to_come)
        to_come |= bags[position]
    return {
        "lasting": [count / max(1, len(fresh)) for count, fresh in zip(again, new, strict=True)],
        "lasting_count": [math.log1p(count) for count in again],
        "like_own_before": _like_own_before(reading, bags),
    }


def words(text: str) -> frozenset[str]:
    """Return the different words and numbers of the beginning of a text."""
    return frozenset(word.casefold() for word in _WORD.findall(text[:_READ]))


def _says(bag: frozenset[str], answer: frozenset[str]) -> bool:
    return len(bag & answer) >= _STANDS * len(answer)


def _like_own_before(reading: Reading, bags: Sequence[frozenset[str]]) -> list[float]:
    last_of: dict[str, frozenset[str]] = {}
    shares: list[float] = []
    for step, bag in zip(reading.steps, bags, strict=True):
        name = normalise(step.agent)
        shares.append(len(bag & last_of.get(name, frozenset())) / max(1, len(bag)))
        last_of[name] = bag
    return shares
