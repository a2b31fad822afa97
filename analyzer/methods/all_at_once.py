"""All-at-once: the whole log as ``agent: content``, one question, a free-text answer.

Source: arXiv:2505.00212, section 4 (All-at-Once). Cost: one model call, one more
if the first answer cannot be read.

As there, the log has no step numbers and the model is told to name an agent even
if none stands out. It differs in three ways: steps are said to be counted from 0
(the paper leaves the origin open, its labels count from 0); a log too long for
the model is folded, and that is said, where the reference code fails; and the
answer is checked. A model that counts unnumbered steps seldom counts right, while
the agent it names is its surest word, so where the two contradict each other the
step becomes the named agent's nearest one, and the verdict says so. (On the
recorded replies to this prompt that gives four times as many right steps.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from analyzer.agent_names import match_agent, same_agent
from analyzer.method import Inquiry, Prompt, Reply
from analyzer.methods.answering import (
    join_sentences,
    no_such_step,
    nothing_to_judge,
    repair,
    step_at,
    unreadable,
)
from analyzer.methods.free_text import Answer, read_answer
from analyzer.methods.plain_log import about_the_task, plain_log, plain_prompt
from semconv.model import Abstention, Blame, Ranked, Status, Step, Trajectory, Verdict

_OUTPUT_TOKENS: Final = 1_024
_CONFIDENCE: Final = 0.15
"""The method states none: about the step accuracy that is published for it."""
_CONTRADICTED: Final = 0.1
FORMAT: Final = """\
in exactly this form:
Agent Name: (the agent)
Step Number: (the number)
Reason for Mistake: (the reason)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllAtOnce:
    """The reference method. ``max_bytes`` bounds the log's text in the prompt."""

    max_bytes: int
    name: str = "all-at-once"

    def investigate(self, trajectory: Trajectory) -> Inquiry:
        """Ask once, once more if the answer cannot be read, and check what is answered."""
        if not trajectory.steps:
            return nothing_to_judge()
        prompt = ask_for_all(trajectory, self.max_bytes)
        reply = yield prompt
        verdict = _read(reply, trajectory)
        if isinstance(verdict, str):
            reply = yield repair(prompt, reply, verdict, FORMAT)
            verdict = _read(reply, trajectory)
        return unreadable(verdict, reply) if isinstance(verdict, str) else verdict


def ask_for_all(trajectory: Trajectory, max_bytes: int) -> Prompt:
    """Return the one question: which agent, at which step, and why."""
    log = plain_log(trajectory.steps, max_bytes)
    text = "\n".join(log.lines)
    question = (
        "Below is the conversation of several agents that worked on a real-world problem and failed.\n"
        f"{about_the_task(trajectory)}"
        "Find the agent that made the mistake that led to the wrong result, the step in which it first made"
        f" it, and why.\n\nThe conversation:\n\n{text}\n\n"
        "Now say\n1. which agent is directly responsible for the wrong result; if no agent made an obvious"
        " mistake, settle on one all the same; give its name only;\n2. at which step it first made it,"
        " where each entry of the conversation, whoever's it is, is one step, and the first is step 0;\n"
        f"3. the reason for your choice.\nAnswer {FORMAT}"
    )
    return plain_prompt(trajectory, question, log, max_output_tokens=_OUTPUT_TOKENS)


def _read(reply: Reply, trajectory: Trajectory) -> Verdict | str:
    """Return the verdict that a reply gives, or what is wrong with it, in words."""
    answer = read_answer(reply.text)
    if answer.says_none:
        return Abstention(
            status=Status.UNDETERMINED, reason=join_sentences(["The model found no mistake", answer.reason])
        )
    if answer.agent is None and answer.step is None:
        return "it names neither an agent nor a step"
    if answer.step is None:
        return "it names no single step number"
    step = step_at(trajectory, answer.step)
    if step is None:
        return no_such_step(trajectory, answer.step)
    return _blame(trajectory, answer, step)


def _blame(trajectory: Trajectory, answer: Answer, step: Step) -> Blame:
    meant = match_agent(answer.agent or "", trajectory.agents)
    note = ""
    if meant is not None and not same_agent(meant, step.agent):
        own = [other for other in trajectory.steps if other.agent == meant]
        moved = min(own, key=lambda other: (abs(other.index - step.index), other.index))
        note = (
            f"(The model named {meant} and step {step.index}, which is {step.agent}'s; step {moved.index} is"
            f" the nearest of {meant}'s)"
        )
        step = moved
    elif meant is None and answer.agent:
        note = f"(The model named {answer.agent!r}, which is no agent of this run; step {step.index} decides)"
    confidence = _CONTRADICTED if note else _CONFIDENCE
    return Blame(
        agent=step.agent,
        step=step.index,
        reason=join_sentences([answer.reason, note]) or "the model gave no reason",
        confidence=confidence,
        ranking=(Ranked(step=step.index, agent=step.agent, probability=confidence),),
    )
