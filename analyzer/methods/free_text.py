"""Reading what models write when they are asked for a name and a number in prose.

Whatever a careful person reads without doubt is read the same way: bold labels,
numbered labels, JSON, ``Step Number: 1 (the 2nd of 3 steps)``. Where a person
would ask back (``4 or 12``), the answer is that it cannot be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analyzer.agent_names import normalise, strip_suffix
from semconv.json_text import with_whole_pairs

LONGEST: Final = 100_000
"""Characters of a reply that are read."""
_MARKUP: Final = re.compile(r"[*`#>|]{1,3}|(?<![^\W_])_{1,2}(?=[^\W_])|(?<=[^\W_])_{1,2}(?![^\W_])")
# Blanks, not white space, in all of these: a reply of empty lines must not be walked over and over.
_LABEL: Final = r"^[ \t\-•]{0,20}(?:\(?\d{1,3}[.)][ \t]{0,9})?"
_IS: Final = r"[ \t]{0,9}(?:is[ \t]{0,9})?[:\uff1a=](.*)$"
_AGENT: Final = re.compile(
    rf"{_LABEL}(?:the )?(?:mistake(?:n)?[ _]|responsible )?agent(?:['\u2019]s)?(?:[ _]?name)?{_IS}",
    re.IGNORECASE | re.MULTILINE,
)
_STEP: Final = re.compile(
    rf"{_LABEL}(?:the )?(?:mistake[ _]|decisive |error )?step(?:[ _]?(?:number|index|no\.?|#))?{_IS}",
    re.IGNORECASE | re.MULTILINE,
)
_REASON: Final = re.compile(
    _LABEL + r"(?:reason(?:[ _]for(?:[ _]the)?[ _](?:mistake|error))?|explanation)[ \t]{0,9}[:\uff1a=](.*)\Z",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_BRACKETS: Final = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_INDEX: Final = re.compile(r"(?:\bindex(?:ed)?|0-based|zero-based)\D{0,20}?(\d{1,6})\b", re.IGNORECASE)
_INTEGER: Final = re.compile(r"(?<![\w.-])(\d{1,6})(?:st|nd|rd|th)?(?![\w]|\.\d)")
_NEGATIVE_OR_RANGE: Final = re.compile(r"(?<![\w.])-\s?\d|\d\s?[-\u2013\u2014]\s?\d")
_ENOUGH_OBJECTS: Final = 50
_THOUGHT: Final = re.compile(r"<(think|thinking|thought)>.*?</\1>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a reply says; ``None`` for what cannot be read from it."""

    agent: str | None
    step: int | None
    reason: str = ""
    says_none: bool = False
    """The model says that nobody made a mistake."""


def spoken(text: str) -> str:
    """Return a reply without what a reasoning model thought aloud before it."""
    return _THOUGHT.sub("", text) if "</" in text else text


def read_answer(text: str) -> Answer:
    """Read the agent, the step and the reason out of a free-text reply."""
    text = spoken(text)[:LONGEST]
    for found in objects(text):
        answer = _from_object(found)
        if answer is not None:
            return answer
    plain = _MARKUP.sub("", text)
    agent = _one_agent([strip_suffix(value) for value in _values(_AGENT, plain)])
    steps = [read_step(value) for value in _values(_STEP, plain)]
    reason = _REASON.search(plain)
    return Answer(
        agent=None if _is_none(agent) else agent,
        step=steps[0] if steps and len(set(steps)) == 1 else None,
        reason=reason.group(1).strip() if reason else "",
        says_none=_is_none(agent),
    )


def read_reason(text: str) -> str:
    """Return the reason that a reply gives under that label; empty if there is none."""
    found = _REASON.search(_MARKUP.sub("", spoken(text)[:LONGEST]))
    return found.group(1).strip() if found else ""


def read_step(text: str) -> int | None:
    """Read one step number; ``None`` where there is none, or several that differ.

    What stands in brackets explains the number before it, unless it says that
    it is the index, which is what was asked for.
    """
    outside = _BRACKETS.sub(" ", text)
    if _NEGATIVE_OR_RANGE.search(outside):
        return None
    candidates = {int(value) for value in _INTEGER.findall(outside)}
    if len(candidates) > 1:
        return None
    inside = " ".join(_BRACKETS.findall(text))
    explained = _INDEX.search(inside)
    if explained:
        return int(explained.group(1))
    return candidates.pop() if candidates else None


def objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects in a text, fenced or not, outermost first."""
    text, decoder = with_whole_pairs(text), json.JSONDecoder()
    position = text.find("{")
    for _ in range(_ENOUGH_OBJECTS):
        if position < 0:
            return
        try:
            found, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):  # also for a number of thousands of digits
            end = position + 1
        else:
            if isinstance(found, Mapping):
                yield found
        position = text.find("{", end)


def _from_object(found: Mapping[str, Any]) -> Answer | None:
    fields = {re.sub(r"[\W_]+", "", str(key)).casefold(): value for key, value in found.items()}
    agent = _first(fields, "agentname", "agent", "mistakeagent", "responsibleagent")
    step = _first(fields, "stepnumber", "step", "mistakestep", "stepindex")
    if agent is None and step is None:
        return None
    reason = _first(fields, "reasonformistake", "reason", "explanation")
    name = strip_suffix(str(agent)) if agent is not None else ""
    return Answer(
        agent=None if _is_none(name) else name or None,
        step=step if type(step) is int else read_step(str(step)) if step is not None else None,
        reason=str(reason or ""),
        says_none=_is_none(name),
    )


def _one_agent(names: Sequence[str]) -> str | None:
    """The name that is meant when a label stands more than once: one that is in all of them."""
    named = [name for name in names if normalise(name)]
    shortest = min(named, key=lambda name: len(normalise(name)), default=None)
    agreed = shortest is not None and all(normalise(shortest) in normalise(name) for name in named)
    return shortest if agreed else None


def _is_none(name: str | None) -> bool:
    return name is not None and normalise(name) in {"none", "na", "noagent", "noone", "nobody"}


def _first(fields: Mapping[str, Any], *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _values(label: re.Pattern[str], text: str) -> Iterator[str]:
    for found in label.finditer(text):
        value = found.group(1).strip() or text[found.end() :].lstrip().partition("\n")[0].strip()
        yield value.strip(" .,;\"'")
