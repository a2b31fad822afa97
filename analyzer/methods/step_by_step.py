"""Step-by-step: shows the log as it grew, and asks of each newest step whether it is the mistake.

Source: arXiv:2505.00212, section 4 (Step-by-Step). Cost: one model call a step
until the first "yes", so up to the number of steps, and one more for each reply
that cannot be read.

As there, steps are numbered and the model is told not to be overly critical. The
reference code counts every reply that does not begin with exactly ``1. yes`` as
"no"; the paper says nothing of the kind, so a reply that cannot be read is asked
for once more and then ends the inquiry in an error. Where every step is found
right there is no decisive step, and the verdict is ``undetermined``.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

from analyzer.method import Inquiry, Prompt, Reply
from analyzer.methods.answering import join_sentences, nothing_to_judge, repair, unreadable
from analyzer.methods.free_text import read_reason
from analyzer.methods.plain_log import about_the_task, numbered_log, plain_prompt
from analyzer.methods.yes_or_no import read_yes_or_no
from semconv.model import Abstention, Blame, Ranked, Status, Step, Trajectory

_OUTPUT_TOKENS: Final = 1_024
_CONFIDENCE: Final = 0.15
"""The method states none: about the step accuracy that is published for it."""
_FORMAT: Final = """\
in exactly this form:
1. Yes or No.
2. Reason: (the reason)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepByStep:
    """The reference method. ``max_bytes`` bounds the log's text in each prompt."""

    max_bytes: int
    name: str = "step-by-step"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Ask of every step in order, until one is the mistake."""
        if not trajectory.steps:
            return nothing_to_judge()
        found = yield from first_mistake(trajectory, trajectory.steps, self.max_bytes)
        if found is not None:
            return found
        reason = f"the model found no mistake in any of the {len(trajectory.steps)} steps"
        return Abstention(status=Status.UNDETERMINED, reason=reason)


def first_mistake(
    trajectory: Trajectory, suspects: Sequence[Step], max_bytes: int
) -> Generator[Prompt, Reply, Blame | Abstention | None]:
    """Ask of each suspect in order; ``None`` if all are found right."""
    place = {step.index: number for number, step in enumerate(trajectory.steps)}
    for step in suspects:
        prompt = _question(trajectory, trajectory.steps[: place[step.index] + 1], max_bytes)
        reply = yield prompt
        is_mistake = read_yes_or_no(reply.text)
        if is_mistake is None:
            reply = yield repair(prompt, reply, "it says neither yes nor no", _FORMAT)
            is_mistake = read_yes_or_no(reply.text)
        if is_mistake is None:
            return unreadable(f"about step {step.index} it says neither yes nor no", reply)
        if is_mistake:
            return _blame(step, reply)
    return None


def _question(trajectory: Trajectory, prefix: Sequence[Step], max_bytes: int) -> Prompt:
    log = numbered_log(prefix, max_bytes)
    text = "\n".join(log.lines)
    newest = prefix[-1]
    question = (
        "Below is what several agents said who work on a real-world problem, up to the newest step.\n"
        f"{about_the_task(trajectory)}"
        f"The conversation so far:\n\n{text}\n\n"
        f"The newest step, {newest.index}, is by {newest.agent}. Does it contain a mistake that hinders the"
        " solution or leads to a wrong result? Do not be overly critical: look for what clearly derails the"
        f" work.\nAnswer {_FORMAT}"
    )
    return plain_prompt(trajectory, question, log, max_output_tokens=_OUTPUT_TOKENS)


def _blame(step: Step, reply: Reply) -> Blame:
    return Blame(
        agent=step.agent,
        step=step.index,
        reason=join_sentences([read_reason(reply.text)]) or "the model gave no reason",
        confidence=_CONFIDENCE,
        ranking=(Ranked(step=step.index, agent=step.agent, probability=_CONFIDENCE),),
    )
