"""A run with everything its spans hold about each step: full messages, model, parameters, tokens, cost. Pure.

A ``Trajectory`` holds what methods read, with long texts shortened and repeated history left out. Programs
(the API, the Python API, ``blamespan diff``, MCP) get the whole steps from here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from collector_processor.core.runs import CleanRun, Run
from collector_processor.trajectory.acts import Act, read_acts
from semconv.dialects import USUAL, Message, Reader
from semconv.dialects.reading.tools import OfferedTool, listing_tools, offered_tools
from semconv.dialects.reading.usage import ModelCall, model_call
from semconv.model import (
    AgentSource,
    Attributes,
    ContentState,
    Outcome,
    SpanStatus,
    Step,
    StepKind,
    Trajectory,
)
from semconv.record import replace as with_changes

_NO_CALL: Final = ModelCall()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedCall:
    """A tool call that a model's message requests."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMessage:
    """A message to or from a model, in full."""

    role: str
    name: str
    """The speaker's name, if the framework records one; else empty."""
    text: str
    calls: tuple[RequestedCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeStep:
    """One step of a run, with everything that its span holds."""

    index: int
    """Position in the run, from 0."""
    agent: str
    agent_source: AgentSource
    """Source of the agent's name."""
    kind: StepKind
    trace_id: str | None
    span_id: str | None
    name: str
    """The span's name."""
    start_ns: int
    """Nanoseconds since the epoch; 0 in conversation logs."""
    end_ns: int
    duration_s: float
    status: SpanStatus
    error: str
    input: str
    """The input that is new to this step, without repeated history; long texts are shortened."""
    output: str
    """The step's output; long texts are shortened."""
    target: str | None
    """The tool called, or the agent that takes over."""
    group: int | None
    """Number of the set of steps that overlap in time, if any."""
    content: ContentState
    """Whether the texts are what the agent received and produced."""
    instructions: str
    """The agent's system prompt, if recorded."""
    tools: str
    """The tools offered, one per line, if recorded."""
    offered: tuple[OfferedTool, ...]
    """The tools offered to the model, with the schemas of their parameters."""
    causes: tuple[int, ...]
    """Earlier steps that the spans link to this one."""
    retry_of: int | None
    """The failed step that this one repeats with the same input, if any."""
    provider: str
    model: str
    """The model that answered; empty for other kinds of steps."""
    parameters: Mapping[str, str | bool | int | float]
    """Parameters of the request, such as `temperature`."""
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    """The cost that the instrumentation recorded."""
    messages: tuple[StepMessage, ...]
    """Everything that the model or the tool received, in full."""
    answers: tuple[StepMessage, ...]
    """Everything that it answered, in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutline:
    """A run without its steps."""

    run_id: str
    task: str
    output: str
    """The final answer, if known."""
    reference: str | None
    """The expected answer, if recorded."""
    outcome: Outcome | None
    """The outcome that the run or an evaluator in it states."""
    complete: bool
    """Whether no span is missing, as far as the spans show."""
    agents: tuple[str, ...]
    dialects: tuple[str, ...]
    """The conventions that the spans follow."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRun(RunOutline):
    """A run and all of its steps."""

    steps: tuple[WholeStep, ...]
    trajectory: Trajectory = field(repr=False, compare=False)
    """The same run as methods read it; not part of the JSON."""

    def outline(self) -> dict[str, Any]:
        """Return the run as JSON for programs, without its steps; always with the same keys."""
        return {one.name: getattr(self, one.name) for one in fields(RunOutline)}


def whole_run(run: Run, clean: CleanRun, reader: Reader = USUAL) -> WholeRun:
    """Return a run with all that its spans hold; ``clean`` removes secrets from every text."""
    acts = {(act.span.trace_id, act.span.span_id): act for act in read_acts(run.trace.spans, reader).acts}
    steps = run.trajectory.steps
    found = [
        acts.get((step.trace_id, step.span_id)) if step.trace_id and step.span_id else None for step in steps
    ]
    seen: set[int] = set()
    read = _OfferReader()
    contents = [
        _SpanContents() if act is None or _is_again(act, seen) else _contents_of(act, step, read)
        for act, step in zip(found, steps, strict=True)
    ]
    return _joined(run.trajectory, contents, clean)


def whole_steps(trajectory: Trajectory, clean: CleanRun) -> WholeRun:
    """Return a run without spans: a conversation log, or a kept run of which only the steps are stored."""
    return _joined(trajectory, [_SpanContents() for _ in trajectory.steps], clean)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpanContents:
    """Contents of a step's span that the step lacks."""

    call: ModelCall = _NO_CALL
    messages: tuple[Message, ...] = ()
    answers: tuple[Message, ...] = ()
    offered: tuple[OfferedTool, ...] = ()


class _OfferReader:
    """Reads the tools offered; an agent's calls list the same ones, which are read once."""

    def __init__(self) -> None:
        self._known: Final[dict[tuple[Any, ...], tuple[OfferedTool, ...]]] = {}

    def __call__(self, attributes: Attributes) -> tuple[OfferedTool, ...]:
        listed = tuple([(name, attributes[name]) for name in listing_tools(attributes)])
        if not all(isinstance(value, str) for _, value in listed):  # others may have no hash
            return offered_tools(dict(listed))
        if listed not in self._known:
            self._known[listed] = offered_tools(dict(listed))
        return self._known[listed]


def _is_again(act: Act, seen: set[int]) -> bool:
    """Tell whether an earlier step has this span too: its tokens count once."""
    if act.position in seen:
        return True
    seen.add(act.position)
    return False


def _contents_of(act: Act, step: Step, read: _OfferReader) -> _SpanContents:
    action = act.action
    is_call = step.kind is StepKind.LLM
    messages = action.input_messages or ((Message(role="input", text=action.input),) if action.input else ())
    answered = action.output_messages or (
        (Message(role="output", text=action.output),) if action.output else ()
    )
    if not is_call:
        return _SpanContents(messages=messages, answers=answered)
    offered = read(act.span.attributes)
    return _SpanContents(call=model_call(act.span), messages=messages, answers=answered, offered=offered)


def _joined(trajectory: Trajectory, contents: Sequence[_SpanContents], clean: CleanRun) -> WholeRun:
    """Return the run with its messages, all cleaned together so that equal secrets get equal names."""
    messages = [message for content in contents for message in content.messages]
    messages += [message for content in contents for message in content.answers]
    texts = [text for message in messages for text in _texts_of(message)]
    tools = list(dict.fromkeys(tool for content in contents for tool in content.offered))
    texts += [text for tool in tools for text in (tool.description, tool.parameters)]
    count = len(trajectory.steps)
    # ``clean`` takes a run: the messages go through it as further steps.
    carried = tuple(
        Step(index=count + number, agent="", kind=StepKind.OTHER, input=text)
        for number, text in enumerate(texts)
    )
    cleaned = clean(with_changes(trajectory, steps=(*trajectory.steps, *carried)))
    own = with_changes(cleaned, steps=cleaned.steps[:count])
    clean_texts = iter([step.input for step in cleaned.steps[count:]])
    retries = retries_of(own.steps)
    given = [tuple([_message(message, clean_texts) for message in content.messages]) for content in contents]
    answered = [tuple([_message(message, clean_texts) for message in one.answers]) for one in contents]
    offers = {tool: _tool(tool, clean_texts) for tool in tools}
    steps = [
        _whole(
            step,
            span_contents.call,
            given[number],
            answered[number],
            retries.get(step.index),
            offered=tuple([offers[tool] for tool in span_contents.offered]),
        )
        for number, (step, span_contents) in enumerate(zip(own.steps, contents, strict=True))
    ]
    return WholeRun(
        run_id=own.run_id,
        task=own.task,
        output=own.output,
        reference=own.reference,
        outcome=own.outcome,
        complete=own.complete,
        agents=own.agents,
        dialects=own.dialects,
        warnings=own.warnings,
        steps=tuple(steps),
        trajectory=own,
    )


def _texts_of(message: Message) -> Iterable[str]:
    yield message.text
    for call in message.calls:
        yield call.arguments


def _message(message: Message, texts: Iterable[str]) -> StepMessage:
    following = iter(texts)
    text = next(following)
    calls = tuple([RequestedCall(name=call.name, arguments=next(following)) for call in message.calls])
    return StepMessage(role=message.role, name=message.name, text=text, calls=calls)


def _tool(tool: OfferedTool, texts: Iterator[str]) -> OfferedTool:
    return OfferedTool(name=tool.name, description=next(texts), parameters=next(texts))


def _whole(
    step: Step,
    call: ModelCall,
    messages: tuple[StepMessage, ...],
    answers: tuple[StepMessage, ...],
    retry_of: int | None,
    *,
    offered: tuple[OfferedTool, ...],
) -> WholeStep:
    return WholeStep(
        index=step.index,
        agent=step.agent,
        agent_source=step.agent_source,
        kind=step.kind,
        trace_id=step.trace_id,
        span_id=step.span_id,
        name=step.name,
        start_ns=step.start_ns,
        end_ns=step.end_ns,
        duration_s=max(0, step.end_ns - step.start_ns) / 1e9,
        status=step.status,
        error=step.error,
        input=step.input,
        output=step.output,
        target=step.target,
        group=step.group,
        content=step.content,
        instructions=step.instructions,
        tools=step.tools,
        offered=offered,
        causes=step.causes,
        retry_of=retry_of,
        provider=call.provider,
        model=call.model,
        parameters=call.parameters,
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        cost_usd=call.cost_usd,
        messages=messages,
        answers=answers,
    )


def retries_of(steps: Sequence[Step]) -> dict[int, int]:
    """Map each step that repeats a failed step with the same input to the failed step."""
    last: dict[tuple[str, StepKind, str | None, str], Step] = {}
    found: dict[int, int] = {}
    for step in steps:
        key = (step.agent, step.kind, step.target, step.input)
        before = last.get(key)
        if before is not None and before.status is SpanStatus.ERROR:
            found[step.index] = before.index
        last[key] = step
    return found


__all__ = [
    "OfferedTool",
    "RequestedCall",
    "StepMessage",
    "WholeRun",
    "WholeStep",
    "retries_of",
    "whole_run",
    "whole_steps",
]
