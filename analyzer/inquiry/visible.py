"""Removal of invisible characters from a run's text. Pure.

Unicode tag characters, zero-width and direction marks and variation selectors can carry whole sentences that
a model reads but no page or terminal shows. A verdict on such a run could not be checked by reading it. They
are removed before any analysis; quotes are looked up in the same text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from semconv.model import Step, Trajectory, at_marks, marks_of
from semconv.record import replace

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
