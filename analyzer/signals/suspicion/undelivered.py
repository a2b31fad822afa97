"""Clues that a run did not deliver what it was asked for, although it ended without an error.

What needs no language comes first: a call failed or found nothing, and nothing replaced it. Then the answer
has no source for what only that call could give. So the answer either says so, and the task is undone; or it
gives figures, or claims the deed, and they are from nowhere. Wording, from tables in many languages, only
tells these cases apart, and alone it makes a suspicion at most.

Not a failure: an empty result that answers the question (``Is there a table for six?``), or that the answer
repeats with the id that the user gave (``There is no order 4711``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from analyzer.inquiry.present import beginning
from analyzer.signals.numbers import numbers
from analyzer.signals.run_view import HEAD, QUOTE, Reading, final_answer
from analyzer.signals.suspicion.clue import Clue, ClueKind
from analyzer.signals.suspicion.derivation import plain_results
from analyzer.signals.suspicion.figure_sources import is_blind, results
from analyzer.signals.tool_names import deed_of, looks_up
from analyzer.signals.tool_results import Fault, fault_of, reports_failure, says_absent
from analyzer.signals.wordings import Kind, kinds_said, languages_in, said
from semconv.model import Evidence, Step, StepKind

_SENTENCE: Final = re.compile(r"[^.!?;\n\u3002\uff01\uff1f\u061f\u0964]+")
_ID: Final = re.compile(r"\w*\d[\w-]*")
_WORD: Final = re.compile(r"\w+")
_MOST_PLAIN: Final = 7
_SHORTEST_WORDS: Final = 2
_LONG: Final = 4
"""Letters of a word that is not a mere function word."""
_DENSE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]+")
"""Text of scripts that have no blanks between words."""
_MISSES: Final = frozenset({Kind.GIVING_UP, Kind.ADMISSION, Kind.EXCUSE, Kind.PROMISE})
_THINKING: Final = frozenset({StepKind.LLM, StepKind.AGENT})


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

    def __init__(self, reading: Reading) -> None:
        self.reading: Final = reading
        self.task: Final = reading.trajectory.task[:HEAD]
        self.answer: Final = final_answer(reading.trajectory)[:HEAD]
        self.missed: Final = tuple(_missed(reading))

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
        return tuple(text for text in results(self.reading) if text not in failed and _answers(text))

    @cached_property
    def only_evades(self) -> bool:
        """Whether each sentence of the answer excuses, admits, promises or gives up, and none goes on."""
        sentences = [each for each in _SENTENCE.findall(self.answer) if _WORD.search(each)]
        return bool(sentences) and all(map(self._evades, sentences))

    def _evades(self, sentence: str) -> bool:
        kinds = kinds_said(sentence, self.languages)
        return bool(kinds & _MISSES) and Kind.GOES_ON not in kinds and not self._new_numbers(sentence)

    def _new_numbers(self, text: str) -> frozenset[float]:
        return numbers(text) - numbers(self.given)

    @cached_property
    def given(self) -> str:
        """What the run was given: the task and the agents' instructions."""
        return "\n".join((self.task, *dict.fromkeys(step.instructions for step in self.reading.steps)))

    @cached_property
    def figures(self) -> frozenset[float]:
        """Numbers of the answer that neither the task nor plain arithmetic on its numbers gives."""
        own = self._new_numbers(self.answer)
        told = sorted(numbers(self.task))[:_MOST_PLAIN]
        return frozenset(own - set(plain_results(told))) if own and told else own

    @cached_property
    def is_worked_out(self) -> bool:
        """Whether the answer has numbers, and all of them are given or follow from what is given."""
        return bool(self._new_numbers(self.answer)) and not self.figures

    @cached_property
    def has_source(self) -> bool:
        """Whether the answer has a word or a number that a result gives and the task does not."""
        own = _tokens(self.answer) - _tokens(self.task)
        return not own.isdisjoint(_tokens("\n".join(self.returned)[:HEAD]))

    @cached_property
    def names_what_was_asked_for(self) -> bool:
        """Whether the answer repeats an id that the task gives: the user learns that it leads nowhere."""
        return not frozenset(_ID.findall(self.task)).isdisjoint(_ID.findall(self.answer))


def undelivered(reading: Reading) -> Iterator[Clue]:
    """Yield the clue that the task was not done, or that its answer is from nowhere; at most one."""
    ending = Ending(reading)
    if not ending.answer or is_blind(reading):
        return
    found = _nothing_returned(ending) if ending.missed and not ending.returned else _rest(ending)
    if found is not None:
        yield found


def _nothing_returned(ending: Ending) -> Clue | None:
    """Judge a run in which no call returned anything."""
    last = ending.missed[-1]
    if ending.is_worked_out:
        return None
    if ending.only_evades or Kind.GIVING_UP in ending.kinds:
        is_answer = last.found_nothing and (ending.names_what_was_asked_for or asks_whether(ending.task))
        return None if is_answer else _undone(ending, last, failed=not last.found_nothing)
    if last.found_nothing:
        return _invented(ending, last, {"figures": 1.0}) if ending.figures else None
    if Kind.ADMISSION in ending.kinds and not ending.figures and Kind.CLAIM_DONE not in ending.kinds:
        return _undone(ending, last, failed=True)
    return _invented(
        ending, last, {"figures": float(bool(ending.figures)), "claimed": _is_claimed(ending, last)}
    )


def _is_claimed(ending: Ending, missed: Missed) -> float:
    return float(Kind.CLAIM_DONE in ending.kinds or bool(deed_of(missed.tool)))


def _rest(ending: Ending) -> Clue | None:
    """Judge a run in which some calls returned something, or none failed."""
    lost = next((each for each in reversed(ending.missed) if _is_lost_deed(ending, each)), None)
    if lost is not None:
        return _lost_deed(ending, lost)
    if (found := _never_called(ending) or _unsupported(ending)) is not None:
        return found
    return _only_words(ending)


def _unsupported(ending: Ending) -> Clue | None:
    """Judge an answer that no result supports, after a last call for what the task names failed."""
    steps = ending.reading.steps
    last = ending.missed[-1] if ending.missed else None
    if (
        last is None
        or last.found_nothing
        or ending.has_source
        or ending.kinds & _MISSES
        or not ending.languages
    ):
        return None
    if any(step.kind is StepKind.TOOL for step in steps[last.at + 1 :]):
        return None
    asked = steps[last.at].input[:HEAD]
    if _tokens(asked).isdisjoint(_tokens(ending.task)) or ending.is_worked_out:
        return None
    return _invented(ending, last, {"figures": float(bool(ending.figures))})


def _is_lost_deed(ending: Ending, missed: Missed) -> bool:
    """Tell whether a call that should change something failed, and no later call changed anything."""
    if missed.found_nothing or not deed_of(missed.tool):
        return False
    later = ending.reading.steps[missed.at + 1 :]
    faults = ending.reading.faults[missed.at + 1 :]
    return not any(
        step.kind is StepKind.TOOL and fault is Fault.NONE and not looks_up(step.target or "")
        for step, fault in zip(later, faults, strict=True)
    )


def _lost_deed(ending: Ending, lost: Missed) -> Clue | None:
    if ending.kinds & _MISSES:
        return _undone(ending, lost, failed=True) if Kind.GIVING_UP in ending.kinds else None
    if not ending.languages and Kind.CLAIM_DONE not in ending.kinds:
        return None
    return _invented(ending, lost, {"claimed": 1.0})


def _never_called(ending: Ending) -> Clue | None:
    """Judge a deed that the task asks for and the answer claims, although its tool was never called."""
    steps = ending.reading.steps
    if Kind.CLAIM_DONE not in ending.kinds or asks_whether(ending.task):
        return None
    if any(step.kind is StepKind.TOOL and not looks_up(step.target or "") for step in steps):
        return None
    asked = {word.casefold() for word in _WORD.findall(ending.task)}
    offered = dict.fromkeys(
        line.partition("(")[0].partition(":")[0].strip() for step in steps for line in step.tools.splitlines()
    )
    tool = next((each for each in offered if deed_of(each) in asked), None)
    if tool is None or any(call.name == tool for step in steps for call in step.calls):
        return None
    author = _last_speaker(ending)
    return _clue(
        ending,
        author,
        ClueKind.INVENTED,
        f"said that it was done, but never called {tool}",
        {"claimed": 1.0, "never": 1.0},
    )


def _only_words(ending: Ending) -> Clue | None:
    """Judge the wording of an answer: the weakest sign, looked at if nothing was done."""
    steps = ending.reading.steps
    acted = any(
        step.kind is StepKind.TOOL and fault is Fault.NONE and not looks_up(step.target or "")
        for step, fault in zip(steps, ending.reading.faults, strict=True)
    )
    if acted or ending.missed or not ending.only_evades:
        return None
    author = _last_speaker(ending)
    if Kind.PROMISE in ending.kinds:
        return _clue(
            ending,
            author,
            ClueKind.UNDONE,
            "promised to answer later in place of an answer",
            {"words": 1.0, "promise": 1.0},
        )
    if Kind.GIVING_UP not in ending.kinds or _repeats_a_source(ending):
        return None
    return _clue(ending, author, ClueKind.UNDONE, "gave no answer, only an excuse", {"words": 1.0})


def _repeats_a_source(ending: Ending) -> bool:
    """Tell whether the refusal repeats what a tool returned or the instructions say: then it is an answer."""
    asked = {word.casefold() for word in _WORD.findall(ending.task)}
    own = {
        word.casefold() for word in _WORD.findall(ending.answer) if len(word) > 3 or word.isdigit()
    } - asked
    known = "\n".join((*ending.returned, *(step.instructions for step in ending.reading.steps)))
    sources = {word.casefold() for word in _WORD.findall(known[:HEAD])}
    return len(own & sources) >= _SHORTEST_WORDS


def _undone(ending: Ending, missed: Missed, *, failed: bool) -> Clue:
    what = "failed" if failed else "returned nothing"
    reason = f"called {missed.tool or 'a tool'}, which {what}, and the answer gives nothing in its place"
    return _clue(ending, missed.by, ClueKind.UNDONE, reason, {"failed": float(failed)}, missed=missed)


def _invented(ending: Ending, missed: Missed, signs: dict[str, float]) -> Clue:
    what = "returned nothing" if missed.found_nothing else "failed"
    did = "claimed success" if signs.get("claimed") else "answered"
    reason = f"{did} although {missed.tool or 'the tool'} {what} and nothing replaced it"
    author = _first_to_go_on(ending, missed)
    return _clue(ending, author, ClueKind.INVENTED, reason, signs, missed=missed)


def _first_to_go_on(ending: Ending, missed: Missed) -> int:
    """Return the first step after a failure whose agent neither admits it nor asks for another call."""
    reading = ending.reading
    for place in range(missed.at, len(reading.steps)):
        step = reading.steps[place]
        if step.kind not in _THINKING or step.calls or not reading.texts[place]:
            continue
        if not kinds_said(step.output[:HEAD]) & _MISSES:
            return place
    return _last_speaker(ending)


def _last_speaker(ending: Ending) -> int:
    reading = ending.reading
    spoken = (
        at
        for at in range(len(reading.steps) - 1, -1, -1)
        if reading.steps[at].kind in _THINKING and reading.texts[at]
    )
    return next(spoken, len(reading.steps) - 1)


def _clue(
    ending: Ending,
    at: int,
    kind: ClueKind,
    reason: str,
    signs: dict[str, float],
    *,
    missed: Missed | None = None,
) -> Clue:
    steps = ending.reading.steps
    shown = (
        []
        if missed is None or not missed.text
        else [Evidence(step=steps[missed.at].index, quote=beginning(missed.text, QUOTE))]
    )
    if steps[at].output:
        shown.append(Evidence(step=steps[at].index, quote=beginning(steps[at].output, QUOTE)))
    return Clue(step=steps[at].index, kind=kind, reason=reason, evidence=tuple(shown), signs=signs)


def _missed(reading: Reading) -> Iterator[Missed]:
    """Yield the unrepaired calls, in the order in which the run learns of them."""
    found = [
        Missed(
            at=at,
            by=reading.responsible_steps[at],
            tool=step.target or "",
            text=step.error or step.output.strip(),
            found_nothing=fault is Fault.EMPTY or says_absent(step.error or step.output),
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
            found_nothing=says_absent(fault.text),
        )
        for fault in reading.heard_faults
        if not fault.is_repaired
    ]
    yield from sorted(found, key=lambda each: each.at)


def _tokens(text: str) -> frozenset[str]:
    """Return the telling parts of a text: longer words, numbers, and pairs of characters without blanks."""
    found = {word for word in _WORD.findall(text.casefold()) if len(word) >= _LONG or word.isdigit()}
    dense = {run[at : at + 2] for run in _DENSE.findall(text) for at in range(len(run) - 1)}
    return frozenset(found | dense)


def _texts_of_failures(reading: Reading) -> frozenset[str]:
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
    return frozenset(text[:HEAD].strip() for text in texts)


def _answers(result: str) -> bool:
    """Tell whether a tool's result is an answer: no failure, not empty, nobody who gives up."""
    probe = Step(index=0, agent="", kind=StepKind.TOOL, output=result)
    if reports_failure(result) or fault_of(probe, result) is not Fault.NONE:
        return False
    return said(Kind.GIVING_UP, result[:HEAD]) is None


def asks_whether(task: str) -> bool:
    """Tell whether a task asks whether something exists, or which things do: then nothing is an answer."""
    return said(Kind.ASKS_WHETHER, task[:HEAD]) is not None
