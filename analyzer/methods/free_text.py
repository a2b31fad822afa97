"""Parsers of models' free-text replies: an agent and a step number, or one of two answers.

Reads every format that is unambiguous to a careful reader: bold labels, numbered labels, JSON, ``Step Number:
1 (the 2nd of 3 steps)``. An ambiguous reply (``4 or 12``) counts as unreadable.

Other layouts (headings, tables, tags, one line, cut-off JSON) are first converted to one ``Label: value`` per
line.

Two-way answers, which step-by-step and binary search ask for, are read as widely. Among them: ``1. **Yes**``,
``1) yes``, ``Answer: No``, JSON, "not the upper half, the lower half". An ambiguous reply is ``None``, never
one of the two; the reference code takes an unclear reply to step-by-step as "no" and picks one at random for
binary search.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from analyzer.inquiry.match_agents import normalise, strip_suffix
from semconv.json_text import with_whole_pairs

_FIELD: Final = (
    r"(?:the )?(?:mistaken? |mistake_|responsible[ _]|decisive )?(?:agent|step|reason|explanation)"
    r"(?:[ _-]?(?:name|number|index|for[ _](?:the[ _])?(?:mistake|error)))?"
)
_TAG: Final = re.compile(rf"<({_FIELD})>([^<]{{0,4000}})</\1>", re.IGNORECASE)
_HEADING: Final = re.compile(
    rf"^[#*_ \t]{{1,8}}(?:\d[.)][ \t]{{1,3}})?({_FIELD})[*_ \t]{{0,6}}$", re.IGNORECASE | re.MULTILINE
)
_JOINT: Final = re.compile(
    rf"[,;|{{][ \t\n]{{0,9}}[\"'*_]{{0,3}}(?={_FIELD}[\"'*_]{{0,3}}[ \t]{{0,3}}[:=\uff1a])", re.IGNORECASE
)
_QUOTED_LABEL: Final = re.compile(rf"^([ \t]{{0,9}}{_FIELD})[\"']", re.IGNORECASE | re.MULTILINE)
_NAMED: Final = re.compile(rf"{_FIELD}\Z", re.IGNORECASE)
_RULE: Final = re.compile(r"[:\- ]*")


def as_lines(text: str) -> str:
    """Return a text with each label moved to the beginning of its own line."""
    text = _TAG.sub(lambda found: f"\n{found[1]}: {found[2].strip()}\n", text)
    text = _HEADING.sub(r"\1:", text)
    text = "\n".join(_lines(text.splitlines()))
    return _QUOTED_LABEL.sub(r"\1", _JOINT.sub("\n", text))


def _lines(lines: Sequence[str]) -> Iterator[str]:
    for is_table, group in groupby(lines, key=lambda line: line.lstrip().startswith("|")):
        together = list(group)
        yield from _from_table(together) if is_table else together


def _from_table(lines: Sequence[str]) -> Iterator[str]:
    """Read a table with labels in its first column (values beside) or its first row (values below)."""
    table = [[cell.strip(" *_`") for cell in line.strip().strip("|").split("|")] for line in lines]
    rows = [row for row in table if not all(_RULE.fullmatch(cell) for cell in row)]
    beside = [row for row in rows if len(row) == 2 and _NAMED.match(row[0])]
    if len(beside) > 1 or not rows:
        yield from (f"{label}: {value}" for label, value in beside)
        return
    for row in rows[1:]:
        yield from (f"{label}: {cell}" for label, cell in zip(rows[0], row, strict=False))


LONGEST: Final = 100_000
"""Longest part of a reply that is read, in characters."""
_MARKUP: Final = re.compile(r"[*`#>|]{1,3}|(?<![^\W_])_{1,2}(?=[^\W_])|(?<=[^\W_])_{1,2}(?![^\W_])")
# All of these match blanks only, not any white space: a reply of empty lines must not be scanned repeatedly.
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
    """The contents of a reply; ``None`` for each part that cannot be read."""

    agent: str | None
    step: int | None
    reason: str = ""
    says_none: bool = False
    """The model says that no agent made a mistake."""


def spoken(text: str) -> str:
    """Return a reply without its leading reasoning block.

    A server may omit the block's opening tag, or cut the reply off within the block.
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
    """Read a sentence that names the agent, and the only step that the text mentions."""
    text = text[:_LONGEST_PROSE]
    named = _PROSE_AGENT.search(text)
    steps = {int(number) for number in _PROSE_STEP.findall(text)}
    if named is None or len(steps) != 1:
        return Answer(agent=None, step=None)
    return Answer(agent=named["name"].strip(), step=steps.pop(), reason=text.strip())


def _from_nested(found: Mapping[str, Any]) -> Answer | None:
    """Read the objects nested in an object; ``None`` if they contradict each other."""
    answers: list[Answer] = []
    waiting: list[object] = list(found.values())
    for _ in range(_MOST_NESTED):
        one = waiting.pop(0) if waiting else None
        if isinstance(one, Mapping):
            answer = _from_object(one)
            answers += [answer] if answer is not None else []
            waiting += one.values()
    named = {(answer.agent, answer.step) for answer in answers}
    if len(named) > 1:
        return Answer(agent=None, step=None)
    return answers[0] if answers else None


def read_reason(text: str) -> str:
    """Return the reason labelled as such in a reply; empty if there is none."""
    found = _REASON.search(_MARKUP.sub("", spoken(text)[:LONGEST]))
    return found.group(1).strip() if found else ""


def read_step(text: str) -> int | None:
    """Read one step number, counted from 0; ``None`` if there is none, or several that differ.

    Text in brackets only explains the number before it, unless it is marked as the index that the prompt
    asked for. A number said to be counted from 1 is reduced by one.
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
    """Return the only key with one of these endings (``failure_responsible_agent``); empty if several."""
    found = tuple(key for key in fields if key.endswith(ends))
    return found if len(found) == 1 else ()


def _whole(step: Any) -> int | None:
    if isinstance(step, float):
        return int(step) if step.is_integer() and step >= 0 else None
    if step is None or type(step) is int:
        return step
    return read_step(str(step))


def _one_agent(names: Sequence[str]) -> str | None:
    """Return the agent named where a label occurs several times: the name contained in all values."""
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


_ANSWER_MARKUP: Final = re.compile(r"[*`#>|_\"']{1,3}")
_ANSWER_TAG: Final = re.compile(r"</?[a-z_]{1,20}>|\\boxed\{([^{}\n]{0,200})\}", re.IGNORECASE)
_ECHO: Final = re.compile(r"^[^\n?]{0,200}\?[ \t]{0,9}(?=\W{0,4}(?:yes|no)\b)", re.IGNORECASE | re.MULTILINE)
"""The question repeated before its answer."""
_ANSWER_LABEL: Final = (
    r"[^\w\n(\[]{0,9}(?:\(?\d{1,6}[.):\]][ \t]{0,9})?(?:the )?(?:final |short |my )?"
    r"(?:(?:answer|verdict|judge?ment|response|conclusion|(?:contains )?(?:an? )?(?:error|mistake)"
    r"|step \d{1,6})"
    r"[ \t]{0,9}(?:is\b:?|[:\-=])[ \t]{0,9})?"
    r"(?:yes ?(?:/|or) ?no[ \t]{0,9}[:\-=]?[ \t]{0,9})?[(\[]?"
)
_ANSWER: Final = re.compile(
    rf"^{_ANSWER_LABEL}(yes|no)\b(?! ?(?:/|or|and) ?(?:yes|no)\b)(.*)$", re.IGNORECASE | re.MULTILINE
)
_BARE: Final = re.compile(r"[\s.,!:;)\]]{0,9}")
_FAULT: Final = r"(?:error|mistake|fault)"
_DENIED: Final = re.compile(
    rf"\b(?:no|not|without|free (?:of|from)|(?:do|does|did|is|was|are|were|ca|could|would)n'?t)\b"
    rf"[^.\n]{{0,40}}\b{_FAULT}s?\b|\b{_FAULT}-free\b|^\W{{0,9}}{_FAULT}s?[ \t]{{0,9}}[:=][ \t]{{0,9}}none\b",
    re.IGNORECASE,
)
_STATED: Final = re.compile(
    rf"\b(?:there (?:is|was)|contains?|made|makes|has|is)[ \t]an?[ \t][^.\n]{{0,30}}\b{_FAULT}\b",
    re.IGNORECASE,
)
_YES_KEYS: Final = (
    "answer", "error", "mistake", "verdict", "haserror", "containserror", "iserror", "containsmistake",
    "hasmistake", "ismistake", "judgment",
)  # fmt: skip
_TRUTH: Final = {"yes": True, "true": True, "no": False, "false": False}
_UPPER: Final = "upper"
_LOWER: Final = "lower"
_OTHER: Final = {_UPPER: _LOWER, _LOWER: _UPPER}
_ANSWER_WORDS: Final = {
    **dict.fromkeys(("first", "earlier", "top"), _UPPER),
    **dict.fromkeys(("second", "later", "bottom"), _LOWER),
}
_WHICH: Final = r"upper|lower|first|second|earlier|later|top|bottom"
_PART: Final = r"[ \t_-]?(?:half|part|portion)"
_HALF: Final = re.compile(
    r"(?P<turned>\b(?:not|than|instead of|as opposed to)[ \t](?:being[ \t])?(?:in[ \t])?(?:the[ \t])?)?"
    rf"\b(?P<half>{_WHICH}){_PART}\b"
    r"(?P<cleared>[ \t](?:(?:is|was|looks|seems)[ \t](?:all[ \t])?(?:fine|correct|right|sound|ok|okay)\b"
    r"|(?:contains|has|shows)[ \t]no\b))?",
    re.IGNORECASE,
)
_ALONE: Final = re.compile(r"(?:^|[:=])[ \t]{0,9}(?:the )?(upper|lower)[\s.!}]{0,9}$", re.IGNORECASE)
_UNDECIDED: Final = re.compile(
    rf"\b(?:either |neither )?(?:the )?(?:{_WHICH})(?:{_PART})?"
    rf"[ \t](?:or|and|nor)[ \t](?:the )?(?:{_WHICH}){_PART}\b",
    re.IGNORECASE,
)
_CLOSING: Final = re.compile(
    rf"[:.!\n][ \t]{{0,9}}(?:(?:so|thus|hence|therefore)[,: \t]{{1,3}})?"
    rf"(?:the )?({_WHICH}){_PART}[\s.!]{{0,9}}\Z",
    re.IGNORECASE,
)
_CONCLUSION: Final = re.compile(
    r"^[ \t]{0,9}"
    r"(?:(?:the )?(?:final )?(?:answer|prediction|verdict|conclusion)[ \t]{0,9}(?:is\b|[:=])?[ \t]{0,9})?"
    rf"(?:the )?({_WHICH}){_PART}[ \t.!]{{0,9}}$",
    re.IGNORECASE | re.MULTILINE,
)


def read_yes_or_no(text: str) -> bool | None:
    """Return whether a reply says yes; ``None`` if it says neither or both."""
    text = spoken(text)[:LONGEST]
    for found in objects(text):
        fields = {re.sub(r"[\W_]+", "", str(key)).casefold(): value for key, value in found.items()}
        value = next((fields[key] for key in _YES_KEYS if key in fields), None)
        said = _TRUTH.get(str(value).strip(" .").casefold())
        if said is not None:
            return said
    plain = _ECHO.sub("", _ANSWER_MARKUP.sub("", _ANSWER_TAG.sub(r"\n\1\n", text)))
    answers = [(match.group(1).casefold() == "yes", match.group(2)) for match in _ANSWER.finditer(plain)]
    if answers:
        bare = {said for said, rest in answers if _BARE.fullmatch(rest)}
        choices = bare or {answers[0][0]}
        return choices.pop() if len(choices) == 1 else None
    denied, stated = bool(_DENIED.search(plain)), bool(_STATED.search(plain))
    return stated if denied != stated else None


def read_half(text: str) -> str | None:
    """Return ``upper`` (the earlier half) or ``lower``; ``None`` if a reply says neither or both."""
    plain = _UNDECIDED.sub("", _ANSWER_MARKUP.sub("", _ANSWER_TAG.sub(r"\n\1\n", spoken(text)[:LONGEST])))
    concluded = {_which(match.group(1)) for match in _CONCLUSION.finditer(plain)}
    if len(concluded) == 1:
        return concluded.pop()
    alone = _ALONE.search(plain)
    mentions = [
        (_which(match["half"]), bool(match["turned"] or match["cleared"])) for match in _HALF.finditer(plain)
    ]
    meant = {half for half, turned in mentions if not turned}
    if not mentions and alone:
        return _which(alone.group(1))
    if not meant:  # ruling out one half leaves the other
        meant = {_OTHER[half] for half, turned in mentions if turned}
    if len(meant) == 1:
        return meant.pop()
    closing = None if concluded else _CLOSING.search(plain)
    return _which(closing.group(1)) if closing else None


def _which(word: str) -> str:
    return _ANSWER_WORDS.get(word.casefold(), word.casefold())
