"""Reads a tape from a run's raw spans, through the dialects. Pure.

It reads the spans and not ``Step.input``: a step keeps only new content, but a request holds the whole
conversation. The passes that order a trajectory are reused, because they detect spans that show the same
call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from analyzer.experiment.replay.obstacles import (
    error_status,
    no_model_calls,
    obstacle_of_call,
    obstacle_of_run,
    said_by_provider,
)
from analyzer.experiment.replay.tape import (
    Answer,
    CallKind,
    ReadTape,
    RecordedCall,
    RecordedTool,
    Tape,
)
from collector_processor.core.runs import Run
from collector_processor.trajectory import PASSES
from collector_processor.trajectory.acts import LLM, MODEL_KINDS, TOOL, TOOL_KINDS, Act, Ordering, read_acts
from semconv.attributes import SCOPE_INSTRUMENT
from semconv.dialects.reading.action import Message, key_of
from semconv.dialects.reading.usage import CallFacts, Embedded, embedded_in, facts_of
from semconv.model import Span, SpanId, Step, TraceId
from semconv.record import record, replace

_Place: TypeAlias = tuple[TraceId | None, SpanId | None]


@record
class _Seen:
    """A model call's act, and the facts in its span besides the messages."""

    act: Act
    facts: CallFacts
    messages: tuple[Message, ...]


def read_tape(run: Run, *, allow_tools: frozenset[str] = frozenset()) -> ReadTape:
    """Return the run's tape, or why it cannot be replayed.

    Args:
        run: the repaired spans and their steps.
        allow_tools: tools that the user declared read-only, including the provider's own.
    """
    ordering = _ordered(run)
    steps = {(step.trace_id, step.span_id): step for step in run.trajectory.steps}
    seen = _expanded([_seen(act) for act in _model_acts(ordering)])
    embeddings = [(span, found) for span in ordering.spans if (found := embedded_in(span))]
    if not seen:
        return no_model_calls(ordering.acts)
    for each in seen:
        obstacle = obstacle_of_call(each.act, each.facts, each.messages, allow_tools)
        if obstacle is not None:
            return obstacle
    if (obstacle := obstacle_of_run(run.trace.spans)) is not None:
        return obstacle
    calls = [_call(each, steps) for each in seen] + [_embedding(span, found) for span, found in embeddings]
    return Tape(
        run_id=run.trajectory.run_id,
        calls=_numbered(calls),
        tools=_tools(ordering, steps),
        delegations=_delegations(ordering),
        dialects=run.trajectory.dialects,
    )


def _ordered(run: Run) -> Ordering:
    """Return the run with each act that was a step after some pass.

    A summary that a later pass drops was a model call too.
    """
    ordering = read_acts(run.trace.spans, run.reader)
    steps: dict[int, None] = {}
    for each in PASSES:
        ordering = each(ordering)
        steps.update(dict.fromkeys(ordering.steps))
    return replace(ordering, steps=tuple(steps))


def _model_acts(ordering: Ordering) -> list[Act]:
    chosen = (ordering.acts[index] for index in ordering.steps if index < len(ordering.acts))
    return [
        act
        for act in chosen
        if act.action.kind is LLM or (act.action.kind in MODEL_KINDS and act.action.input_messages)
    ]


def _seen(act: Act) -> _Seen:
    messages = act.action.input_messages
    if not messages and act.action.input:
        messages = (Message(role="user", text=act.action.input),)
    instructions = act.action.instructions
    if instructions and all(message.role != "system" for message in messages):
        messages = (Message(role="system", text=instructions), *messages)
    return _Seen(act=act, facts=facts_of(act.span), messages=messages)


def _expanded(calls: Sequence[_Seen]) -> list[_Seen]:
    """Prepend the conversation kept by the provider (``previous_response_id``) to each call's messages."""
    known: dict[str, tuple[Message, ...]] = {}
    expanded: list[_Seen] = []
    for each in sorted(calls, key=lambda seen: (seen.act.span.start_ns, seen.act.index)):
        earlier = known.get(each.facts.previous_response_id, ())
        system = tuple(message for message in each.messages if message.role == "system")
        own = tuple(message for message in each.messages if message.role != "system")
        full = each if not earlier else replace(each, messages=(*system, *earlier, *own))
        expanded.append(full)
        if each.facts.response_id:
            conversation = tuple(message for message in full.messages if message.role != "system")
            known[each.facts.response_id] = (*conversation, *each.act.action.output_messages)
    return expanded


def _call(seen: _Seen, steps: Mapping[_Place, Step]) -> RecordedCall:
    act, facts = seen.act, seen.facts
    step = steps.get(key_of(act.span))
    return RecordedCall(
        index=0,
        trace_id=act.span.trace_id,
        span_id=act.span.span_id,
        agent=(step.agent if step else act.agent) or "",
        messages=seen.messages,
        answer=_answer(act, facts),
        step=step.index if step else None,
        has_system=any(message.role == "system" for message in seen.messages),
        has_calls=_shows_calls(seen.messages),
        start_ns=act.span.start_ns,
        end_ns=act.span.end_ns,
        group=step.group if step else None,
    )


def _shows_calls(messages: Sequence[Message]) -> bool:
    """Say whether the messages hold calls, or no tool results that would need calls."""
    return any(message.calls for message in messages) or all(message.role != "tool" for message in messages)


def _answer(act: Act, facts: CallFacts) -> Answer:
    answers = [
        message
        for message in act.action.output_messages
        if message.role in {"assistant", "tool"} or message.calls
    ]
    texts = [message.text for message in answers or act.action.output_messages if message.text]
    calls = tuple(call for message in act.action.output_messages for call in message.calls)
    text = "\n".join(texts) or ("" if calls else act.action.output)
    if act.action.failed and not text and not calls:
        error = act.action.error or "the recorded call failed"
        return Answer(error=said_by_provider(error), error_status=error_status(error), model=facts.model)
    return Answer(
        text=text,
        calls=calls,
        model=facts.model,
        input_tokens=facts.input_tokens,
        output_tokens=facts.output_tokens,
    )


def _embedding(span: Span, found: Sequence[Embedded]) -> RecordedCall:
    vectors = tuple(each.vector for each in found)
    return RecordedCall(
        index=0,
        trace_id=span.trace_id,
        span_id=span.span_id,
        agent="",
        messages=tuple(Message(role="user", text=each.text) for each in found),
        answer=Answer(vectors=vectors, model=facts_of(span).model),
        kind=CallKind.EMBEDDINGS,
        has_system=False,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
    )


def _numbered(calls: Iterable[RecordedCall]) -> tuple[RecordedCall, ...]:
    ordered = sorted(calls, key=lambda call: (call.start_ns, call.end_ns, call.span_id))
    return tuple(replace(call, index=index) for index, call in enumerate(ordered))


def _tools(ordering: Ordering, steps: Mapping[_Place, Step]) -> tuple[RecordedTool, ...]:
    acts = [
        act
        for index in ordering.steps
        if index < len(ordering.acts) and (act := ordering.acts[index]).action.kind is TOOL
    ]
    acts.sort(key=lambda act: (act.span.start_ns, act.span.end_ns, act.index))
    return tuple(_tool(index, act, steps.get(key_of(act.span))) for index, act in enumerate(acts))


def _delegations(ordering: Ordering) -> frozenset[str]:
    """Return the functions that no tool step executed: handoffs, agents as tools, final answers."""
    executed = {act.action.tool for act in ordering.chosen() if act.action.kind is TOOL}
    others = {act.action.tool for act in ordering.acts if act.action.kind in TOOL_KINDS}
    return frozenset(name for name in others - executed if name)


def _tool(index: int, act: Act, step: Step | None) -> RecordedTool:
    action = act.action
    return RecordedTool(
        index=index,
        span_id=act.span.span_id,
        name=action.tool or act.span.name,
        arguments=action.input,
        result=action.error or action.output if action.failed else action.output,
        agent=(step.agent if step else act.agent) or "",
        call_id=action.call_id,
        failed=action.failed,
        is_ours=act.span.scope.name == SCOPE_INSTRUMENT,
        step=step.index if step else None,
        start_ns=act.span.start_ns,
        end_ns=act.span.end_ns,
    )
