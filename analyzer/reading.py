"""A trajectory made ready for signals: who acts, who relays, what was repaired.

Everything here is read off the trajectory's structure; nothing is learned, and
no framework is named. All passes are linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from analyzer.askers import askers, authors
from analyzer.folding import folded, typed
from analyzer.repairs import repaired
from semconv.model import UNKNOWN_AGENT, ContentState, SpanStatus, Step, StepKind, Trajectory

HEAD: Final = 20_000
"""Characters of a step's text that signals read: enough for prose, a bound for dumps."""

_EXIT_CODE: Final = re.compile(r"exit[ _]?code:?\s*(-?\d+)", re.IGNORECASE)
_FAULT: Final = re.compile(
    r"Traceback \(most recent call last\)|^[ \t]*\w*(?:Error|Exception)\b[ \t]*:"
    r"|\b(?:HTTP|status)\D{0,8}[45]\d\d\b"
    r"|^[ \t]*\"?(?:error|fatal)\"?[ \t]*:|command not found|timed out|connection refused|permission denied",
    re.IGNORECASE | re.MULTILINE,
)
_OUTPUT_LABEL: Final = re.compile(r"^(?:code )?(?:output|results?)\s*:\s*", re.IGNORECASE)
_NOTHING: Final = re.compile(
    r"(?:none|null|nan|\[\]|\{\}|\"\"|''|\(\)"
    r"|(?:no|0|zero) (?:results?|data|entries|matches|records?|rows|output)\b"
    r"[^.\n]*|not found|nothing found)?[\s.]*",
    re.IGNORECASE,
)
_LONGEST_NOTHING: Final = 120
_DELEGATES: Final = re.compile(
    r"\b(?:assign(?:ing)?|delegat(?:e|ing))\s(?:[\w,-]{1,40}\s){0,6}?(?:(?:sub-?)?tasks?|work|jobs?)\s"
    r"(?:[\w,-]{1,40}\s){0,3}?(?:to|among|between)\b",
    re.IGNORECASE,
)
"""Words of one who gives work to others; not of one to whom it was assigned."""
_TELLING_TASK: Final = 120
"""Characters of a task by which its statement is known."""
_COLOURS: Final = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_SIGN_OFFS: Final = ("TERMINATE", "EXIT", "DONE")
"""What ends a conversation, and is no part of what was said."""


class Role(StrEnum):
    """A step's part in the run."""

    ACTING = "acting"
    """An agent works on the task."""
    COORDINATING = "coordinating"
    """An agent says who works next."""
    CALL = "call"
    """A tool ran for the agent that owns the step."""
    RELAYING = "relaying"
    """A person, or something that only carries out what the step before asked for."""
    STATING = "stating"
    """The task is put to the agents."""


class Fault(StrEnum):
    """How a step went wrong, by its own account."""

    NONE = "none"
    EMPTY = "empty"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A trajectory with what its structure says of each step, by index."""

    trajectory: Trajectory
    outputs: tuple[str, ...]
    """Each step's output, at most ``HEAD`` characters, typeset quotes, blanks and digits made plain."""
    texts: tuple[str, ...]
    """The same, white space collapsed."""
    roles: tuple[Role, ...]
    faults: tuple[Fault, ...]
    repaired: tuple[bool, ...]
    """Whether a later step did what this one failed to do."""
    authors: tuple[int, ...]
    """The step that answers for this one: itself, or who asked for what it carried out."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the trajectory's steps."""
        return self.trajectory.steps


def read(trajectory: Trajectory) -> Reading:
    """Prepare a trajectory for the signals."""
    steps = trajectory.steps
    outputs = tuple([typed(step.output[:HEAD]) for step in steps])
    texts = tuple([" ".join(output.split()) for output in outputs])
    faults = tuple([_fault(step, output) for step, output in zip(steps, outputs, strict=True)])
    faulty = [fault is not Fault.NONE for fault in faults]
    roles = _roles(trajectory, texts, faulty)
    asked = askers(steps)
    return Reading(
        trajectory=trajectory,
        outputs=outputs,
        texts=texts,
        roles=roles,
        faults=faults,
        repaired=repaired(steps, faulty, asked, trajectory.task),
        authors=authors(steps, _speaking_for_others(trajectory, roles), asked),
    )


def final_answer(trajectory: Trajectory) -> str:
    """Return what the run answered; where a trace gives the task for it, what an agent said last.

    What only ends the conversation (``TERMINATE``) is left out.
    """
    output = _without_sign_off(trajectory.output)
    if output and output != trajectory.task.strip():
        return output
    speaking = (StepKind.LLM, StepKind.AGENT)
    last = (_without_sign_off(step.output) for step in reversed(trajectory.steps) if step.kind in speaking)
    return next((text for text in last if text), "")


def _without_sign_off(text: str) -> str:
    spoken = text.rstrip(" \t\r\n*`.!")
    word = next((word for word in _SIGN_OFFS if spoken.endswith(word)), None)
    before = spoken.removesuffix(word).rstrip(" \t*`") if word else ""
    if word and (not before or before.endswith(("\n", ".", "!", "?"))):
        return before.strip()
    return text.strip()


def _roles(trajectory: Trajectory, texts: Sequence[str], faulty: Sequence[bool]) -> tuple[Role, ...]:
    steps = trajectory.steps
    thinking = {step.agent for step in steps if step.kind in (StepKind.LLM, StepKind.AGENT)}
    calling = {step.agent for step in steps if step.kind is StepKind.TOOL}
    handing_over = {step.agent for step in steps if step.kind is StepKind.HANDOFF}
    coordinators = handing_over - calling
    roles: list[Role] = []
    for position, step in enumerate(steps):
        following = steps[position + 1] if position + 1 < len(steps) else None
        if step.kind is StepKind.TOOL:
            # What an agent's tool returns is not its own word where the agent has none; that it fails is.
            is_own = step.agent in thinking or (faulty[position] and _calls_itself(trajectory, step))
            roles.append(Role.CALL if is_own else Role.RELAYING)
        elif step.kind in (StepKind.HUMAN, StepKind.OTHER):
            roles.append(Role.RELAYING)
        elif step.kind is StepKind.HANDOFF or step.agent in coordinators or _hands_over(step, following):
            roles.append(Role.COORDINATING)
        elif position == 0 and _states_task(trajectory, texts[0], following):
            roles.append(Role.STATING)
        else:
            roles.append(Role.ACTING)
    return _with_delegating(steps, texts, roles, calling)


def _with_delegating(
    steps: Sequence[Step], texts: Sequence[str], roles: Sequence[Role], calling: set[str]
) -> tuple[Role, ...]:
    """Let those coordinate who say that they give work to others, call no tool, and have others to act."""
    acting = [place for place, role in enumerate(roles) if role is Role.ACTING]
    giving = {steps[place].agent for place in acting if _DELEGATES.search(texts[place])} - calling
    if all(steps[place].agent in giving for place in acting):
        return tuple(roles)
    return tuple(
        Role.COORDINATING if role is Role.ACTING and step.agent in giving else role
        for step, role in zip(steps, roles, strict=True)
    )


def _speaking_for_others(trajectory: Trajectory, roles: Sequence[Role]) -> tuple[bool, ...]:
    steps = trajectory.steps
    return tuple(
        role is Role.RELAYING and not (step.kind is StepKind.TOOL and _calls_itself(trajectory, step))
        for step, role in zip(steps, roles, strict=True)
    )


def _calls_itself(trajectory: Trajectory, step: Step) -> bool:
    """A trace tells the tool from the agent it ran for; in a log the tool speaks in its own name."""
    return bool(step.target) and step.agent != UNKNOWN_AGENT and not trajectory.is_recorded_conversation


def _hands_over(step: Step, following: Step | None) -> bool:
    return following is not None and following.kind is StepKind.HANDOFF and following.agent == step.agent


def _states_task(trajectory: Trajectory, text: str, following: Step | None) -> bool:
    """A first step that quotes the task is its statement, unless a tool answers it: then it acted too.

    So is what a log opens with that does not give its task apart.
    """
    if following is not None and following.kind is StepKind.TOOL:
        return False
    head = folded(trajectory.task[: 10 * _TELLING_TASK])[:_TELLING_TASK].strip()
    return head in folded(text) if head else trajectory.is_recorded_conversation and following is not None


def _fault(step: Step, output: str) -> Fault:
    if step.status is SpanStatus.ERROR or step.error:
        return Fault.FAILED
    if step.kind is not StepKind.TOOL:
        return Fault.NONE  # agents talk about errors without making them
    text = _COLOURS.sub("", output).strip()
    code = _EXIT_CODE.search(text[:200])
    if code and int(code.group(1)) != 0:
        return Fault.FAILED
    if not code and _FAULT.search(text[:2_000]):
        return Fault.FAILED
    if not text.strip() and step.content is not ContentState.COMPLETE:
        return Fault.NONE  # we did not see what it returned
    body = re.sub(r"^[^\n]*\n?", "", text, count=1) if code else text
    body = _OUTPUT_LABEL.sub("", body.strip())
    return Fault.EMPTY if len(body) <= _LONGEST_NOTHING and _NOTHING.fullmatch(body) else Fault.NONE
