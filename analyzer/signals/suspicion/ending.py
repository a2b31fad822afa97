"""The end of a run: which calls came to nothing, what was returned, and what the answer says about it.

Read by triage and by the clues of undelivered work. Nothing here judges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

from analyzer.lineage.deeds import SENTENCE, acts_in, acts_of
from analyzer.lineage.derivation import converts, plain_results
from analyzer.lineage.entries import fields_in
from analyzer.lineage.figures import figures
from analyzer.lineage.sources import results, sources
from analyzer.texts.commands import call_name
from analyzer.texts.normalize import normalized
from analyzer.texts.numbers import numbers
from analyzer.texts.run_view import HEAD, Reading, final_answer, read
from analyzer.texts.tool_names import looks_up, words_in
from analyzer.texts.tool_results import (
    Fault,
    deed_failed,
    fault_of,
    lacks_means,
    says_absent,
    says_refused,
)
from analyzer.texts.wordings import (
    Kind,
    asks_whether,
    kinds_said,
    languages_in,
    only_acknowledges,
    said,
    says,
)
from semconv.dialects.reading.values import mapping
from semconv.model import Step, StepKind, Trajectory

_SENTENCE: Final = re.compile(r"(?:[^.!?;\n\u3002\uff01\uff1f\u061f\u0964]|[.](?=\S))+")
_ID: Final = re.compile(r"\w*\d[\w-]*")
_WORD: Final = re.compile(r"\w+")
_MOST_PLAIN: Final = 7
_TELLING_FIGURE: Final = 100
"""Least figure that a report of a failure does not have by chance."""
_LONG: Final = 4
"""Letters of a word that is not a mere function word."""
_DENSE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")
"""Text of scripts that have no blanks between words."""
MISSES: Final = frozenset({Kind.GIVING_UP, Kind.ADMISSION, Kind.EXCUSE, Kind.PROMISE})
"""Kinds of phrases by which an answer says that something is missing from it."""
_EVASIONS: Final = (Kind.EVADES, Kind.GIVING_UP, Kind.EXCUSE, Kind.PROMISE)
"""Without admissions: "the problem is …" may be the answer."""
_PLACEHOLDER: Final = re.compile(r"\[tool[-_ ]results?\b[^\]\n]*\]")
"""What a framework writes to the model in place of a result that its tool's span has."""
_TELLING: Final = 12
"""Characters from which equal texts are the same error, not equal by chance."""
_MOST_LINES: Final = 64
"""Lines of failures that are looked for within longer lines: each is searched for in all results."""
_NAME: Final = 3
"""Characters of an agent's name below which a match may be chance."""
_HANDS_OVER: Final = re.compile(r"transfer|hand.?off|hand.?over|delegate|escalate", re.IGNORECASE)
"""Names of tools that give the task to another agent: nobody of that name is a failure, not an answer."""
_TIMED_OUT: Final = re.compile(
    r"time[ds]?[ -]?out|deadline|gateway|no (?:response|reply)|zeitüberschreitung|tiempo de espera|délai",
    re.IGNORECASE,
)
"""Failures after which the deed may have been done."""
_LATER: Final = re.compile(
    r"\b(?:will|shall|is going to) .{0,60}\b(?:once|when|as soon as|after|if)\b"
    r"|\b(?:once|when|as soon as|after|if) [^,]{1,60}, .{1,40}\b(?:will|shall) "
    r"|\b(?:wird|werden) .{0,60}\b(?:sobald|wenn|nachdem)\b|\b(?:sobald|wenn) .{1,60}, (?:wird|werden)\b"
    r"|\b(?:será|serán|se \w+rán?) .{0,60}\b(?:cuando|una vez|en cuanto|después)\b"
    r"|\b(?:sera|seront) .{0,60}\b(?:dès|quand|une fois|lorsque|après)\b"
    r"|\b(?:será|serão) .{0,60}\b(?:quando|assim que|depois)\b"
    r"|\b(?:sarà|verrà|saranno) .{0,60}\b(?:quando|appena|dopo)\b"
    r"|\b(?:wordt|worden|zal) .{0,60}\b(?:zodra|wanneer|nadat)\b",
    re.IGNORECASE,
)
"""A sentence that says on what a deed waits."""
_PUTS_OFF: Final = re.compile(
    r" (?:should|will|must|has to|needs to|is to|ask|asked|wait|waiting|forward\w*|pass(?:ed)?|hand(?:ed)?"
    r"|transfer\w*|delegat\w+|assign\w*|refer\w*|contact\w*|consult\w*) "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """A call that failed or found nothing, and that nothing replaced."""

    at: int
    """Position of the step that shows it."""
    by: int
    """Position of the step that is responsible for the call."""
    tool: str
    text: str
    found_nothing: bool
    """It did not fail: the thing asked for does not exist, or the result is empty."""


class Ending:
    """The end of a run: what is missing, what was returned, and what the answer says about it."""

    def __init__(self, trajectory: Trajectory, reading: Reading | None = None) -> None:
        """Look at a run; it is read when something beyond its answer is asked for."""
        self._reading: Final = reading
        self.trajectory: Final = trajectory
        self.task: Final = trajectory.task[:HEAD]
        self.answer: Final = final_answer(trajectory)[:HEAD]

    @cached_property
    def reading(self) -> Reading:
        """The run with structural facts about each step."""
        return self._reading or read(self.trajectory)

    @cached_property
    def missed(self) -> tuple[Missed, ...]:
        """The calls that came to nothing, in the order in which the run learns of them."""
        return tuple(_missed(self.reading))

    @cached_property
    def last_deed(self) -> int:
        """Position of the last call that succeeded and may have changed something; -1 if there is none."""
        reading = self.reading
        for at in range(len(reading.steps) - 1, -1, -1):
            step = reading.steps[at]
            is_sound = step.kind is StepKind.TOOL and reading.faults[at] is Fault.NONE
            if is_sound and not looks_up(call_name(step)):
                return at
        return -1

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """The languages of the answer that wording can be looked up in."""
        return languages_in(self.answer)

    @cached_property
    def kinds(self) -> frozenset[Kind]:
        """What the answer does: gives up, admits, promises, claims."""
        return kinds_said(self.answer, self.languages)

    @cached_property
    def returned(self) -> tuple[str, ...]:
        """Results of tools that answer, in any step."""
        failed = _texts_of_failures(self.reading)
        lines = dict.fromkeys(line.strip() for text in failed for line in text.splitlines())
        told = {line: None for line in lines if len(line) >= _TELLING}  # frameworks add advice to an error
        return tuple(
            text
            for text in results(self.reading)
            if text not in failed and not _repeats_line(text, told) and _answers(text)
        )

    @cached_property
    def only_evades(self) -> bool:
        """Whether there is an answer, and all of it evades."""
        return bool(_WORD.search(self.answer)) and self.evades(self.answer)

    @cached_property
    def only_admits(self) -> bool:
        """Whether each sentence of the answer says that something failed or is missing."""
        sentences = [each for each in _SENTENCE.findall(self.answer) if _WORD.search(each)]
        return all(says(Kind.ADMISSION, sentence, self.languages) for sentence in sentences)

    def evades(self, text: str) -> bool:
        """Tell whether each sentence of a text is an excuse, postpones the work, or is empty talk."""
        return all(self._evades(each) for each in _SENTENCE.findall(text) if _WORD.search(each))

    def _evades(self, sentence: str) -> bool:
        return not self._new_numbers(sentence) and self._misses(self._after_turn(sentence))

    def _after_turn(self, sentence: str) -> str:
        """Return what follows a word such as ``but`` or ``so``, where an answer may begin; else all of it."""
        found = said(Kind.GOES_ON, sentence, self.languages)
        return sentence if found is None else sentence[found.end :]

    def _misses(self, words: str) -> bool:
        if only_acknowledges(words, self.languages) or _defers(words, self._agents):
            return True
        return any(says(kind, words, self.languages) for kind in _EVASIONS)

    @cached_property
    def _agents(self) -> tuple[str, ...]:
        return tuple(name for name in map(normalized, self.trajectory.agents) if len(name) >= _NAME)

    def _new_numbers(self, text: str) -> frozenset[float]:
        return numbers(text) - self._given_numbers

    @cached_property
    def _given_numbers(self) -> frozenset[float]:
        return numbers(self.given)

    @cached_property
    def given(self) -> str:
        """What the run was given: the task and the agents' instructions."""
        return "\n".join((self.task, *dict.fromkeys(step.instructions for step in self.trajectory.steps)))

    @cached_property
    def figures(self) -> frozenset[float]:
        """Numbers of the answer that neither the task nor plain arithmetic on its numbers gives."""
        own = self._new_numbers(self.answer)
        told = sorted(numbers(self.task))[:_MOST_PLAIN]
        if not own or not told:
            return own
        converted = {figure.value for figure in figures(self.answer) if converts(figure, figures(self.task))}
        return frozenset(own - set(plain_results(told)) - converted)

    @cached_property
    def is_worked_out(self) -> bool:
        """Whether the answer has numbers, and all of them are given or follow from what is given."""
        return bool(self._new_numbers(self.answer)) and not self.figures

    @cached_property
    def has_source(self) -> bool:
        """Whether the answer has a word or a number that a result gives and the task does not."""
        own, known = self.answer, "\n".join(self.returned)[:HEAD]
        if not (tokens_of(own) - tokens_of(self.task)).isdisjoint(tokens_of(known)):
            return True
        new = {figure.value for figure in figures(own)} - {figure.value for figure in figures(self.task)}
        return not new.isdisjoint(figure.value for figure in figures(known))

    @cached_property
    def argued(self) -> frozenset[float]:
        """Numbers in the arguments of calls, and none: an answer may repeat what was searched for."""
        asked = "\n".join(step.input for step in self.reading.steps if step.kind is StepKind.TOOL)
        return numbers(asked[:HEAD]) | {0.0}

    def is_source(self, missed: Missed) -> bool:
        """Tell whether the answer rests on a text that was taken for the report of a failure.

        All figures that are new in the answer may stand in the report: a counter of a limit that was reached.
        """
        if max(self.figures, default=0.0) >= _TELLING_FIGURE and self.figures <= numbers(missed.text[:HEAD]):
            return True
        if self.reading.steps[missed.at].is_failed or deed_failed(missed.text, missed.tool):
            return False
        given = tokens_of(self.task) | frozenset(words_in(missed.tool))
        return not (tokens_of(self.answer) - given).isdisjoint(tokens_of(missed.text[:HEAD]))

    def passes_on(self, missed: Missed) -> bool:
        """Tell whether a call was refused, and the answer says why in words or numbers of the refusal.

        That is an answer: the user learns that it cannot be had, and the reason that the tool gave.
        """
        if not says_refused(missed.text):
            return False
        asked = tokens_of(self.task) | tokens_of(self.reading.steps[missed.at].input[:HEAD])
        reason = missed.text[:HEAD]
        words = tokens_of(reason) | tokens_of(reason.replace("_", " "))  # a code: HANDED_TO_CARRIER
        return not (words - asked).isdisjoint(tokens_of(self.answer))

    def gives_reason(self, missed: Missed, told: Iterable[str]) -> bool:
        """Tell whether sentences have a longer word of a failure's text: they pass its reason on."""
        step = self.reading.steps[missed.at]
        known = f"{self.task}\n{step.input[:HEAD]}\n{' '.join(words_in(missed.tool))}"
        text = "\n".join(map(str, mapping(missed.text).values())) or missed.text  # its keys are no reason
        own = tokens_of(text[:HEAD]) - tokens_of(known)
        tokens = tokens_of("\n".join(told))
        return any(len(word) > _LONG and not word.isdigit() for word in own & tokens)

    def is_put_off(self, missed: Missed) -> bool:
        """Tell whether the answer says on what a failed deed waits, and claims nothing."""
        sentences = [found[0] for found in SENTENCE.finditer(self.answer)]
        put_off = [one for one in sentences if _LATER.search(one)]
        claimed = (one for one in sentences if one not in put_off)
        return bool(put_off) and not any(
            acts_of(missed.tool) & acts_in(one) or says(Kind.CLAIM_DONE, one, self.languages)
            for one in claimed
        )

    def is_made_up_for(self, missed: Missed) -> bool:
        """Tell whether a person later tells of a failed deed, or a look-up follows one that timed out."""
        reading, acts = self.reading, acts_of(missed.tool)
        later = (one for one in sources(reading) if one.step is not None and one.step > missed.at)
        if any(not one.is_result and acts & acts_in(one.text) for one in later):
            return True
        asked = _values_of(reading.steps[missed.at])
        return _TIMED_OUT.search(missed.text[:HEAD]) is not None and any(
            step.kind is StepKind.TOOL
            and looks_up(call_name(step))
            and reading.faults[at] is Fault.NONE
            and not asked.isdisjoint(_values_of(step))
            for at, step in enumerate(reading.steps)
            if at > missed.at
        )

    @cached_property
    def names_what_was_asked_for(self) -> bool:
        """Whether the answer repeats an id that the task gives: the user learns that it leads nowhere."""
        return not frozenset(_ID.findall(self.task)).isdisjoint(_ID.findall(self.answer))

    @cached_property
    def is_answered_by_nothing(self) -> bool:
        """Whether finding nothing answers the task: it asks whether, or the answer repeats its id."""
        return self.names_what_was_asked_for or asks_whether(self.task)


def _values_of(call: Step) -> frozenset[str]:
    """Return the telling parts of a call's arguments, without their keys."""
    return tokens_of("\n".join(map(str, fields_in(call.input[:HEAD]).values())))


def _missed(reading: Reading) -> Iterator[Missed]:
    """Yield the unrepaired calls, in the order in which the run learns of them."""
    found = [
        Missed(
            at=at,
            by=reading.responsible_steps[at],
            tool=call_name(step),
            text=step.error or step.output.strip(),
            found_nothing=fault is Fault.EMPTY or _is_absent(step.error or step.output, reading),
        )
        for at, (step, fault) in enumerate(zip(reading.steps, reading.faults, strict=True))
        if fault is not Fault.NONE and step.kind is StepKind.TOOL and not reading.repaired[at]
    ]
    found += [
        Missed(
            at=fault.hearer,
            by=fault.asker,
            tool=fault.tool,
            text=fault.text,
            found_nothing=_is_absent(fault.text, reading) and not _HANDS_OVER.match(fault.tool),
        )
        for fault in reading.heard_faults
        if not fault.is_repaired
    ]
    yield from sorted(found, key=lambda each: each.at)


def _is_absent(text: str, reading: Reading) -> bool:
    """Tell whether an error says that the thing looked for does not exist.

    A missing program, table or host does not count, unless the task asks whether something exists.
    """
    return says_absent(text) and (not lacks_means(text) or asks_whether(reading.trajectory.task[:HEAD]))


def _defers(sentence: str, agents: tuple[str, ...]) -> bool:
    """Tell whether a sentence leaves the work to an agent."""
    said = f" {normalized(sentence)} "
    return _PUTS_OFF.search(said) is not None and any(f" {name} " in said for name in agents)


def tokens_of(text: str) -> frozenset[str]:
    """Return the telling parts of a text: longer words, numbers, and pairs of characters without blanks."""
    found = {word for word in _WORD.findall(text.casefold()) if len(word) >= _LONG or word.isdigit()}
    dense = {run[at : at + 2] for run in _DENSE.findall(text) for at in range(len(run) - 1)}
    return frozenset(found | dense)


def words_among(tokens: Iterable[str]) -> float:
    """Count the words that telling parts stand for: two pairs of characters are about one word."""
    return sum(0.5 if _DENSE.fullmatch(token) else 1.0 for token in tokens)


def _repeats_line(text: str, told: Mapping[str, None]) -> bool:
    """Tell whether a text has one of the lines, or one of the first ones within a longer line."""
    if any(line.strip() in told for line in text.splitlines()):
        return True
    return any(line in text for line in islice(told, _MOST_LINES))


def _texts_of_failures(reading: Reading) -> Mapping[str, None]:
    """Return what steps of tools show of their failures, and what the model is told of them."""
    faulty = [
        step for step, fault in zip(reading.steps, reading.faults, strict=True) if fault is not Fault.NONE
    ]
    ids = {step.call_id for step in faulty if step.call_id}
    told = (
        step.input[one.start : one.end]
        for step in reading.steps
        for one in step.heard
        if not ids.isdisjoint(one.answers)
    )
    texts = (*(step.output for step in faulty), *(step.error for step in faulty), *told)
    return dict.fromkeys(text[:HEAD].strip() for text in texts)


def _answers(result: str) -> bool:
    """Tell whether a tool's result is an answer: no failure, not empty, nobody who gives up."""
    probe = Step(index=0, agent="", kind=StepKind.TOOL, output=result)
    if fault_of(probe, result) is not Fault.NONE or _PLACEHOLDER.fullmatch(result):
        return False
    head = result[:HEAD]
    return not says(Kind.GIVING_UP, head, languages_in(head))
