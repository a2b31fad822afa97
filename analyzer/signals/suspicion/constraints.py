"""Demands of the task on the answer's form, checked. English only; other demands are not seen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Final

from analyzer.inquiry.present import beginning
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.figures import prose_of
from analyzer.texts.run_view import QUOTE, Reading, Role, final_answer
from semconv.model import Evidence, StepKind

_NUMBERS: Final = {
    word: n
    for n, word in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    )
}
_COUNT: Final = rf"(\d{{1,5}}|{'|'.join(_NUMBERS)})"
_UNITS: Final = r"(words?|sentences?|bullet points?|bullets|items?|lines?|paragraphs?|characters?)"
_AT_MOST: Final = re.compile(
    rf"\b(?:at most|no more than|not more than|maximum(?: of)?|max\.?|up to|fewer than|less than|under"
    rf"|within)\s{_COUNT}\s{_UNITS}"
    rf"|\b{_COUNT}\s{_UNITS}\s(?:or (?:less|fewer)|at most|max(?:imum)?)\b",
    re.IGNORECASE,
)
_EXACTLY: Final = re.compile(
    rf"\b(?:exactly|in)\s{_COUNT}\s(sentences?|bullet points?|bullets|words?|paragraphs?)\b", re.IGNORECASE
)
_SLACK: Final = 1.1
"""Tools count words differently."""
_OPEN: Final = "['\"\u201c\u2018]"
_CLOSE: Final = "['\"\u201d\u2019]"
_FORBIDDEN: Final = re.compile(
    r"\b(?:do not|don't|never|without|avoid)\s(?:ever\s)?"
    r"(?:us(?:e|ing)|mention(?:ing)?|includ(?:e|ing)|say(?:ing)?)\s"
    rf"(?:the\s)?(?:words?|phrase|term|name)\s{_OPEN}([^'\"”\u2019\n]{{2,40}}){_CLOSE}",
    re.IGNORECASE,
)
_REQUIRED: Final = re.compile(
    r"\b(?:must|should|please)\s(?:contain|include|mention|end with|start with|begin with)\s(?:the\s)?"
    rf"(?:words?|phrase|term|line)?\s?{_OPEN}([^'\"”\u2019\n]{{2,60}}){_CLOSE}",
    re.IGNORECASE,
)
_NO_BULLETS: Final = re.compile(
    r"\b(?:without|no|do not use|don't use|avoid)\s(?:any\s)?(?:bullet(?: point)?s?|lists?)\b", re.IGNORECASE
)
_JSON_ONLY: Final = re.compile(
    r"\b(?:only|respond|answer|reply|return)\b[^.\n]{0,30}\b(?:in|as|with|valid)\s(?:valid\s|a\s)?JSON\b",
    re.IGNORECASE,
)
_BULLET: Final = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+\S", re.MULTILINE)
_ABBREVIATED: Final = re.compile(r"(?<=\d)\.(?=\d)|\.(?=\s+[a-z\d])")
"""Full stops that end no sentence: of numbers, and of ``e.g.`` before a small letter or a number."""
_SENTENCE: Final = re.compile(r"[^.!?…]*[^\s.!?…][^.!?…]*(?:[.!?…]+(?=\s|$)|$)")


def broken_constraints(reading: Reading) -> Iterator[Clue]:
    """Yield the task's demands that the final answer does not meet."""
    task, answer = reading.trajectory.task[:8_000], final_answer(reading.trajectory)
    if not task or not answer:
        return
    for what, sign in _broken(task, answer):
        position = _author(reading)
        step = reading.steps[position]
        yield Clue(
            step=step.index,
            kind=ClueKind.CONSTRAINT,
            reason=f"did not keep to the task: {what}",
            evidence=(Evidence(step=step.index, quote=beginning(answer, QUOTE)),),
            signs={sign: 1.0},
        )


def _broken(task: str, answer: str) -> Iterator[tuple[str, str]]:
    yield from _miscounted(task, answer)
    for match in _FORBIDDEN.finditer(task):
        if re.search(rf"(?<!\w){re.escape(match[1])}(?!\w)", answer, re.IGNORECASE):
            yield f"it forbids “{match[1]}”, which the answer contains", "forbidden"
    for match in _REQUIRED.finditer(task):
        if match[1].casefold().strip(" .") not in answer.casefold():
            yield f"it asks for “{match[1]}”, which the answer lacks", "required"
    if _NO_BULLETS.search(task) and len(_BULLET.findall(answer)) > 1:
        yield "it asks for no list, the answer is one", "list"
    if _JSON_ONLY.search(task) and not _is_json(answer):
        yield "it asks for JSON, the answer is not", "json"


def _miscounted(task: str, answer: str) -> Iterator[tuple[str, str]]:
    limits, numbers = [*_AT_MOST.finditer(task)], [*_EXACTLY.finditer(task)]
    if not (limits or numbers) or _is_json(answer):
        return  # which of its values is to be short, its form does not say
    for match in limits:
        most, unit = _number(match[1] or match[3]), (match[2] or match[4]).lower()
        count = _counter(unit)(answer)
        if count > most * (_SLACK if unit.startswith(("word", "char")) else 1.0):
            yield f"it asks for at most {most} {unit}, the answer has {count}", "length"
    for match in numbers:
        wanted, unit = _number(match[1]), match[2].lower()
        count = _counter(unit)(answer)
        is_exact = unit.startswith(("bullet", "paragraph"))
        if abs(count - wanted) > (0 if is_exact else max(1, 0.3 * wanted)):
            yield f"it asks for {wanted} {unit}, the answer has {count}", "count"


def _number(text: str) -> int:
    return _NUMBERS[text.lower()] if text.lower() in _NUMBERS else int(text)


def _counter(unit: str) -> Callable[[str], int]:
    for start, count in _COUNTERS.items():
        if unit.startswith(start):
            return count
    return len


_COUNTERS: Final[dict[str, Callable[[str], int]]] = {
    "word": lambda text: len(text.split()),
    "sentence": lambda text: len(_SENTENCE.findall(_ABBREVIATED.sub("", prose_of(text)))),
    "bullet": lambda text: len(_BULLET.findall(text)),
    "item": lambda text: len(_BULLET.findall(text)),
    "line": lambda text: len([line for line in text.splitlines() if line.strip()]),
    "paragraph": lambda text: len([part for part in re.split(r"\n\s*\n", text) if part.strip()]),
    "char": len,
}


def _is_json(text: str) -> bool:
    fenced = re.search(r"```(?:json)?\s*\n(.*?)```", text, re.DOTALL)
    try:
        json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return False
    return True


def _author(reading: Reading) -> int:
    """Return the position of the step that wrote the answer."""
    acting = [
        p
        for p, role in enumerate(reading.roles)
        if role in (Role.ACTING, Role.COORDINATING) and reading.texts[p]
    ]
    speaking = [p for p in acting if reading.steps[p].kind in (StepKind.LLM, StepKind.AGENT)]
    return (speaking or acting or [len(reading.steps) - 1])[-1]
