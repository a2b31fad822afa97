"""Candidates of an experiment: model calls that may be decisive, and what their arms replay. Pure.

The control of call k replays the calls up to k as recorded; its treatment replays the calls before k and
changes k. Calls that begin after k has ended are live in both. For sequential calls, "k resampled" replays
the same as the control of k - 1, so neighbours share an arm: ``ArmKey`` names an arm by what it replays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Final

from analyzer.experiment.replay.tape import Answer, CallKind, RecordedCall, Tape
from analyzer.experiment.replay.trial import Change, Edit
from semconv.model import Blame, Ranked, Trajectory, Verdict
from semconv.record import record, replace

MOST_CANDIDATES: Final = 64
"""Steps that one experiment tries. Each arm names the calls that it replays, so all arms of a run of 100,000
calls would take gigabytes."""
_LEAST_BELIEF: Final = 0.02
"""Weight of a call that no method suspects, before normalisation."""


class ChangeKind(StrEnum):
    """Ways to change the suspected answer."""

    RESAMPLE = "resample"
    """The model is asked again, with nothing else changed."""
    TEXT = "text"
    HINT = "hint"
    MODEL = "model"
    PROMPT = "prompt"


@record
class Fix:
    """The change that the treatment makes."""

    kind: ChangeKind = ChangeKind.RESAMPLE
    text: str = ""
    """The replacement answer, the hint, the model's name or the system prompt."""

    def at(self, call: int) -> Change:
        """Return the change of a trial at this call."""
        match self.kind:
            case ChangeKind.TEXT:
                return Change(call=call, answer=Answer(text=self.text))
            case ChangeKind.HINT:
                return Change(call=call, edit=Edit(hint=self.text))
            case ChangeKind.MODEL:
                return Change(call=call, edit=Edit(model=self.text))
            case ChangeKind.PROMPT:
                return Change(call=call, edit=Edit(system=self.text))
            case ChangeKind.RESAMPLE:
                return Change(call=call)


@record
class ArmKey:
    """Key of an arm: what it replays."""

    recorded: frozenset[int]
    """Calls answered as recorded."""
    fixed: int | None = None
    """The call that gets the fix; ``None`` if all other calls are simply live."""


@record
class Candidate:
    """One model call that may be the decisive error."""

    call: int
    step: int
    agent: str
    belief: float
    """Probability before the first trial; the probabilities of all candidates sum to 1."""
    control: ArmKey
    treatment: ArmKey
    resampled: ArmKey
    """The third arm; equal to the treatment if that samples anew."""


@record
class Suspects:
    """The candidates by call, and the change of each of their arms."""

    candidates: tuple[Candidate, ...]
    changes: Mapping[ArmKey, Change] = field(default_factory=dict)
    others: int = 0
    """Number of steps that are not tried, because so many others are more suspect."""


def suspects(tape: Tape, beliefs: Mapping[int, float], fix: Fix) -> Suspects:
    """Return the candidates of a run: at most ``MOST_CANDIDATES``, the most suspect ones.

    Args:
        tape: the tape of the run.
        beliefs: probability of each call to try, by its index; they need not sum to 1.
        fix: the change that the treatment makes.
    """
    steps = {call.index for call in tape.calls if call.step is not None}
    by_belief = sorted(steps & beliefs.keys(), key=lambda index: (-beliefs[index], index))
    chosen = {index: beliefs[index] for index in by_belief[:MOST_CANDIDATES]}
    total = sum(chosen.values()) or 1.0
    candidates: list[Candidate] = []
    changes: dict[ArmKey, Change] = {}
    for call in tape.calls:
        if call.index not in chosen or call.step is None:
            continue
        through = _begun_by(tape, call)
        control, resampled = ArmKey(recorded=through), ArmKey(recorded=through - {call.index})
        is_resampled = fix.kind is ChangeKind.RESAMPLE
        treatment = resampled if is_resampled else ArmKey(recorded=through - {call.index}, fixed=call.index)
        changes.setdefault(control, Change(call=call.index, answer=call.answer))
        changes.setdefault(resampled, Change(call=call.index))
        changes.setdefault(treatment, fix.at(call.index))
        candidates.append(
            Candidate(
                call=call.index,
                step=call.step,
                agent=call.agent,
                belief=beliefs[call.index] / total,
                control=control,
                treatment=treatment,
                resampled=resampled,
            )
        )
    return Suspects(candidates=tuple(candidates), changes=changes, others=len(by_belief) - len(chosen))


def may_go_live(
    candidates: Iterable[Candidate], fix: Fix, undeclared: Mapping[str, int]
) -> tuple[Candidate, ...]:
    """Return the candidates whose trials offer the live model no tool that would really run.

    Args:
        candidates: from ``suspects``.
        fix: the change that the treatment makes; a text takes the place of the changed call's live answer.
        undeclared: tools that would really run, each with the index of the last recorded call that offers it.
    """
    last = max(undeclared.values(), default=-1)
    least = last if fix.kind is ChangeKind.TEXT else last + 1
    kept = [candidate for candidate in candidates if candidate.call >= least]
    total = sum(candidate.belief for candidate in kept) or 1.0
    return tuple(replace(candidate, belief=candidate.belief / total) for candidate in kept)


def steps_to_try(verdict: Verdict, trajectory: Trajectory) -> tuple[Ranked, ...]:
    """Return a verdict's suspects, and the other steps of its set as the least likely of them."""
    if not isinstance(verdict, Blame) or verdict.step_set is None:
        return verdict.ranking
    least = min((each.probability for each in verdict.ranking), default=0.0)
    inside = set(verdict.step_set.steps) - {each.step for each in verdict.ranking}
    others = (step for step in trajectory.steps if step.index in inside)
    return (
        *verdict.ranking,
        *(Ranked(step=step.index, agent=step.agent, probability=least) for step in others),
    )


def beliefs_of_calls(tape: Tape, ranking: Sequence[Ranked]) -> dict[int, float]:
    """Return the probability of each call from a ranking of steps.

    A step that is not a model call passes its probability to the last call before it: the one that requested
    the tool or handoff, or whose text an agent passed on.
    """
    calls = [call for call in tape.calls if call.step is not None and call.kind is CallKind.CHAT]
    beliefs = dict.fromkeys((call.index for call in calls), _LEAST_BELIEF)
    for candidate in ranking:
        before = [call for call in calls if call.step is not None and call.step <= candidate.step]
        if before:
            nearest = max(before, key=lambda call: call.step or 0)
            beliefs[nearest.index] += candidate.probability
    return beliefs


def _begun_by(tape: Tape, call: RecordedCall) -> frozenset[int]:
    """Return the calls that had begun when ``call`` ended, including itself."""
    return frozenset(
        other.index for other in tape.calls if other.start_ns < call.end_ns or other.index <= call.index
    )
