"""Wording of verdicts by findings: the mode, and a sentence each for cause, evidence and remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from analyzer.inquiry.verdict import FailureMode
from analyzer.lineage.slips import miscalculated
from analyzer.signals.faults import CODE_ERROR
from analyzer.signals.suspicion import MOST_STEPS
from analyzer.texts.run_view import Finding, Reading
from semconv.model import UNKNOWN_AGENT, Blame, Evidence, Ranked, Step, StepKind, Trajectory, agent_in_prose

_MODES: Final[dict[str, FailureMode]] = {
    "unhandled_error": FailureMode.UNHANDLED_ERROR,
    "unrepaired_error": FailureMode.UNHANDLED_ERROR,
    "empty_result": FailureMode.INCOMPLETE_WORK,
    "ignored_error": FailureMode.IGNORED_RESULT,
    "failed_evaluation": FailureMode.UNVERIFIED_RESULT,
    "wrong_computation": FailureMode.WRONG_COMPUTATION,
    "unsupported_figure": FailureMode.UNSUPPORTED_CLAIM,
    "answer_origin": FailureMode.UNSUPPORTED_CLAIM,
    "made_up_data": FailureMode.UNSUPPORTED_CLAIM,
    "hedging": FailureMode.UNVERIFIED_RESULT,
    "gave_up": FailureMode.GAVE_UP,
    "loop": FailureMode.LOOP,
    "turn_limit": FailureMode.LOOP,
    "unverified_claim": FailureMode.UNVERIFIED_RESULT,
}
_FIXES: Final[dict[str, str]] = {
    "unhandled_error": "Retry {tool} when it fails, and tell {agent} to report an error that stays.",
    "unrepaired_error": "Have {agent} retry {tool} with other arguments, or report that it failed.",
    "empty_result": "Tell {agent} to treat an empty result of {tool} as a failure and to ask differently.",
    "ignored_error": "Tell {agent} to stop when a call fails or returns nothing, instead of going on.",
    "failed_evaluation": "Have {agent} check its work by what the evaluation asks for before it goes on.",
    "wrong_computation": "Give {agent} a calculator tool, and tell it to copy the tool's result.",
    "unsupported_figure": "Tell {agent} to take each number from a tool's result, and check that it did.",
    "deed": "Let {agent} say what a call will change, and have the user agree before it calls.",
    "answer_origin": "Check the answer of {agent} against the results of its tools before it is passed on.",
    "made_up_data": "Tell {agent} to look data up, and to say what is missing instead of assuming it.",
    "hedging": "Tell {agent} to verify a guess with a tool before it answers.",
    "gave_up": "Give {agent} another source or tool for this, or let it hand over instead of giving up.",
    "loop": "Stop {agent} after two equal calls or answers, and make it change its approach or hand over.",
    "turn_limit": "Tell {agent} to report after two equal results, instead of trying until the limit.",
    "unverified_claim": "Have a tool or a second agent check the result of {agent} before it counts as done.",
}
_UNTOLD_FIX: Final = (
    "Read the first steps, or ask again with the right answer (--reference) or with a model (--model)."
)
_CODE_FIX: Final = "Have {agent} correct its code and run it again, or report the error, before it goes on."
_COPY_FIX: Final = "Tell {agent} to copy the result of {tool} as it stands, and to compare both."
_MODEL_FIX: Final = "Retry {agent}'s model call when the provider fails, or give {agent} a fallback model."
_REMEDIES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE), fix)
    for pattern, fix in (
        (
            r"context[ _](?:length|window)|maximum context|prompt is too long|too many tokens|token limit",
            "Send the model of {agent} less: drop old turns and long results, or use a larger context.",
        ),
        (
            r"\b(?:content[ _]filter|ResponsibleAIPolicy|provider's filter stopped|model refused to answer)",
            "Ask {agent} in other words, or give it another model: a retry is stopped again.",
        ),
        (
            r"\b40[13]\b|unauthori[sz]ed|forbidden|invalid (?:api )?key|permission denied|authentication",
            "Check the credentials and rights of {tool}: a retry fails again.",
        ),
        (
            r"JSONDecodeError|ValidationError|invalid JSON|not valid JSON|output validation|failed to parse",
            "Show {agent} the error and the expected form, and let it answer once more.",
        ),
        (
            r"\bquota|billing|insufficient (?:credit|funds|balance)",
            "Raise the quota that {tool} needs, or give {agent} a fallback.",
        ),
    )
)
"""Fixes for errors that a retry does not mend, by the words of the error; the first that fits."""
_TOOL_FIX: Final = "Correct {tool}: it fails each time that it is called in this way."
_FAILED_CALLS: Final = frozenset({"unhandled_error", "unrepaired_error"})
_FOLLOWS: Final = {"wrong_computation": frozenset({"unsupported_figure", "answer_origin"})}
"""Findings that only repeat another finding on the step."""
_SHOWN: Final = 3
_MOST_REASONS: Final = 2


def blame_first(found: Sequence[Finding], ranking: tuple[Ranked, ...], trajectory: Trajectory) -> Blame:
    """Blame the first step of a ranking.

    The reason has one sentence for the cause, the strongest finding on the step, and one for the evidence:
    its detail, or else the next finding of another kind. The fix describes the remedy.
    """
    first = ranking[0]
    mine = sorted(
        (f for f in found if f.step == first.step and f.weight > 0 and f.reason), key=lambda f: -f.weight
    )
    repeats = _FOLLOWS.get(mine[0].signal, frozenset()) if mine else frozenset()
    mine = [f for f in mine if f.signal not in repeats]
    kinds = {_MODES.get(f.signal, FailureMode.OTHER): f for f in reversed(mine)}  # the strongest of each kind
    findings = [f for f in mine if kinds[_MODES.get(f.signal, FailureMode.OTHER)] is f][:_MOST_REASONS]
    return Blame(
        agent=first.agent,
        step=first.step,
        reason=_reason(subject_of(trajectory.steps[first.step]), findings),
        confidence=first.probability,
        fix=_fix(mine[0], first.agent, trajectory.steps) if mine else _UNTOLD_FIX,
        mode=_MODES.get(mine[0].signal, FailureMode.OTHER).value if mine else "",
        evidence=_evidence(findings, mine),
        ranking=ranking,
    )


def _reason(subject: str, findings: Sequence[Finding]) -> str:
    if not findings:
        return f"No evidence singles out a step. {subject} comes first because runs most often break early."
    second = findings[0].detail or (f"It also {findings[1].reason}" if len(findings) > 1 else "")
    sentences = (f"{subject} {findings[0].reason}", second)
    return " ".join(one if one.endswith("…") else f"{one}." for one in sentences if one)


def _evidence(findings: Sequence[Finding], mine: Sequence[Finding]) -> tuple[Evidence, ...]:
    """Return the quotes, those of the findings in the reason first, without quotes contained in others."""
    found = dict.fromkeys([*findings, *mine[:_SHOWN]])
    quotes = [(f.step if f.quoted_step is None else f.quoted_step, f.quote) for f in found if f.quote]
    kept = [
        (step, quote)
        for place, (step, quote) in enumerate(quotes)
        if not any(
            step == other and quote in longer and (quote != longer or at < place)
            for at, (other, longer) in enumerate(quotes)
            if at != place
        )
    ]
    return tuple(Evidence(step=step, quote=quote) for step, quote in sorted(kept[:_SHOWN], key=itemgetter(0)))


def in_fix(agent: str) -> str:
    """Return the name of an agent for use in a fix."""
    return "this agent" if agent == UNKNOWN_AGENT else agent_in_prose(agent)


def subject_of(step: Step) -> str:
    """Return a step's agent as the subject of a sentence; nameless agents are named after their span."""
    name = agent_in_prose(step.agent)
    span = f" (span “{step.name}”)" if step.agent == UNKNOWN_AGENT and step.span_id and step.name else ""
    return (name if name == step.agent else name[:1].upper() + name[1:]) + span


def _fix(finding: Finding, agent: str, steps: Sequence[Step]) -> str:
    """Describe the change to make: a prompt, a tool, a limit or a check."""
    step = steps[finding.step if finding.quoted_step is None else finding.quoted_step]
    agent = in_fix(agent)
    is_own = finding.quoted_step in {None, finding.step}  # else the quoted call only received the failure
    if finding.signal in _FAILED_CALLS and (remedy := _remedy(finding, step)):
        called = "the model" if step.kind is StepKind.LLM else step.target or "the tool"
        return remedy.format(agent=agent, tool=called)
    if finding.signal in _FAILED_CALLS and step.kind is StepKind.LLM and is_own:
        return _MODEL_FIX.format(agent=agent)
    if finding.signal in _FAILED_CALLS and not step.target and CODE_ERROR.search(finding.detail):
        return _CODE_FIX.format(agent=agent)
    if finding.right_step is not None:
        return _COPY_FIX.format(agent=agent, tool=steps[finding.right_step].target or "the tool")
    tool = step.target if step.kind is StepKind.TOOL and step.target else "the tool"
    fix = _FIXES.get(finding.signal, "")
    return fix.format(agent=agent, tool=tool) if fix else ""


def _remedy(finding: Finding, step: Step) -> str:
    """Return the fix for an error that stays the same when the call is repeated; empty for others."""
    error = f"{step.error}\n{finding.detail}\n{finding.quote}"
    known = next((fix for pattern, fix in _REMEDIES if pattern.search(error)), "")
    return known or (_TOOL_FIX if step.target and CODE_ERROR.search(error) else "")


def with_product(reading: Reading, verdict: Blame) -> Blame:
    """Name the calculation that gives the right figure, if it is certain, instead of the missing source."""
    is_short = len(reading.steps) <= MOST_STEPS  # comparing all figures with all texts is quadratic
    if verdict.mode != FailureMode.UNSUPPORTED_CLAIM or not is_short:
        return verdict
    clue = next((clue for clue in miscalculated(reading) if clue.step == verdict.step), None)
    if clue is None:
        return verdict
    return replace(
        verdict,
        reason=f"{subject_of(reading.steps[verdict.step])} {clue.reason}.",
        mode=FailureMode.WRONG_COMPUTATION.value,
        fix=_FIXES["wrong_computation"].format(agent=in_fix(verdict.agent)),
        evidence=clue.evidence,
    )
