"""How each step is put, as figures: length and form, kinds of words, words it shares with others. Pure.

Words are English, and counted, not understood; a figure is about this step or a neighbour.
"""

from __future__ import annotations

import math
import re
from typing import Final

from analyzer.figures import numbers
from analyzer.learning.columns import READ, Columns, shift
from analyzer.reading import Reading, final_answer

TEXT: Final = (
    "length",
    "length_apart",
    "length_before",
    "length_after",
    "figures",
    "questions",
    "lines",
    "code",
    "code_defines",
    "code_after",
)
WORDS: Final = (
    "error_words",
    "error_words_before",
    "error_words_after",
    "hedges",
    "hedges_after",
    "corrections",
    "corrections_after",
    "done_words",
    "done_words_after",
    "plan_words",
    "search_words",
    "gave_up_words",
    "gave_up_words_after",
)
OVERLAP: Final = (
    "like_task",
    "like_answer",
    "like_before",
    "like_after",
    "novelty",
)

_WORD: Final = re.compile(r"[^\W_]{3,}")
_ERROR: Final = re.compile(
    r"\b(?:error|exception|traceback|fail(?:ed|ure|s)?|invalid|denied|not found|timed out)\b", re.IGNORECASE
)
_HEDGE: Final = re.compile(
    r"\b(?:assum\w+|likely|probably|perhaps|might|may|seems?|appears?|guess\w*|estimate\w*|approximat\w+"
    r"|hypothetical|simulat\w+|placeholder|example)\b",
    re.IGNORECASE,
)
_CORRECT: Final = re.compile(
    r"\b(?:correct(?:ed|ion|ly)?|mistake|incorrect|wrong|instead|fix(?:ed)?|revis\w+|issue|however|but)\b",
    re.IGNORECASE,
)
_DONE: Final = re.compile(
    r"\b(?:confirm\w*|verif\w+|conclu\w+|therefore|final|successfully|accurate|terminate|solved|complete)\b",
    re.IGNORECASE,
)
_PLAN: Final = re.compile(
    r"\b(?:plan|step|first|next|then|will|let(?:'s| us)|should|need(?:s)? to|task)\b", re.IGNORECASE
)
_SEARCH: Final = re.compile(
    r"\b(?:search\w*|click\w*|scroll\w*|page|website|browse\w*|download\w*|url|results?)\b|https?://",
    re.IGNORECASE,
)
_GIVE_UP: Final = re.compile(
    r"\b(?:unable|cannot|can't|could(?:n't| not)|unavailable|no (?:results?|data|information))\b",
    re.IGNORECASE,
)
_DEFINES: Final = re.compile(r"^\s*(?:def|class|import|from)\s", re.MULTILINE)


def text_figures(reading: Reading) -> Columns:
    """Return ``TEXT``: how long each step is, beside its neighbours, and what it is made of."""
    lengths = [math.log1p(len(text)) for text in reading.texts]
    mean = sum(lengths) / len(lengths)
    outputs = [step.output[:READ] for step in reading.steps]
    return {
        "length": lengths,
        "length_apart": [length - mean for length in lengths],
        "length_before": shift(lengths, 1),
        "length_after": shift(lengths, -1),
        "figures": [math.log1p(len(numbers(text))) for text in outputs],
        "questions": [math.log1p(text.count("?")) for text in outputs],
        "lines": [math.log1p(text.count("\n")) for text in outputs],
        "code": [float("```" in text) for text in outputs],
        "code_defines": [math.log1p(len(_DEFINES.findall(text))) for text in outputs],
        "code_after": shift([float("```" in text) for text in outputs], -1),
    }


def word_figures(reading: Reading) -> Columns:
    """Return ``WORDS``: how many words of some kinds each step has, and its neighbours (logarithmic)."""
    errors = _count(_ERROR, reading)
    hedges = _count(_HEDGE, reading)
    corrections = _count(_CORRECT, reading)
    done = _count(_DONE, reading)
    gave_up = _count(_GIVE_UP, reading)
    return {
        "error_words": errors,
        "error_words_before": shift(errors, 1),
        "error_words_after": shift(errors, -1),
        "hedges": hedges,
        "hedges_after": shift(hedges, -1),
        "corrections": corrections,
        "corrections_after": shift(corrections, -1),
        "done_words": done,
        "done_words_after": shift(done, -1),
        "plan_words": _count(_PLAN, reading),
        "search_words": _count(_SEARCH, reading),
        "gave_up_words": gave_up,
        "gave_up_words_after": shift(gave_up, -1),
    }


def overlap_figures(reading: Reading) -> Columns:
    """Return ``OVERLAP``: the words that each step shares with the task, the answer and its neighbours."""
    bags = [_bag(text) for text in reading.texts]
    task, answer = _bag(reading.trajectory.task), _bag(final_answer(reading.trajectory))
    novelty, seen = [], set(task)
    for bag in bags:
        novelty.append(len(bag - seen) / max(1, len(bag)))
        seen |= bag
    return {
        "like_task": [_contained(task, bag) for bag in bags],
        "like_answer": [_contained(answer, bag) for bag in bags],
        "like_before": [_alike(bags[i - 1], bag) if i else 0.0 for i, bag in enumerate(bags)],
        "like_after": [_alike(bag, bags[i + 1]) if i + 1 < len(bags) else 0.0 for i, bag in enumerate(bags)],
        "novelty": novelty,
    }


def _count(pattern: re.Pattern[str], reading: Reading) -> list[float]:
    return [math.log1p(len(pattern.findall(text[:READ]))) for text in reading.texts]


def _bag(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(text[:READ]))


def _contained(part: frozenset[str], whole: frozenset[str]) -> float:
    return len(part & whole) / len(part) if part else 0.0


def _alike(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 0.0
