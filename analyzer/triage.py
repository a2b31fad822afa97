"""Did the run fail, and who says so? Cheap, with no model, before anything is attributed.

The claims are asked in order of authority: what the run or an evaluator in it
states, the right answer where it is known, the user's own rules, an error that
ended the run, and last of all how the final answer sounds. The first that has an
opinion decides. A run that nobody finds fault with is ``no_failure``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from analyzer.reading import final_answer
from collector_processor.redaction import compile_pattern
from semconv.model import UNKNOWN_AGENT, Outcome, OutcomeSource, SpanStatus, Step, StepKind, Trajectory

NOTHING_SAYS_SO: Final = "nothing says that the run failed"
"""The reason of a run that nobody found fault with; who tells it from one that passed goes by this."""

_TOKEN: Final = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?|[^\W\d_]+")
_ARTICLES: Final = frozenset({"a", "an", "the"})
_ANSWER_HEAD: Final = 300
_SOUNDS_FAILED: Final = re.compile(
    r"^\W*(?:(?:I(?:'m| am) )?(?:very |truly )?sorry\b"
    r"|I(?:'m| am| was)? (?:unable|not able)\b|I (?:cannot|can't|could not|couldn't) (?!help but|stress)"
    r"|unfortunately, (?:I|we)\b|unable to\b|failed to\b|error\b|an error occurred|exception\b|traceback \()"
    r"|\bmax(?:imum)?[ _](?:number of )?(?:turns?|iterations?|steps?|time|rounds?)\b[^.\n]{0,40}"
    r"(?:reached|exceeded|hit)|\b(?:iteration|time|turn|step|recursion) limit\b"
    r"|\bagent stopped due to\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What triage found."""

    failed: bool
    source: OutcomeSource | None
    """Who says so; ``None`` where nobody says anything."""
    reason: str


Claim: TypeAlias = Callable[[Trajectory], Finding | None]
"""Gives its opinion on a run, or ``None`` if it has none. Users register their own."""


def triage(trajectory: Trajectory, rules: Sequence[Claim] = ()) -> Finding:
    """Decide whether a run failed; ``rules`` are the user's own claims."""
    for claim in (recorded, stated, against_reference, *rules, ended_by_error, sounds_failed):
        finding = claim(trajectory)
        if finding is not None:
            return finding
    return Finding(failed=False, source=None, reason=NOTHING_SAYS_SO)


def worth_a_model(trajectory: Trajectory) -> bool:
    """Tell whether there is an agent or a workflow in it; a lone model call is nobody's failure."""
    named = any(step.agent != UNKNOWN_AGENT for step in trajectory.steps)
    worked = any(step.kind in (StepKind.TOOL, StepKind.HANDOFF, StepKind.AGENT) for step in trajectory.steps)
    return named or worked


def output_matching(pattern: str, *, failed: bool = True) -> Claim:
    """Return the rule that a run whose final answer matches ``pattern`` failed (or did not).

    Raises:
        ValueError: the pattern is no regular expression as RE2 reads them.
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
    """A recorded conversation log is kept because it failed."""
    if not trajectory.is_recorded_conversation:
        return None
    return Finding(failed=True, source=None, reason="a recorded conversation log is taken as a failure")


def stated(trajectory: Trajectory) -> Finding | None:
    """What the run itself, or an evaluator in it, says of its outcome."""
    if trajectory.outcome is None:
        return None
    source = trajectory.outcome_source or OutcomeSource.USER
    who = "an evaluator" if source is OutcomeSource.EVALUATOR else "the run"
    return Finding(
        failed=trajectory.outcome is Outcome.FAILURE,
        source=source,
        reason=f"{who} states its outcome: {trajectory.outcome}",
    )


def against_reference(trajectory: Trajectory) -> Finding | None:
    """The final answer against the right one, where both are known."""
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
    """An error of the run as a whole, or of the last thing it did: roots say OK after a crash."""
    if trajectory.root_status is SpanStatus.ERROR or trajectory.root_error:
        words = _shortened(trajectory.root_error) or "no message"
        return Finding(failed=True, source=OutcomeSource.ERROR, reason=f"the run ended in an error: {words}")
    last = trajectory.steps[-1] if trajectory.steps else None
    if last is None or not _errored(last):
        return None
    words = _shortened(last.error) or "no message"
    return Finding(
        failed=True,
        source=OutcomeSource.ERROR,
        reason=f"the last step, {last.index} of {last.agent}, failed, and nothing came after it: {words}",
    )


def sounds_failed(trajectory: Trajectory) -> Finding | None:
    """A final answer that begins as an excuse, or says that a limit was hit."""
    found = _SOUNDS_FAILED.search(final_answer(trajectory)[:_ANSWER_HEAD])
    if found is None:
        return None
    return Finding(
        failed=True,
        source=OutcomeSource.HEURISTIC,
        reason=f"the final answer sounds like a failure: {_shortened(found.group(0).strip())!r}",
    )


def answers(output: str, reference: str) -> bool:
    """Tell whether an answer contains everything the right one consists of, in any order and form.

    Numbers are compared by value (``1,080.0`` is ``1080``), words without case and articles.
    """
    wanted, given = _tokens(reference), _tokens(output)
    if not wanted:
        return output.strip() == reference.strip()
    return wanted <= given


def _tokens(text: str) -> frozenset[str | float]:
    tokens: set[str | float] = set()
    for token in _TOKEN.findall(text.casefold()):
        if token[0].isdigit():
            tokens.add(float(token.replace(",", "")))
        elif token not in _ARTICLES:
            tokens.add(token)
    return frozenset(tokens)


def _errored(step: Step) -> bool:
    return step.status is SpanStatus.ERROR or bool(step.error)


def _shortened(text: str) -> str:
    return " ".join(text.split())[:160]
