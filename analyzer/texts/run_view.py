"""Input and output of signals: a trajectory with roles, faults and repairs, and the findings on it.

Everything here follows from the trajectory's structure; nothing is learned, and
no framework is named. All passes are linear in the text.

A signal is a function from a ``Reading`` to findings: a step, a reason as text, and a weight.

The model call that requested a tool step is responsible for it. The trace's own links come first
(``Step.causes``: the request's id), then a request with the same name and arguments, then the same agent's
latest model call. Another agent's earlier call without such a request never counts. Position decides only if
nothing tells which agent ran the tool (a conversation log in which a terminal takes a turn).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from analyzer.texts.heard import HeardFault, failures_told, heard_faults
from analyzer.texts.normalize import lowercased, normalized, plain_typography
from analyzer.texts.repairs import repaired
from analyzer.texts.tool_results import Fault, fault_of, reports_failure
from semconv.dialects.reading.messages import render_call
from semconv.dialects.reading.tools import is_plain_transfer
from semconv.dialects.reading.values import mapping
from semconv.model import UNKNOWN_AGENT, Step, StepKind, Trajectory

_ARGUMENTS: Final = 200
"""Compared characters of the arguments: enough to tell two calls apart."""


def responsible_steps(
    steps: Sequence[Step], relaying: Sequence[bool], asked: Sequence[int | None]
) -> tuple[int, ...]:
    """Return, for each step, the position of the responsible step: itself or its caller.

    A tool step that another agent's call requested is attributed to that call; one that its own
    agent called is attributed to itself.
    """
    found: list[int] = []
    last: int | None = None
    for position, step in enumerate(steps):
        asker = asked[position]
        if asker is not None and (relaying[position] or steps[asker].agent != step.agent):
            found.append(asker)
        else:
            found.append(last if relaying[position] and last is not None else position)
        if not relaying[position]:
            last = position
    return tuple(found)


def callers_of(steps: Sequence[Step]) -> tuple[int | None, ...]:
    """Return the position of the model call that requested each tool step, if the run shows one."""
    requested: dict[str, int] = {}
    found: list[int | None] = []
    for position, step in enumerate(steps):
        found.append(_tied(steps, step) if step.kind is StepKind.TOOL else None)
        if step.kind is StepKind.TOOL and found[-1] is None and step.target:
            found[-1] = requested.get(_call(step.target, step.input))
        for call in step.calls:
            requested[_call(call.name, call.arguments)] = position
    return tuple(found)


def _tied(steps: Sequence[Step], step: Step) -> int | None:
    """Return the latest model call linked by spans: of the same agent, or with a request for this tool."""
    for cause in reversed(step.causes):
        asker = steps[cause] if 0 <= cause < len(steps) else None
        if asker is None or asker.kind is not StepKind.LLM:
            continue
        own = asker.agent == step.agent != UNKNOWN_AGENT
        if own or any(call.name == step.target for call in asker.calls):
            return cause
    return None


def _call(name: str, arguments: str) -> str:
    return f"{name}({''.join(arguments.split())[:_ARGUMENTS]}"


QUOTE: Final = 160
"""Maximum length of a quote from a step, in characters."""
HEAD: Final = 20_000
"""Characters of a step's text that signals read: enough for prose, a bound for dumps."""

_DELEGATES: Final = re.compile(
    r"\b(?:assign(?:ing)?|delegat(?:e|ing))\s(?:[\w,-]{1,40}\s){0,6}?(?:(?:sub-?)?tasks?|work|jobs?)\s"
    r"(?:[\w,-]{1,40}\s){0,3}?(?:to|among|between)\b",
    re.IGNORECASE,
)
"""Pattern of words that assign work to others; not those of an agent that received it."""
_DELEGATING: Final = ("assign", "delegat")
"""Each match of ``_DELEGATES`` contains one of these; texts without any are not searched."""
# Members are looked up once: an enum's attribute costs 0.1 to 0.3 µs in Python 3.11.
_TOOL: Final = StepKind.TOOL
_HANDOFF: Final = StepKind.HANDOFF
THINKING: Final = frozenset({StepKind.LLM, StepKind.AGENT})
"""Kinds of steps in which an agent speaks."""
_RELAYED: Final = frozenset({StepKind.HUMAN, StepKind.OTHER})
_TELLING_TASK: Final = 120
"""Number of leading characters of a task by which a step that states it is recognised."""
_PAYLOADS: Final = ("{", "[", "Command(")
"""Beginnings of a handoff's payload: JSON, or the ``repr`` of langgraph's command."""
_SIGN_OFFS: Final = ("TERMINATE", "EXIT", "DONE")
"""Words that end a conversation and are not part of the answer."""


class Role(StrEnum):
    """A step's role in the run."""

    ACTING = "acting"
    """An agent works on the task."""
    COORDINATING = "coordinating"
    """An agent chooses the next agent."""
    CALL = "call"
    """A tool ran for the agent that owns the step."""
    RELAYING = "relaying"
    """A person, or a component that only executes the previous step's request."""
    STATING = "stating"
    """States the task to the agents."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reading:
    """A trajectory with structural facts about each step, by position; equal to itself alone."""

    trajectory: Trajectory
    steps: tuple[Step, ...]
    """The trajectory's steps: a field, since readers ask for them some hundred times."""
    outputs: tuple[str, ...]
    """Each step's output, at most ``HEAD`` characters, with plain quotes, blanks and digits."""
    texts: tuple[str, ...]
    """The same with white space collapsed."""
    roles: tuple[Role, ...]
    faults: tuple[Fault, ...]
    repaired: tuple[bool, ...]
    """Whether a later step repaired this one's fault."""
    responsible_steps: tuple[int, ...]
    """Position of the responsible step: itself, or the call that requested it."""
    failures_told: frozenset[int] = frozenset()
    """Tool calls whose result their agent gives as its reason to give up."""
    heard_faults: tuple[HeardFault, ...] = ()
    """Tool failures that no tool step shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reason to blame a step, or not to."""

    step: int
    signal: str
    """Name of the signal, low cardinality."""
    weight: float
    """Log-odds added to the step."""
    reason: str
    """A predicate in the past tense; its subject is the agent of ``step``. Empty if no reader would take it
    for evidence.
    """
    detail: str = ""
    """A further sentence of evidence, such as the error's message; without a full stop."""
    quote: str = ""
    """Verbatim from the step; empty if the finding has no place in its text."""
    quoted_step: int | None = None
    """The quoted step, if it differs from ``step``."""
    right_step: int | None = None
    """An earlier step of a tool that gave the right result, if the agent had one."""
    ended_run: bool = False
    """True if its error is the error that ended the run, or a turn of it."""
    is_idle: bool = False
    """True if the step did nothing yet that could decide the run."""


Signal: TypeAlias = Callable[[Reading], Iterator[Finding]]


class _Last:
    """The run that was read last: triage, suspicion, signals and lineage read the same one in turn."""

    def __init__(self) -> None:
        self.held: tuple[Trajectory, Reading] | None = None


_LAST: Final = _Last()


def read(trajectory: Trajectory) -> Reading:
    """Prepare a trajectory for the signals; the same object as before is not read again."""
    held = _LAST.held  # one assignment each way, so threads see a whole pair
    if held is not None and held[0] is trajectory:
        return held[1]
    reading = _read(trajectory)
    _LAST.held = (trajectory, reading)
    return reading


def forget_last() -> None:
    """Drop the run that was read last."""
    _LAST.held = None


def _read(trajectory: Trajectory) -> Reading:
    steps = trajectory.steps
    outputs = tuple([plain_typography(step.output[:HEAD]) for step in steps])
    texts = tuple([" ".join(output.split()) for output in outputs])
    told = frozenset() if trajectory.is_recorded_conversation else failures_told(steps)
    faults = tuple(
        [
            Fault.NONE if step.stop else Fault.FAILED if place in told else fault_of(step, output)
            for place, (step, output) in enumerate(zip(steps, outputs, strict=True))
        ]
    )
    faulty = [fault is not Fault.NONE for fault in faults]
    roles = _roles(trajectory, texts, faulty)
    callers = callers_of(steps)
    return Reading(
        trajectory=trajectory,
        steps=steps,
        outputs=outputs,
        texts=texts,
        roles=roles,
        faults=faults,
        repaired=repaired(steps, faulty, callers, trajectory.task),
        responsible_steps=responsible_steps(steps, _speaking_for_others(trajectory, roles), callers),
        failures_told=told,
        heard_faults=() if trajectory.is_recorded_conversation else heard_faults(steps, reports_failure),
    )


def own_words(step: Step) -> str:
    """Return what an agent wrote itself, without the lines of the calls that it requested."""
    text = step.output
    for call in reversed(step.calls):  # calls stand below the words
        head, line, tail = text.rpartition(render_call(call))
        text = f"{head}{tail}" if line else text
    return text if text is step.output else text.strip()


def only_calls(step: Step) -> bool:
    """Tell whether a step requested calls without a word of its own."""
    return bool(step.calls) and not own_words(step)


def spoken_input(step: Step) -> str:
    """Return a step's input, without a handoff's payload (state, ids, token counts)."""
    if step.kind is not _HANDOFF or not step.input.lstrip().startswith(_PAYLOADS):
        return step.input
    is_words = all(isinstance(value, str) for value in mapping(step.input).values())
    return step.input if is_words and is_plain_transfer(step.input) else ""


def spoken_output(step: Step, output: str) -> str:
    """Return ``output`` of a step, unless it is a handoff's payload (langgraph's ``Command``)."""
    is_payload = step.kind is _HANDOFF and output.lstrip().startswith(_PAYLOADS)
    return "" if is_payload else output


def final_answer(trajectory: Trajectory) -> str:
    """Return the run's answer; if a trace repeats the task there, the last agent's output.

    Words that only end the conversation (``TERMINATE``) are removed.
    """
    output = _without_sign_off(trajectory.output)
    if output and output != trajectory.task.strip():
        return output
    speaking = (StepKind.LLM, StepKind.AGENT)
    last = (
        _without_sign_off(own_words(step)) for step in reversed(trajectory.steps) if step.kind in speaking
    )
    return next((text for text in last if text), "")


def _without_sign_off(text: str) -> str:
    spoken = text.rstrip(" \t\r\n*`.!")
    is_signed = spoken.endswith(_SIGN_OFFS)  # few are, and one search is quicker
    word = next((word for word in _SIGN_OFFS if spoken.endswith(word)), None) if is_signed else None
    before = spoken.removesuffix(word).rstrip(" \t*`") if word else ""
    if word and (not before or before.endswith(("\n", ".", "!", "?"))):
        return before.strip()
    return text.strip()


def _roles(trajectory: Trajectory, texts: Sequence[str], faulty: Sequence[bool]) -> tuple[Role, ...]:
    steps = trajectory.steps
    thinking = {step.agent for step in steps if step.kind in THINKING}
    calling = {step.agent for step in steps if step.kind is _TOOL}
    handing_over = {step.agent for step in steps if step.kind is _HANDOFF}
    coordinators = handing_over - calling
    roles: list[Role] = []
    for position, step in enumerate(steps):
        following = steps[position + 1] if position + 1 < len(steps) else None
        if step.kind is _TOOL:
            # A tool's output does not count as words of an agent that says nothing; a tool's failure does.
            is_own = step.agent in thinking or (faulty[position] and _calls_itself(trajectory, step))
            roles.append(Role.CALL if is_own else Role.RELAYING)
        elif step.kind in _RELAYED:
            roles.append(Role.RELAYING)
        elif step.kind is _HANDOFF or step.agent in coordinators or _hands_over(step, following):
            roles.append(Role.COORDINATING)
        elif position == 0 and _states_task(trajectory, texts[0], following):
            roles.append(Role.STATING)
        else:
            roles.append(Role.ACTING)
    return _with_delegating(steps, texts, roles, calling)


def _with_delegating(
    steps: Sequence[Step], texts: Sequence[str], roles: Sequence[Role], calling: set[str]
) -> tuple[Role, ...]:
    """Mark agents as coordinators that assign work to others, call no tool, and are not the only actors."""
    acting = [place for place, role in enumerate(roles) if role is Role.ACTING]
    giving = {steps[place].agent for place in acting if _gives_work(texts[place])} - calling
    if all(steps[place].agent in giving for place in acting):
        return tuple(roles)
    return tuple(
        Role.COORDINATING if role is Role.ACTING and step.agent in giving else role
        for step, role in zip(steps, roles, strict=True)
    )


def _gives_work(text: str) -> bool:
    small = lowercased(text)
    return any(stem in small for stem in _DELEGATING) and _DELEGATES.search(text) is not None


def _speaking_for_others(trajectory: Trajectory, roles: Sequence[Role]) -> tuple[bool, ...]:
    steps = trajectory.steps
    return tuple(
        role is Role.RELAYING and not (step.kind is StepKind.TOOL and _calls_itself(trajectory, step))
        for step, role in zip(steps, roles, strict=True)
    )


def _calls_itself(trajectory: Trajectory, step: Step) -> bool:
    """Tell whether the step's agent made the call: a trace names the caller, a log only the tool itself."""
    return bool(step.target) and step.agent != UNKNOWN_AGENT and not trajectory.is_recorded_conversation


def _hands_over(step: Step, following: Step | None) -> bool:
    return following is not None and following.kind is StepKind.HANDOFF and following.agent == step.agent


def _states_task(trajectory: Trajectory, text: str, following: Step | None) -> bool:
    """Tell whether a first step only states the task: it quotes the task, and no tool answers it.

    The opening of a log that does not give its task separately counts as well.
    """
    if following is not None and following.kind is StepKind.TOOL:
        return False
    head = normalized(trajectory.task[: 10 * _TELLING_TASK])[:_TELLING_TASK].strip()
    return head in normalized(text) if head else trajectory.is_recorded_conversation and following is not None
