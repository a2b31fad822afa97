"""Evidence per step with no model: what a careful reader would mark in the margin.

Each signal is a function from a ``Reading`` to findings; a finding says which
step, why, in words, and with what weight. Weights are log-odds chosen by
reasoning about how often such a mark means the decisive error, not fitted to
labels: 4 and more for what is wrong beyond dispute (a sum that does not add up,
the crash that ended the run), 1 to 2 for what usually matters, below 1 for what
often does not. Findings may be negative: reasons not to blame.

Cost: no calls; linear in the text, microseconds to a few milliseconds a run.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from analyzer.denial import disowned
from analyzer.ending import root_error
from analyzer.figures import derivable, numbers, said_figures, written_out
from analyzer.finding import Finding, Signal
from analyzer.folding import Sought, folded, outside_code
from analyzer.reading import HEAD, Fault, Reading, Role, final_answer
from analyzer.sums import WrongSum, wrong_sums
from analyzer.wording import CLAIMS_DONE, gave_up, hedging, made_up, unverified_claim
from semconv.model import SpanStatus, Step, StepKind

_QUOTE: Final = 160
_STATED: Final = 4.0
"""An error that the span itself states, and nothing mends: a fact, where words are only a mark."""
_MOST_FIGURES: Final = 40
_RECENT_FIGURES: Final = 12
_LONGEST_VALUE: Final = 12
"""Words beyond which an answer is prose around a result."""
_LONGEST_ANSWER: Final = 200
_MOST_RESULTS: Final = 4
"""Phrases set off beyond which an answer is a report, and they are its headings."""
_SAYS_SOMETHING: Final = re.compile(r"\d|(?<=[a-z,;:] )[A-Z]\w|[\"“”]")
"""A figure, a name or a quotation: without any of them a sentence only closes the talk."""
_SET_OFF: Final = re.compile(r"\*\*([^*\n]{2,80})(?<![:\s])\*\*(?!\s?:)|\\boxed\{([^{}\n]{1,80})\}")
_ADMITS_FAULT: Final = re.compile(
    r"\b(?:error|fail\w*|issue|exception|did(?:n't| not)|could(?:n't| not)|unable|empty|nothing|no results?"
    r"|not found|unavailable|timed? ?out|retry\w*|again|instead|wrong|incorrect|unexpected"
    r"|fix\w*|correct(?:ed)?)\b",
    re.IGNORECASE,
)


def crash(reading: Reading) -> Iterator[Finding]:
    """The failure after which nothing succeeded: it ended the run."""
    for position in range(len(reading.steps) - 1, -1, -1):
        if reading.faults[position] is not Fault.FAILED:
            if reading.roles[position] is not Role.RELAYING:
                return
            continue
        if not reading.repaired[position]:
            step = reading.steps[position]
            yield Finding(
                step=reading.authors[position],
                quoted_step=position,
                signal="unhandled_error",
                weight=5.0 if reading.roles[position] is not Role.RELAYING else 1.5,
                reason=f"{_what(step)} failed, nothing mended it, the run ended: {_error_words(step)}",
                quote=_fault_quote(step),
            )
            return


def unrepaired_fault(reading: Reading) -> Iterator[Finding]:
    """A failed or empty result that no later step of the same tool or agent made good."""
    for position, fault in enumerate(reading.faults):
        if fault is Fault.NONE or reading.repaired[position]:
            continue
        step = reading.steps[position]
        failed = fault is Fault.FAILED
        yield Finding(
            step=reading.authors[position],
            quoted_step=position,
            signal="unrepaired_error" if failed else "empty_result",
            weight=_STATED if _states_error(step) else 1.0 if failed else 0.8,
            reason=f"{_what(step)} {'failed' if failed else 'returned nothing'} and was not repaired later"
            + (f": {_error_words(step)}" if failed else ""),
            quote=_fault_quote(step),
        )


def ignored_fault(reading: Reading) -> Iterator[Finding]:
    """An agent that goes on after a failed or empty result as if there had been one."""
    for position in range(1, len(reading.steps)):
        before = position - 1
        if reading.faults[before] is Fault.NONE or reading.repaired[before]:
            continue
        text = reading.texts[position]
        if reading.roles[position] is not Role.ACTING or not text or _ADMITS_FAULT.search(text):
            continue
        if not CLAIMS_DONE.search(text) and not numbers(text) - numbers(reading.texts[before]):
            continue
        yield Finding(
            step=position,
            signal="ignored_error",
            weight=2.0,
            reason=f"went on as if {_what(reading.steps[before])} had given a result, though it had not",
            quote=text[:_QUOTE],
        )


def wrong_sum(reading: Reading) -> Iterator[Finding]:
    """A calculation that does not add up, where it is first made.

    Not where it is only repeated from the task or a person, or quoted to be denied:
    then whoever stated its result before is marked. What a tool returns excuses
    nobody: its text is anybody's, and an agent that takes over a sum answers for it.
    """
    seen = {error.stated for error in wrong_sums(reading.trajectory.task[:HEAD])}
    for position, step in enumerate(reading.steps):
        relayed = reading.roles[position] is Role.RELAYING
        if relayed and step.kind is not StepKind.HUMAN:
            continue
        entered = step.input[:HEAD] if step.kind is StepKind.TOOL else ""
        for text, written in ((reading.outputs[position], step.output), (entered, entered)):
            for error in wrong_sums(text):
                if error.stated in seen:
                    continue
                if not relayed and disowned(text, error.start, error.end, error.stated):
                    yield from _refuted(reading, position, error)
                    continue
                seen.add(error.stated)
                if not relayed:
                    yield Finding(
                        step=position,
                        signal="wrong_computation",
                        weight=6.0,
                        reason=f"the calculation “{error.quote}” is wrong: it gives {error.right:g}",
                        quote=written[error.start : error.end],
                    )


def _refuted(reading: Reading, position: int, error: WrongSum) -> Iterator[Finding]:
    """The first agent that stated what a later step shows to be a wrong result."""
    if reading.roles[position] is Role.CALL or error.stated in _ordinary(reading.trajectory.task):
        return  # what a tool returns accuses nobody either
    for earlier in range(position):
        acts = reading.roles[earlier] in (Role.ACTING, Role.COORDINATING)
        if acts and error.stated in numbers(reading.outputs[earlier]):
            yield Finding(
                step=earlier,
                quoted_step=position,
                signal="wrong_computation",
                weight=3.0,
                reason=f"states {error.stated:g}, and “{error.quote}” is wrong, as a later step says:"
                f" it gives {error.right:g}",
                quote=error.quote,
            )
            return


def unsupported_figure(reading: Reading) -> Iterator[Finding]:
    """A figure of the final answer that appears from nowhere: no tool, person or input showed it.

    The run failed, so its answer is taken to be wrong; the step that brought the
    figure in is where it went wrong. A figure that two plain operations on known
    ones give may have been worked out, and counts for less.
    """
    answer = said_figures(_answer(reading)) - _ordinary(reading.trajectory.task)
    if not answer or len(answer) > _MOST_FIGURES:
        return  # no figures, or a dump, not an answer
    known = _known(reading.trajectory.task[:HEAD])
    recent = deque(sorted(known), maxlen=_RECENT_FIGURES)
    blamed: set[float] = set()
    for position, step in enumerate(reading.steps):
        if not answer - known - blamed:
            return
        entered = _known(step.input[:HEAD])
        recent.extend(sorted(entered - known))
        known |= entered
        stated = numbers(reading.outputs[position])
        scaled = written_out(reading.outputs[position]) if stated else {}
        if reading.roles[position] in (Role.ACTING, Role.COORDINATING):
            same = {value for value, full in scaled.items() if full in known}
            for value in sorted((answer & stated) - known - blamed - same):
                blamed.add(value)
                worked_out = derivable(value, recent)
                yield Finding(
                    step=position,
                    signal="unsupported_figure",
                    weight=0.8 if worked_out else 3.0,
                    reason=f"brings in {value:g}, which ends up in the answer and which "
                    + (
                        "can only have been worked out here"
                        if worked_out
                        else "nothing before it shows or gives"
                    ),
                    quote=_around(step.output, value),
                )
        recent.extend(sorted(stated - known))
        known |= stated | set(scaled.values())


def answer_origin(reading: Reading) -> Iterator[Finding]:
    """Where the answer of a failed run first appears: everything after it repeats it.

    What an agent's own call returned is supported, right or wrong: it marks no one.
    """
    for stated in _stated_answers(_answer(reading)):
        sought = Sought(folded(stated))
        if sought.is_in(reading.trajectory.task):
            continue
        position = next((place for place, text in enumerate(reading.texts) if sought.is_in(text)), None)
        if position is None or reading.roles[position] in (Role.STATING, Role.CALL):
            continue
        author = reading.authors[position]
        yield Finding(
            step=author,
            signal="answer_origin",
            weight=1.5 if author == position else 1.0,
            reason="the answer that the run ended with, and failed with, first appears here"
            if author == position
            else "what this step asked for gave the answer that the run ended with, and failed with",
            quote=_verbatim(reading.steps[position].output, stated),
            quoted_step=position,
        )


def _stated_answers(text: str) -> tuple[str, ...]:
    """What an answer gives as its result: all of it if it is short, else what its prose sets off.

    A sentence that counts, names and quotes nothing is no result: it closes the talk.
    """
    prose = "".join(outside_code(text))
    is_value = len(text.split()) <= _LONGEST_VALUE
    if is_value or (len(text) <= _LONGEST_ANSWER and _SAYS_SOMETHING.search(prose)):
        found: tuple[str, ...] = (text,)
    else:
        found = tuple(dict.fromkeys(match[1] or match[2] for match in _SET_OFF.finditer(prose)))
    results = tuple(value for value in found if 3 <= len(folded(value)) <= _LONGEST_ANSWER)
    return results if len(results) <= _MOST_RESULTS else ()


def right_answer_seen(reading: Reading) -> Iterator[Finding]:
    """With the right answer known: while it stood in the run, the run could still succeed."""
    reference = folded(reading.trajectory.reference or "")
    sought = Sought(reference)
    if len(reference) < 3 or sought.is_in(reading.trajectory.task):
        return
    last = max((i for i, text in enumerate(reading.texts) if sought.is_in(text)), default=-1)
    for position in range(last + 1):
        yield Finding(
            step=position,
            signal="right_answer_seen",
            weight=-1.5,
            reason=f"the right answer still stood in the run at step {last}",
        )


def repetition(reading: Reading) -> Iterator[Finding]:
    """The same call, or the same words, once more: a loop.

    A call that gave its result is done again for nothing: the repeat is marked. Words that
    brought nothing led into the loop: they are marked where they are first said. Trying
    again what failed is no loop: a fault since the last time excuses it.
    """
    first: dict[tuple[str, str, str], int] = {}
    marked: set[tuple[str, str, str]] = set()
    last_fault = -1
    for position, step in enumerate(reading.steps):
        if position and reading.faults[position - 1] is not Fault.NONE:
            last_fault = position - 1
        said = (
            reading.texts[position]
            if step.kind is not StepKind.TOOL
            else f"{step.target} {step.input[:HEAD]}"
        )
        if reading.roles[position] is Role.RELAYING or len(said) < 20:
            continue
        key = (step.agent, step.kind, said)
        if key in first and key not in marked and last_fault < first[key]:
            marked.add(key)
            yield _loop(reading, first[key], position, said)
        first.setdefault(key, position)


def _loop(reading: Reading, first: int, again: int, said: str) -> Finding:
    words = reading.steps[first].kind is not StepKind.TOOL
    led_nowhere = words and reading.steps[first + 1].kind is not StepKind.TOOL
    return Finding(
        step=first if led_nowhere else again,
        signal="loop",
        weight=0.7,
        reason=f"led nowhere: step {again} does it again, with the same words"
        if led_nowhere
        else f"does again what step {first} did, with the same words",
        quote=said[:_QUOTE] if words else "",
    )


SIGNALS: Final[tuple[Signal, ...]] = (
    crash,
    root_error,
    unrepaired_fault,
    ignored_fault,
    wrong_sum,
    unsupported_figure,
    answer_origin,
    right_answer_seen,
    made_up,
    hedging,
    gave_up,
    repetition,
    unverified_claim,
)


def findings(reading: Reading, signals: Sequence[Signal] = SIGNALS) -> tuple[Finding, ...]:
    """Collect every signal's findings, in the order of the signals."""
    return tuple(finding for signal in signals for finding in signal(reading))


def _answer(reading: Reading) -> str:
    return final_answer(reading.trajectory)[:HEAD]


def _known(text: str) -> set[float]:
    found = numbers(text)
    return {*found, *written_out(text).values()} if found else set()


def _ordinary(task: str) -> frozenset[float]:
    """Figures that say nothing: those of the task, and the smallest whole numbers (list markers)."""
    return numbers(task[:HEAD]) | frozenset(float(n) for n in range(4))


def _what(step: Step) -> str:
    if step.kind is StepKind.TOOL:
        return f"the tool {step.target}" if step.target else f"{step.agent}'s call"
    return f"{step.agent}'s step"


def _states_error(step: Step) -> bool:
    return step.status is SpanStatus.ERROR or bool(step.error)


def _error_words(step: Step) -> str:
    return (step.error or _fault_quote(step) or "no message")[:_QUOTE]


def _fault_quote(step: Step) -> str:
    lines = [line.strip() for line in step.output[:HEAD].splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"error|exception|fail|exit", line, re.IGNORECASE)]
    return (telling[-1] if telling else lines[0] if lines else "")[:_QUOTE]


def _around(text: str, value: float) -> str:
    shown = f"{value:,.10g}" if f"{value:,.10g}" in text else f"{value:.10g}"
    at = text.find(shown)
    return text[max(0, at - 60) : at + 60].strip() if at >= 0 else ""


def _verbatim(text: str, wanted: str) -> str:
    wanted = wanted.strip(" \t\r\n.!*`\"'")
    at = text.casefold().find(wanted.casefold())
    return text[at : at + len(wanted)][:_QUOTE] if at >= 0 else ""
