"""Sentences on what was checked in a run that blames no step, and on what could not be. Pure.

``no_failure`` and ``undetermined`` say little by themselves: a reader has to know whether the answer was
recorded, and whether tools' results were there to compare it with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from analyzer.inquiry.verdict import NOTHING_SAYS_SO, TRIAGE
from analyzer.lineage.sources import has_results, lost_steps
from analyzer.signals.suspicion import MOST_STEPS, obstacle
from analyzer.texts.run_view import final_answer
from analyzer.texts.wordings import unchecked
from semconv.model import Attribution, Status, Trajectory

_NAMED: Final = 4
"""Most steps that a sentence names."""


def checked(attribution: Attribution, trajectory: Trajectory, unsearched: str = "") -> tuple[str, ...]:
    """Return the sentences; empty unless the verdict is ``no_failure`` or ``undetermined``.

    Args:
        attribution: a method's verdict; a person's needs no sentence.
        trajectory: the run.
        unsearched: why the analysis looked for no contradictions in the run; empty if it did.
    """
    match attribution.status:
        case Status.NO_FAILURE:
            return tuple(_passed(attribution, trajectory, unsearched))
        case Status.UNDETERMINED:
            return tuple(_undetermined(attribution, trajectory))
        case _:
            return ()


def _passed(attribution: Attribution, trajectory: Trajectory, unsearched: str) -> Iterator[str]:
    reason = attribution.verdict.reason
    if attribution.method == TRIAGE and reason != NOTHING_SAYS_SO:
        yield f"The run was not searched for mistakes: {reason}."
        return
    yield f"No error ended the run ({_steps(trajectory)} read)."
    yield from _wording(trajectory)
    why = unsearched or obstacle(trajectory)
    if why:
        yield f"The run was not searched for contradictions: {why}."
        return
    yield "Errors that no later step mentions and repeated calls were searched for."
    yield from _comparison(trajectory)


def _undetermined(attribution: Attribution, trajectory: Trajectory) -> Iterator[str]:
    read = f"{_steps(trajectory)} read"
    yield f"The run counts as failed, and {attribution.method} looked for the mistake ({read})."
    if attribution.truncated:
        yield f"The method saw {attribution.coverage:.0%} of the run's text."
    if not trajectory.complete:
        yield "Spans of the run are missing: the mistake may be in one of them."
    if attribution.model is None:  # a model reads any language
        yield from _wording(trajectory)
    lost = lost_steps(trajectory.steps)
    if lost:
        yield f"The texts of {_named(lost)} are cut, redacted or not recorded."


def _wording(trajectory: Trajectory) -> Iterator[str]:
    answer = final_answer(trajectory)
    foreign = unchecked(answer)
    if not answer:
        yield "The final answer was not checked: none is recorded."
    elif foreign:
        yield f"The wording of the final answer was not checked: no table of phrases covers {foreign}."
    else:
        yield "The wording of the final answer was checked."


def _comparison(trajectory: Trajectory) -> Iterator[str]:
    lost = lost_steps(trajectory.steps)
    if not final_answer(trajectory):
        return
    if lost:
        why = f"the texts of {_named(lost)} are cut, redacted or not recorded"
    elif not has_results(trajectory.steps):
        why = "none is recorded"
    elif len(trajectory.steps) > MOST_STEPS:
        why = f"the run has more than {MOST_STEPS} steps"
    else:
        yield "The figures and claims of the final answer were compared with the tools' results."
        return
    yield f"The final answer was not compared with the tools' results: {why}."


def _steps(trajectory: Trajectory) -> str:
    number = len(trajectory.steps)
    return f"{number} step{'' if number == 1 else 's'}"


def _named(steps: Sequence[int]) -> str:
    names = ", ".join(map(str, steps[:_NAMED]))
    more = f" and {len(steps) - _NAMED} more" if len(steps) > _NAMED else ""
    return f"step{'' if len(steps) == 1 else 's'} {names}{more}"
