"""Signals on failed and empty results, and on limits of turns.

A root span may end in error although every step below succeeded. Its message is then the only evidence: it
may repeat a step's own error, or name a tool or an agent; otherwise the run broke off after its last step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from analyzer.inquiry.present import beginning
from analyzer.signals.loops import repeated, repeats_of
from analyzer.texts.normalize import normalized
from analyzer.texts.numbers import numbers
from analyzer.texts.run_view import HEAD, QUOTE, Finding, Reading, Role
from analyzer.texts.tool_results import Fault, is_whole_report
from analyzer.texts.wordings import Kind, mentions_fault, said
from semconv.model import SpanStatus, Step, StepKind

_STATED: Final = 4.0
"""Weight of an unrepaired error that its span or the calling agent states: a fact, unlike mere wording."""
_LIMITED: Final = 6.0
"""Weight of the limit of turns: it ended the run, so a wrong answer did not."""
_MOST_NAMES: Final = 3
"""Number of evaluations that a reason names."""
_ERROR_TYPE: Final = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b")


def crash(reading: Reading) -> Iterator[Finding]:
    """Find the failure after which nothing succeeded, so that it ended the run, or a turn of it.

    Nothing in another turn repairs what ended this one: the same tool succeeded for another request. Nor does
    what another agent does at the same time: its thread knows nothing of the failure.
    """
    turn = reading.trajectory.failed_turn
    first, last = turn or (0, len(reading.steps) - 1)
    part = "the run" if turn is None else "its turn"
    group = reading.steps[last].group if reading.steps else None
    sound: set[str] = set()
    for position in range(last, first - 1, -1):
        step = reading.steps[position]
        if step.stop is not None or step.agent in sound:
            continue  # cancelled because of the failure, perhaps
        if reading.faults[position] is not Fault.FAILED:
            if reading.roles[position] is Role.RELAYING:
                continue
            if group is None or step.group != group:
                return
            sound.add(step.agent)
            continue
        if turn or not reading.repaired[position]:
            is_relayed = reading.roles[position] is Role.RELAYING
            yield Finding(
                step=reading.responsible_steps[position],
                quoted_step=position,
                signal="unhandled_error",
                weight=1.5 if is_relayed else 5.0,
                ended_run=not is_relayed and _is_roots(reading, step),
                reason=_broke(reading, position, f"{part} ended without a successful retry"),
                detail=_error_detail(step),
                quote=_fault_quote(step),
            )
            return


def _is_roots(reading: Reading, step: Step) -> bool:
    """Tell whether a step's error is the run's: the same words, or the same type, which wrappers keep."""
    trajectory = reading.trajectory
    if trajectory.root_status is not SpanStatus.ERROR and not trajectory.root_error:
        return False
    ours, theirs = normalized(step.error[:HEAD]), normalized(trajectory.root_error[:HEAD])
    if not ours or not theirs:  # no message tells otherwise
        return True
    types = set(_ERROR_TYPE.findall(step.error[:HEAD])) & set(
        _ERROR_TYPE.findall(trajectory.root_error[:HEAD])
    )
    return bool(types) or ours in theirs or theirs in ours


def unrepaired_fault(reading: Reading) -> Iterator[Finding]:
    """Find failed or empty results that no later step of the same tool or agent repaired."""
    for position, fault in enumerate(reading.faults):
        if fault is Fault.NONE or reading.repaired[position]:
            continue
        step = reading.steps[position]
        failed = fault is Fault.FAILED
        yield Finding(
            step=reading.responsible_steps[position],
            quoted_step=position,
            signal="unrepaired_error" if failed else "empty_result",
            weight=_STATED if _is_stated(reading, position) else 1.0 if failed else 0.8,
            reason=_broke(reading, position, "no later call succeeded in its place"),
            detail=_error_detail(step) if failed else "",
            quote=_fault_quote(step),
        )


def ignored_fault(reading: Reading) -> Iterator[Finding]:
    """Find agents that continue after a failed or empty result as if it had succeeded."""
    for position in range(1, len(reading.steps)):
        before = position - 1
        if reading.faults[before] is Fault.NONE or reading.repaired[before]:
            continue
        text, failed = reading.texts[position], reading.faults[before] is Fault.FAILED
        if reading.roles[position] is not Role.ACTING or not text or mentions_fault(text):
            continue
        if not _goes_on(text, reading.texts[before]):
            continue
        yield Finding(
            step=position,
            signal="ignored_error",
            weight=2.0,
            reason=f"went on although {_what(reading.steps[before])} had"
            f" {'failed' if failed else 'returned nothing'}",
            detail=_error_detail(reading.steps[before]) if failed else "",
            quote=beginning(text, QUOTE),
        )


def heard_fault(reading: Reading) -> Iterator[Finding]:
    """Find unrepaired or ignored failures that only the next model call shows."""
    for fault in reading.heard_faults:
        if fault.is_repaired:
            continue
        words, hearer = _shortened(fault.text, QUOTE), fault.hearer
        yield Finding(
            step=fault.asker,
            quoted_step=hearer,
            signal="unrepaired_error",
            weight=1.0,
            reason=f"called {fault.tool or 'a tool'}, which failed, and no later call succeeded in its place",
            detail=f"The error: {words}",
            quote=beginning(fault.text, QUOTE),
        )
        text = reading.texts[hearer]
        if text and not mentions_fault(text) and _goes_on(text, fault.text):
            yield Finding(
                step=hearer,
                signal="ignored_error",
                weight=2.0,
                reason=f"went on although {fault.tool or 'the tool'} had failed",
                detail=f"The error: {words}",
                quote=beginning(text, QUOTE),
            )


def failed_evaluation(reading: Reading) -> Iterator[Finding]:
    """Find steps that failed an evaluation by a person or a program.

    The evaluator looked at this step, yet not at its effect on the run, so this weighs as much as a step that
    ignores an error.
    """
    for position, step in enumerate(reading.steps):
        if step.failed_evaluations:
            names = ", ".join(step.failed_evaluations[:_MOST_NAMES])
            yield Finding(
                step=position,
                signal="failed_evaluation",
                weight=2.0,
                reason=f"failed the evaluation {_shortened(names, QUOTE)}",
                quote=beginning(reading.texts[position], QUOTE),
            )


def _goes_on(text: str, before: str) -> bool:
    """Say whether a text claims success, or gives numbers that the preceding text lacks."""
    return said(Kind.CONCLUDES, text) is not None or bool(numbers(text) - numbers(before))


def _what(step: Step) -> str:
    if step.kind is StepKind.TOOL:
        return step.target or f"the tool call in step {step.index}"
    return f"step {step.index}"


def _broke(reading: Reading, position: int, ending: str) -> str:
    """Say what went wrong at a step and how it ended, as a predicate of the agent responsible for it."""
    step = reading.steps[position]
    if step.kind is StepKind.OTHER and _STOPPED.search(step.error):
        return f"was stopped by the check {step.target or step.name}"
    return f"{_did(reading, position)}, and {ending}"


def _did(reading: Reading, position: int) -> str:
    step = reading.steps[position]
    failed = reading.faults[position] is Fault.FAILED
    if step.kind is not StepKind.TOOL and reading.responsible_steps[position] == position:
        if step.kind is StepKind.LLM and failed:
            return "made a model call that failed"
        return "failed" if failed else "gave no result"
    if failed and not step.target and CODE_ERROR.search(_error_words(step)):
        return "had code run that failed"
    return f"called {step.target or 'a tool'}, which {'failed' if failed else 'returned nothing'}"


def _is_stated(reading: Reading, position: int) -> bool:
    """Say whether the span states the error, the agent that made the call, or a result that is nothing else.

    In a conversation log any text may be a tool's result, also an agent's words on errors.
    """
    step = reading.steps[position]
    if step.status is SpanStatus.ERROR or step.error or position in reading.failures_told:
        return True
    is_result = step.kind is StepKind.TOOL and not reading.trajectory.is_recorded_conversation
    return is_result and is_whole_report(reading.outputs[position].strip(), step.target or "")


_MESSAGE: Final = re.compile(
    r"[{(].{0,400}?['\"](?:message|error)['\"]\s*:\s*(['\"])(?P<said>[^{}]+?)\1.*", re.DOTALL
)
"""Pattern of a dictionary in an error's text that contains the message."""


_MOST_ERROR: Final = 2_000
"""Characters of an error's message to read."""
_AGAIN: Final = re.compile(r"\b(?:\w+\.)*(\w{3,}): (?=(?:\w+\.)*\1:)")
"""Pattern of an error's class, repeated at the start of the message."""


CODE_ERROR: Final = re.compile(
    r"\b(?:Name|Syntax|Indentation|Type|Attribute|Import|ModuleNotFound|Key|Index|Value|ZeroDivision|UnboundLocal)"
    r"Error\b"
)
"""Errors that a retry of the same code cannot fix."""


_STOPPED: Final = re.compile(r"\btripp?(?:ed|wire)\b", re.IGNORECASE)
"""Errors of guardrails that stopped something (``dialects/reading/guardrails.py``)."""


def _error_words(step: Step) -> str:
    return step.error or _fault_quote(step)


def _error_detail(step: Step) -> str:
    words = _error_words(step)
    return f"The error: {_shortened(words, QUOTE)}" if words else "It recorded no message"


def _shortened(text: str, length: int) -> str:
    """Return a message on one line without its full stop: its first sentence if it is long, else cut."""
    whole = " ".join(_MESSAGE.sub(lambda found: found["said"], text[:_MOST_ERROR]).split())
    whole = _AGAIN.sub("", whole)
    if len(whole) > length and (end := _ENDS.search(whole, _ENOUGH_CHARS, length)):
        return whole[: end.start()]
    shown = beginning(whole, length)
    return whole.rstrip(".") if shown == whole else f"{shown.rstrip(' .,:;')}…"


def _fault_quote(step: Step) -> str:
    lines = [line.strip() for line in step.output[:HEAD].splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"error|exception|fail|exit", line, re.IGNORECASE)]
    return beginning(telling[-1] if telling else lines[0] if lines else "", QUOTE)


_ENOUGH_CHARS: Final = 20
"""Number of characters from which the first sentences of an error are enough."""
_ENDS: Final = re.compile(r"\.(?=\s[A-Z])")
_TELLING: Final = 4
"""Characters of an error or name below which a match may be chance."""
_SHOWN: Final = 160
_JUDGES_ANSWER: Final = re.compile(
    r"\b(?:answer|expected|assert\w*|mismatch|incorrect|wrong|score|graded?|evaluat\w+)\b", re.IGNORECASE
)
"""Words of a root error that rates the run's answer and points to no step."""


def root_error(reading: Reading) -> Iterator[Finding]:
    """Find the step whose error the root error repeats or that it names; else the last step."""
    trajectory = reading.trajectory
    is_over = trajectory.root_status is SpanStatus.ERROR or trajectory.failed_turn is not None
    if not is_over or not trajectory.root_error or not reading.steps:
        return
    error = normalized(trajectory.root_error[:HEAD])
    if _LIMIT.search(trajectory.root_error[:HEAD]):
        return  # ``turn_limit`` finds the agent that used up the turns
    words = _shortened(trajectory.root_error, _SHOWN)
    first, last = trajectory.failed_turn or (0, len(reading.steps) - 1)
    part = "the run" if trajectory.failed_turn is None else "its turn"
    places = range(last, first - 1, -1)
    for position in places:
        if reading.faults[position] is Fault.FAILED and _repeats(reading.steps[position], error):
            yield _finding(reading, position, 3.0, f"raised the error that ended {part}", words)
            return
    for position in places:
        if _names(error, reading.steps[position]):
            yield _finding(reading, position, 2.0, f"was named in the error that ended {part}", words)
            return
    if (
        not _JUDGES_ANSWER.search(trajectory.root_error)
        and Fault.FAILED not in reading.faults[first : last + 1]
    ):
        reason = f"acted last before {part} ended with an error that no step recorded"
        yield _finding(reading, last, 1.5, reason, words)


def _finding(reading: Reading, position: int, weight: float, reason: str, words: str) -> Finding:
    return Finding(
        step=reading.responsible_steps[position],
        quoted_step=position,
        signal="unhandled_error",
        weight=weight,
        reason=reason,
        detail=f"The error: {words}",
    )


def _repeats(step: Step, error: str) -> bool:
    own = normalized(step.error[:HEAD] or step.output[:_SHOWN])
    return min(len(own), len(error)) >= _TELLING and (own in error or error in own)


def _names(error: str, step: Step) -> bool:
    names = (normalized(name or "") for name in (step.target, step.agent))
    return any(len(name) >= _TELLING and f" {name} " in f" {error} " for name in names)


_LAST: Final = 3
"""Steps at the end of a run that may state its limit of turns."""
_LIMIT: Final = re.compile(
    r"\b(?:max(?:imum)?|limit of|too many)[ _-]?(?:number of |the )?"
    r"(?:turns?|iterations?|steps?|rounds?|recursions?|tool[ _]calls?|loops?)\b"
    r"|\b(?:recursion|turn|step|iteration|round|request)s?[ _-]?limit\b"
    r"|\b(?:MaxTurnsExceeded|GraphRecursionError|UsageLimitExceeded)",
    re.IGNORECASE,
)
"""Words of an error that ends a run because it took too many turns."""


def turn_limit(reading: Reading) -> Iterator[Finding]:
    """Find the agent that was at work when the run reached its limit of turns: it made no progress.

    A call repeated without a new result explains the limit; otherwise the last active agent used it up.
    """
    words = _limit_words(reading)
    if not words:
        return
    first, last = reading.trajectory.failed_turn or (0, len(reading.steps) - 1)
    longest = max((each for each in repeats_of(reading) if first <= each[0] <= last), key=len, default=())
    acting = [at for at, role in enumerate(reading.roles) if role is Role.ACTING and first <= at <= last]
    if len(longest) > 1:
        step, doing = longest[1], f"{repeated(reading, longest)}, until the run"
    elif acting:
        step, doing = acting[-1], "was still working when the run"
    else:
        return
    yield Finding(
        step=step,
        signal="turn_limit",
        weight=_LIMITED,
        reason=f"{doing} reached its limit of turns",
        detail=f"The error: {words}",
    )


def _limit_words(reading: Reading) -> str:
    last = [step.error for step in reading.steps[-_LAST:]]
    for error in (reading.trajectory.root_error, *reversed(last)):
        if _LIMIT.search(error[:HEAD]):
            return _shortened(error, _SHOWN)
    return ""
