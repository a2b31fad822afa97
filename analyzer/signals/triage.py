"""Triage: did the run fail? Cheap, without a model, before attribution.

The claims are checked in order of authority: the outcome stated by the run or an evaluator in it, the correct
answer if known, the user's own rules, an error that ended the run, and last an error that nothing repaired,
after which the answer gives nothing. The first claim with a result decides. A run without any claim is
``no_failure``; how its answer sounds may make it suspected (``suspicion.undelivered``). A run that waits or
was cancelled has no result yet: only an outcome that somebody stated comes before that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from analyzer.inquiry.verdict import NOTHING_SAYS_SO
from analyzer.signals.suspicion.ending import Ending
from analyzer.texts.run_view import Reading, final_answer
from analyzer.texts.tool_results import says_absent
from collector_processor.core.patterns import compile_pattern
from semconv.model import (
    UNKNOWN_AGENT,
    ContentState,
    Outcome,
    OutcomeSource,
    SpanStatus,
    Status,
    Step,
    StepKind,
    Stop,
    Trajectory,
    agent_in_prose,
)

_TOKEN: Final = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?|[^\W\d_]+")
_ARTICLES: Final = frozenset({"a", "an", "the"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of triage."""

    failed: bool
    source: OutcomeSource | None
    """Source of the result; ``None`` if no claim applied."""
    reason: str
    status: Status = Status.NO_FAILURE
    """Status of a run that did not fail."""


_STATED_BY: Final = {OutcomeSource.EVALUATOR: "an evaluator", OutcomeSource.USER: "a person"}

Claim: TypeAlias = Callable[[Trajectory], Finding | None]
"""Returns its result for a run, or ``None`` if it does not apply. Users register their own."""


def triage(trajectory: Trajectory, rules: Sequence[Claim] = ()) -> Finding:
    """Decide whether a run failed; ``rules`` are the user's own claims."""
    for claim in (
        recorded,
        stated,
        ended_on_purpose,
        against_reference,
        *rules,
        ended_by_error,
        left_undone,
    ):
        finding = claim(trajectory)
        if finding is not None:
            return finding
    return Finding(failed=False, source=None, reason=NOTHING_SAYS_SO)


def worth_a_model(trajectory: Trajectory) -> bool:
    """Tell whether the run has an agent or a workflow; a lone model call is not attributed."""
    named = any(step.agent != UNKNOWN_AGENT for step in trajectory.steps)
    worked = any(step.kind in (StepKind.TOOL, StepKind.HANDOFF, StepKind.AGENT) for step in trajectory.steps)
    return named or worked


def output_matching(pattern: str, *, failed: bool = True) -> Claim:
    """Return the rule that a run whose final answer matches ``pattern`` failed (or did not).

    Raises:
        ValueError: the pattern is not a valid RE2 regular expression.
    """
    compiled = compile_pattern(pattern)
    said = "matches" if failed else "matches, as a right one should,"

    def claim(trajectory: Trajectory) -> Finding | None:
        if not compiled.search(final_answer(trajectory)):
            return None
        return Finding(
            failed=failed, source=OutcomeSource.USER, reason=f"the final answer {said} the rule {pattern!r}"
        )

    return claim


def recorded(trajectory: Trajectory) -> Finding | None:
    """Claim failure for every recorded conversation log: such logs are recorded because the runs failed."""
    if not trajectory.is_recorded_conversation:
        return None
    return Finding(failed=True, source=None, reason="a recorded conversation log is taken as a failure")


def stated(trajectory: Trajectory) -> Finding | None:
    """Claim the outcome that the run itself, or an evaluator in it, states."""
    if trajectory.outcome is None:
        return None
    source = trajectory.outcome_source
    who = _STATED_BY.get(source, "the run") if source else "the run"
    return Finding(
        failed=trajectory.outcome is Outcome.FAILURE,
        source=source or OutcomeSource.USER,
        reason=f"{who} states its outcome: {trajectory.outcome}",
    )


def ended_on_purpose(trajectory: Trajectory) -> Finding | None:
    """Claim that a run which waits, was cancelled or was stopped by a guardrail has not failed."""
    steps, stop = trajectory.steps, trajectory.stop
    if stop is None:
        return None
    last = next((step for step in reversed(steps) if step.stop is stop), None)
    match stop:
        case Stop.WAITING:
            status, reason = Status.WAITING, f"the run waits for {_awaited(last)}"
        case Stop.CANCELLED:
            status, reason = Status.CANCELLED, f"the run was cancelled by its caller{_when(last, steps)}"
        case _:
            status, reason = Status.NO_FAILURE, f"{_check(last)} stopped the run, as it is there to do"
    return Finding(failed=False, source=OutcomeSource.ERROR, reason=reason, status=status)


def _awaited(step: Step | None) -> str:
    if step is None:
        return "a person, or for a result that its caller brings"
    if step.kind is StepKind.TOOL and step.target:
        return f"a person's approval of {step.target} (step {step.index})"
    return f"a person's answer (step {step.index} of {agent_in_prose(step.agent)})"


def _when(step: Step | None, steps: Sequence[Step]) -> str:
    if step is not None:
        return f" while step {step.index} of {agent_in_prose(step.agent)} was running"
    return f" after step {steps[-1].index} of {agent_in_prose(steps[-1].agent)}" if steps else ""


def _check(step: Step | None) -> str:
    name = (step.target or step.name) if step is not None and step.kind is StepKind.OTHER else ""
    return f"the check {name}" if name else "a guardrail"


def against_reference(trajectory: Trajectory) -> Finding | None:
    """Compare the final answer with the correct one, if both are known."""
    answer = final_answer(trajectory)
    if not trajectory.reference or not answer:
        return None
    right = answers(answer, trajectory.reference)
    verb = "gives" if right else "does not give"
    return Finding(
        failed=not right,
        source=OutcomeSource.REFERENCE,
        reason=f"the final answer {verb} the right one ({_shortened(trajectory.reference)})",
    )


def ended_by_error(trajectory: Trajectory) -> Finding | None:
    """Claim failure for an error of the run, a turn or the last step: roots may say OK after a crash."""
    if _was_answered_before(trajectory):
        return None
    if trajectory.root_status is SpanStatus.ERROR or trajectory.root_error:
        words = _shortened(trajectory.root_error) or "no message"
        how = "the run ended in an error"
        if trajectory.failed_turn is not None:
            turn = "steps {} to {}".format(*trajectory.failed_turn)
            how = f"the turn of {turn} ended in an error that no later turn makes good"
        return Finding(failed=True, source=OutcomeSource.ERROR, reason=f"{how}: {words}")
    last = trajectory.steps[-1] if trajectory.steps else None
    if last is None or not last.is_failed:
        return None
    words = _shortened(last.error) or "no message"
    step = f"the last step, {last.index} of {agent_in_prose(last.agent)},"
    return Finding(
        failed=True,
        source=OutcomeSource.ERROR,
        reason=f"{step} failed, and nothing came after it: {words}",
    )


def _was_answered_before(trajectory: Trajectory) -> bool:
    """Tell whether a limit or a filter ended only what a model wrote beside the answer, such as a title.

    The root states the answer, and an earlier step gave it; a call that ended in an error wrote nothing.
    """
    answer, last = trajectory.output.strip(), trajectory.steps[-1] if trajectory.steps else None
    if last is None or last.kind is not StepKind.LLM or not last.output or not answer:
        return False
    if trajectory.root_status is SpanStatus.ERROR or trajectory.failed_turn is not None:
        return False
    return any(answer in step.output and not step.is_failed for step in trajectory.steps[:-1])


def left_undone(trajectory: Trajectory) -> Finding | None:
    """Claim failure if an agent's work failed permanently, and the final answer lacks its result.

    The caller of a failed agent often receives the failure as a result, and the run ends normally.
    """
    ending = Ending(trajectory)
    lost = _lost_work(ending.reading)
    if lost is None or (trajectory.output and not ending.evades(ending.answer)):
        return None
    if says_absent(lost.error or lost.output) and ending.is_answered_by_nothing:
        return None
    is_later = bool(trajectory.output) or any(step.output for step in trajectory.steps[lost.index + 1 :])
    said = ending.answer if is_later else ""  # words from before the failure are no answer
    if not ending.evades(said):
        return None
    how = f"only says {_shortened(said)!r}" if said else "is missing or not recorded"
    reason = (
        f"step {lost.index} of {agent_in_prose(lost.agent)} failed, no later call succeeded in its place,"
        f" and the final answer {how}"
    )
    return Finding(failed=True, source=OutcomeSource.HEURISTIC, reason=reason)


class _Lost(NamedTuple):
    """A failure: its step, the position after which the run knows of it, and whether it was repaired."""

    step: int
    after: int
    is_repaired: bool


def _lost_work(reading: Reading) -> Step | None:
    """Return the last unrepaired failed step, if at most one agent speaks after it and no tool runs.

    A tool's failure that no step shows counts at the call that requested it. Also ``None`` if later texts are
    not recorded, unless the failed step is a model call: its agent's whole work is lost, whatever the caller
    says. In a run without any text, a failed model call is no evidence either: the caller may have recovered.
    """
    steps = reading.steps
    seen = [_Lost(at, at + 1, reading.repaired[at]) for at, step in enumerate(steps) if step.is_failed]
    heard = [_Lost(fault.asker, fault.hearer, fault.is_repaired) for fault in reading.heard_faults]
    last = max([*seen, *heard], key=lambda each: each.after, default=None)
    if last is None or last.is_repaired:
        return None
    lost, after = steps[last.step], steps[last.after :]
    is_dark = any(not step.output and step.content is not ContentState.COMPLETE for step in after)
    speakers = {step.agent for step in after}
    acted = any(step.kind is StepKind.TOOL for step in after)
    is_whole = lost.kind is StepKind.LLM and lost.is_failed and any(step.output for step in steps)
    return None if (is_dark and not is_whole) or acted or len(speakers) > 1 else lost


def answers(output: str, reference: str) -> bool:
    """Tell whether an answer contains all words and numbers of the correct one, in any order and form.

    Numbers are compared by value (``1,080.0`` is ``1080``), words without case and articles.
    """
    wanted, given = _tokens(reference), _tokens(output)
    if not wanted:
        return output.strip() == reference.strip()
    return wanted <= given


def _tokens(text: str) -> frozenset[str | float]:
    tokens: set[str | float] = set()
    for token in _TOKEN.findall(text.casefold()):
        if token[0].isdecimal():
            tokens.add(float(token.replace(",", "")))
        elif token not in _ARTICLES:
            tokens.add(token)
    return frozenset(tokens)


def _shortened(text: str) -> str:
    return " ".join(text.split())[:160]
