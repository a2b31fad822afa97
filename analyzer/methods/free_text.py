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
from analyzer.methods.layouts import as_lines
from semconv.json_text import with_whole_pairs

LONGEST: Final = 100_000
"""Characters of a reply that are read."""
_MARKUP: Final = re.compile(r"[*`#>|]{1,3}|(?<![^\W_])_{1,2}(?=[^\W_])|(?<=[^\W_])_{1,2}(?![^\W_])")
# Blanks, not white space, in all of these: a reply of empty lines must not be walked over and over.
_LABEL: Final = r"^[ \t\-•]{0,20}(?:\(?\d{1,3}[.)][ \t]{0,9})?"
_IS: Final = r"[ \t]{0,9}(?:(?:is[ \t]{0,9})?[:\uff1a=]|(?<=[ \t])[-\u2013\u2014](?=[ \t]))(.*)$"
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
_PROSE_AGENT: Final = re.compile(
    r"\bagent\b[^.:\n]{0,60}?\bis[ \t](?:the[ \t])?(?P<name>\w[^.,;:\n]{0,60}?)"
    r"(?=[.,;:\n]|[ \t](?:at|in|and|who|which|because)\b|\Z)",
    re.IGNORECASE,
)
_PROSE_STEP: Final = re.compile(r"\bstep[ \t]{1,3}(?:number[ \t]|no\.?[ \t]|#)?(\d{1,6})\b", re.IGNORECASE)
_BRACKETS: Final = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_INDEX: Final = re.compile(r"(?:\bindex(?:ed)?|0-based|zero-based)\D{0,20}?(\d{1,6})\b", re.IGNORECASE)
_INTEGER: Final = re.compile(r"(?<![\w.-])(\d{1,6})(?:st|nd|rd|th)?(?![\w]|\.\d)")
_FROM_ONE: Final = re.compile(
    r"\b(?:1|one)-(?:indexed|based)\b|\b(?:count|number|start)(?:ing|ed) (?:from|at) (?:1|one)\b",
    re.IGNORECASE,
)
_FROM_ZERO: Final = re.compile(
    r"\b(?:0|zero)-(?:indexed|based)\b|\b(?:count|number|start)(?:ing|ed) (?:from|at) (?:0|zero)\b",
    re.IGNORECASE,
)
_OF_ALL: Final = re.compile(
    r"(?<=\d)[ \t]?(?:/|out of|of)[ \t]?(?:the |all |a total of )?\d{1,6}\b", re.IGNORECASE
)
_ENCLOSED: Final = re.compile(r"[\[(]([^\[\]()]*)[\])]")
_WORDS: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_NEGATIVE_OR_RANGE: Final = re.compile(r"(?<![\w.])-\s?\d|\d\s?[-\u2013\u2014]\s?\d")
_ENOUGH_OBJECTS: Final = 50
_MOST_NESTED: Final = 200
_LONGEST_PROSE: Final = 4_000
_THOUGHT: Final = re.compile(r"<(think|thinking|thought)>.*?</\1>", re.IGNORECASE | re.DOTALL)
_CLOSED: Final = re.compile(r"</(?:think|thinking|thought)>", re.IGNORECASE)
_OPENED: Final = re.compile(r"<(?:think|thinking|thought)>", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a reply says; ``None`` for what cannot be read from it."""

    agent: str | None
    step: int | None
    reason: str = ""
    says_none: bool = False
    """The model says that nobody made a mistake."""


def spoken(text: str) -> str:
    """Return a reply without what a reasoning model thought aloud before it.

    A server may keep the mark that opens the thought to itself, or cut the reply off within it.
    """
    if "<thi" not in text.lower() and "</thi" not in text.lower() and "thought>" not in text.lower():
        return text
    text = _THOUGHT.sub("", text)
    *_, after = _CLOSED.split(text)
    return _OPENED.split(after)[0]


def read_answer(text: str) -> Answer:
    """Read the agent, the step and the reason out of a free-text reply."""
    text = spoken(text)[:LONGEST]
    for found in objects(text):
        answer = _from_object(found) or _from_nested(found)
        if answer is not None:
            return answer
    answer = _from_lines(text)
    if answer.says_none or (answer.agent is not None and answer.step is not None):
        return answer
    other = _from_lines(as_lines(text))
    if other.says_none or (other.agent is not None and other.step is not None):
        return other
    is_labelled = any(True for label in (_AGENT, _STEP) for _ in _values(label, _MARKUP.sub("", text)))
    return answer if is_labelled else _from_prose(_MARKUP.sub("", text))


def _from_lines(text: str) -> Answer:
    plain = _MARKUP.sub("", text)
    agent = _one_agent([_unbracketed(strip_suffix(value)) for value in _values(_AGENT, plain)])
    steps = [read_step(value) for value in _values(_STEP, plain)]
    reason = _REASON.search(plain)
    return Answer(
        agent=None if _is_none(agent) else agent,
        step=steps[0] if steps and len(set(steps)) == 1 else None,
        reason=reason.group(1).strip() if reason else "",
        says_none=_is_none(agent),
    )


def _from_prose(text: str) -> Answer:
    """Read a sentence that names the agent, and the one step that the text speaks of."""
    text = text[:_LONGEST_PROSE]
    named = _PROSE_AGENT.search(text)
    steps = {int(number) for number in _PROSE_STEP.findall(text)}
    if named is None or len(steps) != 1:
        return Answer(agent=None, step=None)
    return Answer(agent=named["name"].strip(), step=steps.pop(), reason=text.strip())


def _from_nested(found: Mapping[str, Any]) -> Answer | None:
    """Read the objects that are values in an object; those that contradict each other answer nothing."""
    answers: list[Answer] = []
    waiting: list[object] = list(found.values())
    for _ in range(_MOST_NESTED):
        one = waiting.pop(0) if waiting else None
        if isinstance(one, Mapping):
            answer = _from_object(one)
            answers += [answer] if answer is not None else []
            waiting += one.values()
    told = {(answer.agent, answer.step) for answer in answers}
    if len(told) > 1:
        return Answer(agent=None, step=None)
    return answers[0] if answers else None


def read_reason(text: str) -> str:
    """Return the reason that a reply gives under that label; empty if there is none."""
    found = _REASON.search(_MARKUP.sub("", spoken(text)[:LONGEST]))
    return found.group(1).strip() if found else ""


def read_step(text: str) -> int | None:
    """Read one step number, counted from 0; ``None`` where there is none, or several that differ.

    What stands in brackets explains the number before it, unless it says that
    it is the index, which is what was asked for. One that is said to be counted from 1 is one less.
    """
    text = _unbracketed(text.strip())
    outside = _OF_ALL.sub("", _FROM_ZERO.sub(" ", _FROM_ONE.sub(" ", _BRACKETS.sub(" ", text))))
    if _NEGATIVE_OR_RANGE.search(outside):
        return None
    candidates = {int(value) for value in _INTEGER.findall(outside)}
    if len(candidates) > 1:
        return None
    inside = " ".join(_BRACKETS.findall(text))
    explained = _INDEX.search(inside)
    if explained:
        return int(explained.group(1))
    if not candidates:
        word = outside.casefold().removeprefix("step").strip(" .")
        return _WORDS.index(word) if word in _WORDS else None
    is_from_one = _FROM_ONE.search(text) is not None and _FROM_ZERO.search(text) is None
    step = candidates.pop() - is_from_one
    return step if step >= 0 else None


def _unbracketed(text: str) -> str:
    enclosed = _ENCLOSED.fullmatch(text)
    return enclosed.group(1).strip() if enclosed else text


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
    agent = _first(fields, "agentname", "agent", "mistakeagent", *_ending(fields, "agent", "agentname"))
    step = _first(
        fields, "stepnumber", "step", "mistakestep", *_ending(fields, "step", "stepnumber", "stepindex")
    )
    if agent is None and step is None:
        return None
    reason = _first(fields, "reasonformistake", "reason", "explanation")
    name = strip_suffix(str(agent)) if agent is not None else ""
    return Answer(
        agent=None if _is_none(name) else name or None,
        step=_whole(step),
        reason=str(reason or ""),
        says_none=_is_none(name),
    )


def _ending(fields: Mapping[str, Any], *ends: str) -> tuple[str, ...]:
    """The one key that ends so (``failure_responsible_agent``); none where there are several."""
    found = tuple(key for key in fields if key.endswith(ends))
    return found if len(found) == 1 else ()


def _whole(step: Any) -> int | None:
    if isinstance(step, float):
        return int(step) if step.is_integer() and step >= 0 else None
    if step is None or type(step) is int:
        return step
    return read_step(str(step))


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
