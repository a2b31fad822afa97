"""Texts of runs and verdicts as people read them: on one line, safe on any terminal, cut at a word. Pure.

Text from traces is hostile: ``plain`` removes control characters, terminal escapes and bidirectional tricks.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from analyzer.inquiry.verdict import NOTHING_SAYS_SO
from semconv.model import StepSet

_HEAD: Final = 400
_BAD_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cn", "Cs", "Co", "Zl", "Zp"})


def plain(text: str, limit: int = _HEAD) -> str:
    """Return the text as one line of at most ``limit`` characters, safe on any terminal."""
    cut = text[: 4 * limit]
    folded = " ".join(cut.split())
    if not folded.isprintable():  # printable text has none of these categories; finding that is faster
        safe = "".join(" " if unicodedata.category(char) in _BAD_CATEGORIES else char for char in folded)
        folded = " ".join(safe.split())
    return folded if len(folded) <= limit and len(text) <= 4 * limit else beginning(folded, limit - 1) + "…"


def beginning(text: str, length: int) -> str:
    """Return at most ``length`` characters, cut at a word boundary if that keeps most of them."""
    if len(text) <= length:
        return text
    cut = text.rfind(" ", 0, length + 1)
    return text[: cut if cut > length // 2 else length].rstrip()


def is_unsaid(reason: str) -> bool:
    """Return whether a run counts as passed only because nothing says that it failed."""
    return reason == NOTHING_SAYS_SO


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, plural unless the number is 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def set_in_prose(step_set: StepSet) -> str:
    """Return what a set of steps promises: ``the decisive step is 4, 5 or 6 in 90 % of such runs (…)``."""
    *first, last = map(str, step_set.steps)
    steps = f"{', '.join(first)} or {last}" if first else last
    low, high = step_set.interval
    return (
        f"the decisive step is {steps} in {step_set.coverage:.0%} of such runs (observed"
        f" {step_set.observed:.0%} of {step_set.n} labelled runs, 95% interval {low:.0%} to {high:.0%})"
    )
