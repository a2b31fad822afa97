"""Binary search: asks in which half of what is left the mistake is, until one step is left.

Source: arXiv:2505.00212, section 4 (Binary Search). Cost: at most
ceil(log2(steps)) model calls, and one more for each reply that cannot be read.

As there, a call sees only the segment that is left, without step numbers; the two
halves are told apart by a line between them rather than by counting. The
reference code looks for "upper half" anywhere in a reply first and otherwise for
"lower half", and tosses a coin where it finds neither; the paper tosses none, so
a reply that cannot be read is asked for once more and then ends in an error. The
paper's last call asks about two steps; so does ours, and none is asked about one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from analyzer.method import Inquiry, Prompt
from analyzer.methods.answering import nothing_to_judge, repair, unreadable
from analyzer.methods.plain_log import about_the_task, plain_log, plain_prompt
from analyzer.methods.yes_or_no import read_half
from semconv.model import Blame, Ranked, Step, Trajectory

_OUTPUT_TOKENS: Final = 512
_CONFIDENCE: Final = 0.15
"""The method states none: about the step accuracy that is published for it."""
_FORMAT: Final = "with nothing but one of the two: upper half, lower half"


@dataclass(frozen=True, slots=True, kw_only=True)
class BinarySearch:
    """The reference method. ``max_bytes`` bounds the log's text in each prompt."""

    max_bytes: int
    name: str = "binary-search"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Halve the suspects until one is left."""
        suspects = trajectory.steps
        if not suspects:
            return nothing_to_judge()
        questions = 0
        while len(suspects) > 1:
            middle = (len(suspects) + 1) // 2
            prompt = _question(trajectory, suspects[:middle], suspects[middle:], self.max_bytes)
            reply = yield prompt
            half = read_half(reply.text)
            if half is None:
                reply = yield repair(prompt, reply, "it names neither half, or both", _FORMAT)
                half = read_half(reply.text)
            if half is None:
                return unreadable("it names neither half, or both", reply)
            suspects = suspects[:middle] if half == "upper" else suspects[middle:]
            questions += 1
        return _blame(suspects[0], questions)


def _question(trajectory: Trajectory, upper: Sequence[Step], lower: Sequence[Step], max_bytes: int) -> Prompt:
    log = plain_log((*upper, *lower), max_bytes)
    question = (
        "Below is a segment of the conversation of several agents that worked on a real-world problem and"
        f" failed.\n{about_the_task(trajectory)}"
        f"The upper half of the segment, {_size(upper)}:\n\n"
        + "\n".join(log.lines[: len(upper)])
        + f"\n\nThe lower half of the segment, {_size(lower)}:\n\n"
        + "\n".join(log.lines[len(upper) :])
        + "\n\nIn which half is the mistake more likely that directly led to the failure? If none is obvious,"
        f" settle on one all the same. Answer {_FORMAT}."
    )
    return plain_prompt(trajectory, question, log, max_output_tokens=_OUTPUT_TOKENS)


def _size(half: Sequence[Step]) -> str:
    return f"{len(half)} steps" if len(half) > 1 else "1 step"


def _blame(step: Step, questions: int) -> Blame:
    reason = f"the step that is left after {questions} questions in which half the mistake is"
    return Blame(
        agent=step.agent,
        step=step.index,
        reason=reason if questions else "the run has only this step",
        confidence=_CONFIDENCE,
        ranking=(Ranked(step=step.index, agent=step.agent, probability=_CONFIDENCE),),
    )
