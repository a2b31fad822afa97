"""An answer in another language than the task, which nobody asked for.

People read the language that they write. Only prose tells a language: names, code, figures, texts of data,
quotations and sentences of a tool's result are in any. So may be what a task hands over: it states itself at
its beginning and its end, before and after blank lines and colons. The run must be silent about languages: a
task may want a translation, or a text for somebody else; a desk answers in the language of its instructions,
and a customer in the language of their record or letter. Instructions and messages in English are no sign of
that: programmers write English whatever their users read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from analyzer.inquiry.present import beginning
from analyzer.lineage.clue import Clue, ClueKind
from analyzer.lineage.sources import results
from analyzer.signals.suspicion.answer_parts import parts_of, without_quotations
from analyzer.texts.normalize import normalized
from analyzer.texts.run_view import HEAD, QUOTE, Reading, final_answer
from analyzer.texts.wordings import asks_for_text, is_covered, languages_in, speaks_of, tables
from semconv.model import Evidence, StepKind

_SENTENCE: Final = re.compile(r"[^.!?\n。।؟]+(?:[.!?](?!\s|$)[^.!?\n。।؟]*)*[.!?。।؟]?")
_CODE: Final = re.compile(r"[{}=;_<>\[\]|#\\]|\w\(|https?:|@|^\s*(?:>|//)")
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_INITIAL: Final = re.compile(r"\b[A-Z]\.(?=\s)")
"""Of a name: ``J. Park`` is no French ``j'``."""
_NUMBERED: Final = re.compile(r"(?<![A-Za-z])[A-Za-z]*\d[A-Za-z\d]*")
"""``7c`` is no French ``c'``; none begins within a word, so that time stays linear."""
_WIDE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_NAME: Final = re.compile(r"(?<=[^\W\d_] )[^\W\d_]*[A-ZÀ-ÖØ-Þ]\w+")
"""A word with a capital after another word, whose letters may be those of another language."""
_FEWEST_WORDS: Final = 6
_FEWEST_CHARACTERS: Final = 10
"""Words, or characters of a script without blanks, from which a text tells its language."""
_MOST_SENTENCES: Final = 64
_MATERIAL: Final = re.compile(r"\n[^\S\n]*\n|:\s|\uff1a")
"""What divides a task from the texts that it hands over."""
_LOCALE: Final = re.compile(
    r"\b(?:locale|lang|language)[\"']?\s{0,4}[:=]\s{0,4}[\"']?([a-z]{2})|\b([a-z]{2})[-_][A-Z]{2}\b"
)
_OF_PROGRAMS: Final = "en"
_OTHERS: Final = frozenset({"assistant", "tool"})


def other_language(reading: Reading) -> Iterator[Clue]:
    """Yield the answer if its only language is not the task's only language."""
    task, answer = reading.trajectory.task[:HEAD], final_answer(reading.trajectory)[:HEAD]
    found = languages_in(task)
    wanted = "" if found == languages_in(answer) and len(found) == 1 else _own_language(task)
    sentences = _sentences(answer) if wanted else []
    used = _language(sentences) or _language(_without_names(sentences))
    if not wanted or not used or wanted == used:
        return
    if _is_asked_for(reading, used) or _may_be_for_others(reading, wanted, used):
        return
    own = list(_without_copied(reading, sentences))
    if used not in {_language(own), _language(_without_names(own))}:
        return
    step = reading.steps[_author(reading, answer)]
    names = tables()
    yield Clue(
        step=step.index,
        kind=ClueKind.OTHER_LANGUAGE,
        reason=f"answered in {names[used].name} although the task is in {names[wanted].name}",
        evidence=(Evidence(step=step.index, quote=beginning(step.output, QUOTE)),),
    )


def _sentences(text: str) -> list[str]:
    """Return a text's sentences in its own words: without data, quotations, code and headings."""
    prose = (without_quotations(part.text) for part in parts_of(text) if not part.key)
    found = (one.strip() for part in prose for one in _SENTENCE.findall(part))
    return [one for one in found if one and not _CODE.search(one)]


def _without_names(sentences: Sequence[str]) -> list[str]:
    """Return sentences without words that may be names: their letters may be those of another language."""
    return [_NAME.sub(" ", sentence) for sentence in sentences]


def _without_copied(reading: Reading, sentences: Sequence[str]) -> Iterator[str]:
    """Yield the first sentences that no result has; each is searched for in all results."""
    returned = "\n".join(normalized(text) for text in results(reading))
    return (sentence for sentence in sentences[:_MOST_SENTENCES] if normalized(sentence) not in returned)


def _language(sentences: Sequence[str]) -> str:
    """Return the only language of a text; empty if it has several, is too short, or has no table."""
    text = _NUMBERED.sub(" ", _INITIAL.sub(" ", "\n".join(sentences)))
    if len(_WORD.findall(text)) < _FEWEST_WORDS and len(_WIDE.findall(text)) < _FEWEST_CHARACTERS:
        return ""
    found = languages_in(text)
    return found[0] if len(found) == 1 and is_covered(text) else ""


def _own_language(task: str) -> str:
    """Return the language of a task's first and last part; empty if either has none or they differ."""
    parts = [part for part in _MATERIAL.split(task) if part.strip()]
    found = {_language(_sentences(part)) for part in (*parts[:1], *parts[-1:])}
    return found.pop() if len(found) == 1 else ""


def _may_be_for_others(reading: Reading, wanted: str, used: str) -> bool:
    """Tell whether the answer may be a text for somebody whose language the run has shown."""
    people = [step.output for step in reading.steps if step.kind is StepKind.HUMAN]
    if any(asks_for_text(wanted, text[:HEAD]) for text in (reading.trajectory.task, *people)):
        return True
    shown = list(dict.fromkeys(text[:HEAD] for text in (*results(reading), *_instructions(reading))))
    if any(_names_locale(text, wanted) for text in shown):
        return True
    return used != _OF_PROGRAMS and any(_has_prose_in(text, used) for text in shown)


def _names_locale(text: str, wanted: str) -> bool:
    return any((match[1] or match[2]) != wanted for match in _LOCALE.finditer(text))


def _has_prose_in(text: str, language: str) -> bool:
    """Tell whether a text, or a text of its data, is in a language."""
    return any(_language([part.text]) == language for part in parts_of(text))


def _is_asked_for(reading: Reading, language: str) -> bool:
    """Tell whether a person or the instructions speak of a language, or are in the answer's language."""
    people = [step.output for step in reading.steps if step.kind is StepKind.HUMAN]
    given = list(dict.fromkeys(text[:HEAD] for text in (*people, *_instructions(reading))))
    if any(speaks_of(language, text) for text in (reading.trajectory.task, *given)):
        return True
    telling = people if language == _OF_PROGRAMS else given
    return any(language in languages_in(text) for text in telling if _language([text]))


def _instructions(reading: Reading) -> Iterator[str]:
    """Yield what steps were told; frameworks hand over an agent's words in the name of the user."""
    outputs = {step.output.strip() for step in reading.steps}
    for step in reading.steps:
        yield step.instructions
        told = (step.input[one.start : one.end] for one in step.heard if one.role not in _OTHERS)
        yield from (text for text in told if text.strip() not in outputs)


def _author(reading: Reading, answer: str) -> int:
    """Return the position of the first step that gives the answer; by default, of the last that speaks."""
    speaking = [
        position
        for position, step in enumerate(reading.steps)
        if step.kind is not StepKind.TOOL and step.output.strip()
    ]
    return _first_with(reading, speaking, answer) if speaking else len(reading.steps) - 1


def _first_with(reading: Reading, speaking: Sequence[int], answer: str) -> int:
    head = answer.strip()[:QUOTE]
    return next((place for place in speaking if head in reading.steps[place].output), speaking[-1])
