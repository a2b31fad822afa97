"""Times of day and short codes that an agent repeats wrongly: it read "shelf C4" and says "shelf D4". Pure.

What an agent reads is often another agent's words, which no result confirms. The sentence says what is right:
the same words stand before both values, nothing in the run has the new one, and nobody repeats the old one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.durations import durations
from analyzer.lineage.figures import Figure, figures, prose_of
from analyzer.lineage.known import Known
from analyzer.lineage.retold import messages_read
from analyzer.texts.normalize import excerpt
from analyzer.texts.numbers import measure_of
from analyzer.texts.run_view import HEAD
from semconv.model import Evidence, StepKind
from semconv.record import record

_VALUE: Final = re.compile(
    r"(?<![\w.,:/#+-])(?:([01]?\d|2[0-3])[:h]([0-5]\d)(?!\s?[ap]\.?m\b)|[A-Z]{1,2}-?\d{1,3})(?![\w:/%+-]|[.,]\d)"
)
_TOKEN: Final = re.compile(r"[^\W\d_]+|\d+")
_SENTENCE: Final = re.compile(r"(?:[^.!?\n;]|[.!?](?=\S)){1,400}")
_ZONE: Final = re.compile(r"\b(?:UTC|GMT|[A-Z]{1,3}[SD]?T)\b")
"""A time zone: the same moment has another time there."""
_REACH: Final = 6
"""Words on either side of a value that are compared."""
_WORD: Final = 4
"""Letters from which a word says what the value is about; right before the value, one fewer."""
_LEAST_SHARED: Final = 2
_SHARE: Final = 0.6
_TIME: Final = "time"
"""The dimension of a duration."""
_MOST: Final = 40
"""Values of a text that are compared."""


@record
class _Said:
    """A value with the words of its sentence: those before it, and those on both sides."""

    literal: str
    key: str
    start: int
    last: str
    before: frozenset[str]
    around: frozenset[str]
    numbers: frozenset[str]


def relayed_values(known: Known) -> Iterator[Clue]:
    """Yield the answer's times and codes that an agent took wrongly from a sentence that it had read."""
    answered = _keys(known.answer)
    if known.is_blind or not answered:
        return
    given, read = _given(known), set[str]()
    for position, step in enumerate(known.reading.steps if answered - given else ()):
        if step.kind in {StepKind.TOOL, StepKind.HUMAN}:
            continue
        messages = [message for message in messages_read(step) if message not in read]
        given |= _keys("\n".join(messages))
        read.update(messages)
        output = known.reading.outputs[position]
        own = _keys(output)
        if new := (own & answered) - given:
            heard = [said for message in messages_read(step) for said in _said(message)]
            for said in _said(prose_of(output)):
                right = _right(said, heard, own | answered) if said.key in new else None
                if right is not None and not _may_be_moved(said, step.input[:HEAD], output):
                    yield _clue(known, position, said, right)
        given |= own


def _given(known: Known) -> set[str]:
    """Return the values of all texts from outside and of all calls, whenever they come."""
    calls = (step.input[:HEAD] for step in known.reading.steps if step.kind is StepKind.TOOL)
    return _keys("\n".join([known.instructions, *(source.text for source in known.sources), *calls]))


def _keys(text: str) -> set[str]:
    return {_key(found) for found in _VALUE.finditer(text)}


def _key(found: re.Match[str]) -> str:
    return f"{int(found[1])}:{found[2]}" if found[1] else found[0].replace("-", "")


def _said(text: str) -> Iterator[_Said]:
    """Yield the values of a text, at most ``_MOST``, each with the words of its sentence."""
    return islice((said for found in _SENTENCE.finditer(text) for said in _in_sentence(text, found)), _MOST)


def _in_sentence(text: str, sentence: re.Match[str]) -> Iterator[_Said]:
    for found in _VALUE.finditer(text, sentence.start(), sentence.end()):
        before = _TOKEN.findall(text[sentence.start() : found.start()].casefold())[-_REACH:]
        after = _TOKEN.findall(text[found.end() : sentence.end()].casefold())[:_REACH]
        last = before[-1] if before else ""
        near = {last} if len(last) >= _WORD - 1 else set()
        yield _Said(
            literal=found[0],
            key=_key(found),
            start=found.start(),
            last=last,
            before=frozenset(near | _telling(before)),
            around=frozenset(near | _telling([*before, *after])),
            numbers=frozenset(word for word in (*before, *after) if word.isdigit() or len(word) == 1),
        )


def _telling(words: Sequence[str]) -> set[str]:
    return {word for word in words if len(word) >= _WORD and not word.isdigit()}


def _right(said: _Said, heard: Sequence[_Said], repeated: set[str]) -> _Said | None:
    """Return the only value that the agent had read in the same sentence, unless somebody repeats it."""
    same = {one.key: one for one in heard if _is_alike(said, one)}
    right = next(iter(same.values()), None)
    return right if len(same) == 1 and right is not None and right.key not in repeated else None


def _is_alike(said: _Said, one: _Said) -> bool:
    """Tell whether two values have the same form and stand behind the same words."""
    if (":" in said.key) != (":" in one.key) or said.last != one.last or said.key == one.key:
        return False
    if said.numbers and one.numbers and said.numbers.isdisjoint(one.numbers):
        return False
    if ":" not in said.key and not _is_slip(said.key, one.key):
        return False
    shared = len(said.before & one.around)
    return shared >= _LEAST_SHARED and shared >= _SHARE * len(said.before)


def _is_slip(one: str, other: str) -> bool:
    """Tell whether two codes differ in one place, or have the same characters in another order."""
    apart = sum(a != b for a, b in zip(one, other, strict=False))
    return len(one) == len(other) and (apart == 1 or sorted(one) == sorted(other))


def _may_be_moved(said: _Said, heard: str, output: str) -> bool:
    """Tell whether a time may be worked out: with a duration that was told, or for another time zone."""
    if ":" not in said.key:
        return False
    texts = (heard, output)
    return any(
        _ZONE.search(text) or durations(text) or any(map(_is_duration, figures(text))) for text in texts
    )


def _is_duration(figure: Figure) -> bool:
    return (measure_of(figure.unit) or ("",))[0] == _TIME


def _clue(known: Known, position: int, said: _Said, right: _Said) -> Clue:
    step, prose = known.reading.steps[position].index, prose_of(known.reading.outputs[position])
    quote = excerpt(prose, said.start, said.start + len(said.literal), before=50, after=50)
    what = "time" if ":" in said.key else "code"
    reason = f"gave the {what} {said.literal}, where it had read {right.literal}"
    return known.clue(position, ClueKind.CHANGED, reason, Evidence(step=step, quote=quote), sign=what)
