"""Texts of runs and verdicts as people read them: visible, on one line, safe on any terminal. Pure.

Text from traces is hostile: ``plain`` removes control characters, terminal escapes and bidirectional tricks.

Unicode tag characters, zero-width and direction marks and variation selectors can carry whole sentences that
a model reads but no page or terminal shows. A verdict on such a run could not be checked by reading it. So
``visible_run`` removes them before any analysis; quotes are looked up in the same text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from analyzer.inquiry.verdict import NOTHING_SAYS_SO
from semconv.model import Step, StepSet, Trajectory, at_marks, marks_of
from semconv.record import replace

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


# --- invisible characters ---

_CHARACTERS: Final = (
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # controls except tab and line ends; they begin terminal escapes
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff]"  # tags, and the variation selectors beyond those of emoji
)
_HIDDEN: Final = re.compile(_CHARACTERS)
_ASCII_HIDDEN: Final = bytes(code for code in range(128) if _HIDDEN.match(chr(code)))
_INVISIBLE: Final = re.compile(
    "\x1b\\[[0-9;:?<=>]{0,40}[ -/]{0,4}[@-~]"  # a terminal's whole sequences for colours and movements
    "|\x1b\\][^\x07\x1b]{0,400}(?:\x07|\x1b\\\\)"  # and for titles and links
    f"|{_CHARACTERS}"
)


def visible(text: str) -> str:
    """Return ``text`` without invisible characters; joiners, which scripts and emoji need, stay."""
    return _INVISIBLE.sub("", text)


def visible_run(trajectory: Trajectory) -> Trajectory:
    """Return the run without invisible characters; the same object if it has none. Names are kept."""
    if not _hides_something("".join(_texts_of(trajectory))):
        return trajectory
    return replace(
        trajectory,
        steps=tuple(map(_visible_step, trajectory.steps)),
        task=visible(trajectory.task),
        output=visible(trajectory.output),
        reference=None if trajectory.reference is None else visible(trajectory.reference),
        root_error=visible(trajectory.root_error),
    )


def _texts_of(trajectory: Trajectory) -> frozenset[str]:
    """Return all texts of a run, each once: instructions are repeated at every step of an agent."""
    texts = [trajectory.task, trajectory.output, trajectory.reference or "", trajectory.root_error]
    for step in trajectory.steps:
        texts += _texts_of_step(step)
    return frozenset(texts)


def _texts_of_step(step: Step) -> tuple[str, ...]:
    arguments = [call.arguments for call in step.calls]
    return (step.input, step.output, step.error, step.instructions, step.tools, *arguments)


def _hides_something(text: str) -> bool:
    if text.isascii():  # six times faster than the pattern
        return len(text.encode().translate(None, _ASCII_HIDDEN)) < len(text)
    return _HIDDEN.search(text) is not None


def _visible_step(step: Step) -> Step:
    if not _hides_something("".join(_texts_of_step(step))):
        return step
    given, heard = _visible_marked(step.input, marks_of(step.heard))
    wrote, said = _visible_marked(step.output, marks_of(step.said))
    return replace(
        step,
        input=given,
        heard=at_marks(step.heard, heard),
        output=wrote,
        said=at_marks(step.said, said),
        calls=tuple([replace(call, arguments=visible(call.arguments)) for call in step.calls]),
        error=visible(step.error),
        instructions=visible(step.instructions),
        tools=visible(step.tools),
    )


def _visible_marked(text: str, marks: Sequence[int]) -> tuple[str, Sequence[int]]:
    """Return the visible text, and where ``marks``, ascending places in ``text``, are in it."""
    parts = [visible(text[start:end]) for start, end in pairwise((0, *marks, len(text)))]
    return "".join(parts), list(accumulate(map(len, parts)))[:-1]
