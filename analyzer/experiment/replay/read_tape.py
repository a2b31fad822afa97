"""Reads a tape from a run's raw spans, through the dialects, or says why the run cannot be replayed. Pure.

It reads the spans and not ``Step.input``: a step keeps only new content, but a request holds the whole
conversation. The passes that order a trajectory are reused, because they detect spans that show the same
call. Obstacles are found before anything starts, each with the line that fixes the next recording.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias

from analyzer.experiment.replay.tape import (
    Answer,
    CallKind,
    NotReplayable,
    Obstacle,
    ReadTape,
    RecordedCall,
    RecordedTool,
    Tape,
)
from analyzer.experiment.replay.trial_tools import ToolRules, Undeclared, undeclared
from analyzer.inquiry.present import plain
from collector_processor.core.runs import Run
from collector_processor.lint import content_lines, limit_line
from collector_processor.trajectory import PASSES
from collector_processor.trajectory.acts import LLM, MODEL_KINDS, TOOL, TOOL_KINDS, Act, Ordering, read_acts
from semconv.attributes import SCOPE_INSTRUMENT
from semconv.dialects.reading.action import Message, key_of
from semconv.dialects.reading.usage import CallFacts, Embedded, embedded_in, facts_of
from semconv.dialects.support import lines_of
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
    for call in sorted(calls, key=lambda seen: (seen.act.span.start_ns, seen.act.index)):
        earlier = known.get(call.facts.previous_response_id, ())
        system = tuple(message for message in call.messages if message.role == "system")
        own = tuple(message for message in call.messages if message.role != "system")
        full = call if not earlier else replace(call, messages=(*system, *earlier, *own))
        expanded.append(full)
        if call.facts.response_id:
            conversation = tuple(message for message in full.messages if message.role != "system")
            known[call.facts.response_id] = (*conversation, *call.act.action.output_messages)
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


_UNREACHABLE: Final[Mapping[str, str]] = {
    "bedrock": "Amazon Bedrock",
    "vertex": "Google Vertex AI",
    "gemini": "Google Gemini",
    "google": "Google",
    "azure": "Azure OpenAI",
    "az.ai": "Azure AI",
    "cohere": "Cohere",
    "ollama": "Ollama's own API",
}
"""Parts of the names of providers whose clients do not use OpenAI's or Anthropic's API at a base URL."""
_STATUS: Final = re.compile(r"\b(?:Error code|status(?: code)?|HTTP)[: ]+([45]\d\d)\b", re.IGNORECASE)
_BEFORE_ERROR: Final = re.compile(r"\A(?:[A-Za-z_.]+: )?Error code: [45]\d\d - ")
_CUT_MARK: Final = re.compile(
    r"(?:\[cut, \d+ characters\]|\[truncated\]|\(truncated\)|<truncated>)$", re.IGNORECASE
)
_ONLY_SOUND: Final = "no setting, if other calls hold texts: choose a run whose model calls all succeeded"
_LEAST_LIMIT: Final = 128
_NAME: Final = 60
_SHOWN: Final = 80
"""Characters of a tool's name, and of its arguments or result, that an obstacle quotes."""
_ROUND: Final = (50, 64)
"""A configured limit is usually a multiple of one of these."""


def error_status(error: str) -> int:
    """Return the HTTP status that an error's text names; 500 if there is none."""
    found = _STATUS.search(error)
    return int(found[1]) if found else 500


def said_by_provider(error: str) -> str:
    """Return an error's text as the provider sent it, without the prefix that SDKs add in every run."""
    return _BEFORE_ERROR.sub("", error, count=1) or error


def obstacle_of_call(
    act: Act, facts: CallFacts, messages: Sequence[Message], allow_tools: frozenset[str]
) -> NotReplayable | None:
    """Return the obstacle to replaying a model call, if any."""
    not_replayable = next(
        chain(_in_its_texts(act, messages), _at_the_provider(act, facts, allow_tools)), None
    )
    if not_replayable is None:
        return None
    return NotReplayable(
        obstacle=not_replayable.obstacle,
        reason=f"span {act.span.span_id}: {not_replayable.reason}",
        mend=not_replayable.mend,
        span_id=act.span.span_id,
    )


def _in_its_texts(act: Act, messages: Sequence[Message]) -> Iterator[NotReplayable]:
    action, span = act.action, act.span
    if action.redacted:
        yield NotReplayable(
            obstacle=Obstacle.REDACTED, reason="the model call's texts are redacted", mend=content_lines(act)
        )
    if span.dropped_attributes:
        reason = "the model call lost attributes to a limit"
        yield NotReplayable(obstacle=Obstacle.CUT, reason=reason, mend=(limit_line([span]),))
    if not messages and action.failed:
        reason = "the model call failed, and its span holds no request, as with some instrumentations"
        mend = (_ONLY_SOUND, *(replay_lines([act]) or content_lines(act)))
        yield NotReplayable(obstacle=Obstacle.NO_CONTENT, reason=reason, mend=mend)
    if not messages or not (action.output_messages or action.output or action.failed):
        reason = f"the model call holds no {'answer' if messages else 'request'}"
        mend = replay_lines([act]) or content_lines(act)
        yield NotReplayable(obstacle=Obstacle.NO_CONTENT, reason=reason, mend=mend)
    if any(_CUT_MARK.search(message.text) for message in (*messages, *action.output_messages)):
        yield NotReplayable(obstacle=Obstacle.CUT, reason="texts of the model call are cut")


def no_model_calls(acts: Iterable[Act]) -> NotReplayable:
    """Return the obstacle of a run without model calls, with what would record them."""
    return NotReplayable(
        obstacle=Obstacle.NO_MODEL_CALLS,
        reason="the trace shows no model call with a request and an answer",
        mend=replay_lines(acts) or ("blamespan lint FILE  # says what the trace lacks",),
    )


def replay_lines(acts: Iterable[Act]) -> tuple[str, ...]:
    """Return the settings that this instrumentation needs for replayable runs; empty if it needs none."""
    found = (lines_of(act.action.dialect, act.span.scope.name, lambda each: each.replay) for act in acts)
    return next(filter(None, found), ())


def _at_the_provider(act: Act, facts: CallFacts, allow_tools: frozenset[str]) -> Iterator[NotReplayable]:
    if provider := _unreachable(facts.provider):
        yield NotReplayable(
            obstacle=Obstacle.UNREACHABLE_PROVIDER,
            reason=f"the model call went to {provider}, whose client ignores OpenAI's base URL",
            mend=("call the model through an OpenAI-compatible URL",),
        )
    if facts.has_reasoning and act.action.requested:
        yield NotReplayable(
            obstacle=Obstacle.ENCRYPTED_REASONING,
            reason="the tools that the model asked for need its encrypted reasoning or signed thinking",
            mend=("switch extended thinking off, or reasoning.encrypted_content, for this workflow",),
        )
    if facts.in_conversation:
        yield NotReplayable(
            obstacle=Obstacle.STORED_CONVERSATION,
            reason="the model call continues a conversation that the provider keeps",
            mend=("send the messages in place of `conversation`",),
        )
    if facts.is_background:
        reason = "the model call ran in the background"
        yield NotReplayable(obstacle=Obstacle.BACKGROUND, reason=reason, mend=("background=False",))
    if hidden := sorted(set(facts.provider_tools) - allow_tools):
        yield NotReplayable(
            obstacle=Obstacle.PROVIDER_TOOL,
            reason=f"the provider ran `{hidden[0]}` during the model call, which may have side effects",
            mend=(f"--allow-tool {hidden[0]}  # if it only reads",),
        )


def _unreachable(provider: str) -> str:
    lower = provider.lower()
    return next((name for part, name in _UNREACHABLE.items() if part in lower), "")


def obstacle_of_run(spans: Sequence[Span]) -> NotReplayable | None:
    """Return an obstacle if a length limit cut texts: several different texts have the same length."""
    lengths = Counter(
        len(value)
        for value in {value for span in spans for value in span.attributes.values() if isinstance(value, str)}
        if len(value) >= _LEAST_LIMIT
    )
    longest = max(lengths, default=0)
    if lengths[longest] < 2 or all(longest % step for step in _ROUND):
        return None
    return NotReplayable(
        obstacle=Obstacle.CUT,
        reason=f"texts are cut: {lengths[longest]} different ones are exactly {longest} characters long",
        mend=("unset OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",),
    )


_NOT_OF_ALL: Final = "not for pin and backtest; "


def undeclared_tool(tape: Tape, rules: ToolRules) -> NotReplayable | None:
    """Return all tools that would really run in a trial and are not declared read-only, as one obstacle.

    Each is told with what it did in the recording: whether a tool only reads is for its owner to say.
    """
    found = undeclared(tape, rules)
    if not found:
        return None
    tools = ", ".join(
        f"`{plain(each.name, _NAME)}` would really run in a trial ({_done(each)})" for each in found
    )
    allowed = " ".join(f"--allow-tool {shlex.quote(plain(each.name, _NAME))}" for each in found)
    is_one = len(found) == 1
    name = plain(found[0].name, _NAME) if is_one else "NAME"
    which = "if it only reads" if is_one else "those that only read; for each of the others:"
    return NotReplayable(
        obstacle=Obstacle.UNDECLARED_TOOL,
        reason=f"the tool{'' if is_one else 's'} {tools}, and may have side effects",
        mend=(
            f"{allowed}  # {which}",
            f'@tool("{name}")  # semconv.instrument, on its function: its results come off the tape',
            f"--mcp-tool {name}=VARIABLE  # {_NOT_OF_ALL}the variable has its MCP server's address",
            f'--mcp-command {name}="COMMAND"  # {_NOT_OF_ALL}this command starts its MCP server over stdio',
            f"--http-tool {name}=VARIABLE  # {_NOT_OF_ALL}the same for plain HTTP",
        ),
        span_id=SpanId(found[0].span_id),
    )


def _done(tool: Undeclared) -> str:
    """Say what a tool did in the recording."""
    times = "once" if tool.times == 1 else f"{tool.times} times"
    given = f", first with {plain(tool.arguments, _SHOWN)}" if tool.arguments else ""
    result = f", which gave {plain(tool.result, _SHOWN)}" if tool.result else ""
    return f"recorded {times}{given}{result}"
