"""A dialogue of people, agents and tools as spans: what all readers of messages share. Pure.

Files of messages (a model API's, a framework's, a coding agent's session) record who said what and which tool
answered which call. A reader turns its own shape into ``Message``; this module makes of them the spans that
an instrumented program would have sent, by OpenTelemetry's GenAI convention: a ``chat`` span for each message
of an agent, holding what was said to it since the agent spoke last and instructions that are new, or an
``invoke_agent`` span if the message is all that is recorded of the agent's turn, and an ``execute_tool`` span
for each result. A dialogue inside a call (a subagent's) is below an ``invoke_agent``
span below that call's tool span.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from json.encoder import encode_basestring as quoted
from operator import attrgetter
from typing import Final, NamedTuple

from analyzer.recordings.fields import json_text, trace_id_of
from semconv.attributes import (
    GEN_AI_AGENT_NAME,
    GEN_AI_INPUT_MESSAGES,
    GEN_AI_OPERATION_NAME,
    GEN_AI_OUTPUT_MESSAGES,
    GEN_AI_REQUEST_MODEL,
    GEN_AI_RESPONSE_FINISH_REASONS,
    GEN_AI_SYSTEM_INSTRUCTIONS,
    GEN_AI_TOOL_CALL_ARGUMENTS,
    GEN_AI_TOOL_CALL_ID,
    GEN_AI_TOOL_CALL_RESULT,
    GEN_AI_TOOL_NAME,
    GEN_AI_USAGE_INPUT_TOKENS,
    GEN_AI_USAGE_OUTPUT_TOKENS,
    GEN_AI_WORKFLOW_NAME,
    GenAiOperationName,
)
from semconv.dialects.reading.agent_names import titled_in_prompt
from semconv.json_text import read_json
from semconv.model import (
    Attributes,
    AttributeValue,
    Resource,
    Scope,
    Span,
    SpanId,
    SpanStatus,
    ToolCall,
    TraceId,
)
from semconv.record import record, replace

_SCOPE: Final = Scope(name="blamespan.recordings")
_MOMENT_NS: Final = 1_000_000
"""Time between messages that record none, and the least time between two others."""
_MOST_HEARD: Final = 16
"""Messages that are new to an agent: those before them are in the spans of the agents that said them."""
_FALLBACK: Final = "assistant"
_HANDED_OVER: Final = re.compile(r'\s{0,9}\{\s{0,9}"assistant"\s{0,9}:')
_IDS: Final = (1 << 64) - 1
"""How many span ids there are: zero is none."""
_INTERNAL, _CLIENT = 1, 3
"""Span kinds."""
# Looked up once: reading an enum's member or value takes longer than creating the dictionary it goes into.
_UNSET, _ERROR = SpanStatus.UNSET, SpanStatus.ERROR
_WORKFLOW: Final = GenAiOperationName.INVOKE_WORKFLOW.value
_AGENT: Final = GenAiOperationName.INVOKE_AGENT.value
_CHAT: Final = GenAiOperationName.CHAT.value
_TOOL: Final = GenAiOperationName.EXECUTE_TOOL.value


class Speaker(StrEnum):
    """Who a message is from."""

    USER = "user"
    AGENT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


USER, AGENT, TOOL, SYSTEM = Speaker  # reading an enum's member takes longer than reading a name
SPEAKERS: Final[Mapping[str, Speaker]] = {
    "user": USER,
    "assistant": AGENT,
    "tool": TOOL,
    "function": TOOL,
    "system": SYSTEM,
    "developer": SYSTEM,
}
"""Speakers by the roles of OpenAI's chat API, which most others use too."""
_made: Final[Callable[..., Span]] = Span
"""Makes a span of fields in their order: with their names it takes more than twice as long."""
_SHOWN: Final = frozenset({AGENT, TOOL})
"""Those whose messages are spans."""


@record
class Message:
    """One message, in the order of the dialogue."""

    speaker: Speaker
    text: str = ""
    agent: str = ""
    """The agent that speaks, or whose tool answers; empty if it has no name."""
    calls: tuple[ToolCall, ...] = ()
    """What an agent's message asks of tools."""
    call_id: str = ""
    """The call that a tool's result answers."""
    tool: str = ""
    """The tool's name, if the result states it; the call's name is the default."""
    failed: bool = False
    """Whether the message is an error: a tool's, or a model's in place of an answer."""
    time_ns: int = 0
    """When the message was complete; 0 if unknown."""
    model: str = ""
    inside: str = ""
    """Id of the call during which the message was written; empty at the top."""
    tokens: tuple[int, int] | None = None
    """Input and output tokens, if recorded."""
    finish: str = ""
    """Why the model stopped, if it was not done: a limit, a filter."""
    is_whole_turn: bool = False
    """Whether it is all that is recorded of an agent's turn: its calls of models and tools are not."""


class _Talk:
    """What was said in one dialogue: the first message and the last ones, all that is heard again.

    A message is kept with its agent (empty for people and tools), as JSON in the schema of
    ``gen_ai.input.messages``: encoded once, however many agents hear it.
    """

    def __init__(self) -> None:
        self.count = 0
        self._first: tuple[tuple[str, str], ...] = ()
        self._last: Final = deque[tuple[str, str]](maxlen=_MOST_HEARD)

    def add(self, message: str, agent: str = "") -> None:
        said = (message, agent)
        self._first = self._first or (said,)
        self._last.append(said)
        self.count += 1

    def since(self, count: int) -> Sequence[tuple[str, str]]:
        """Return what follows the first ``count`` messages, up to a bound; of all of them also the first."""
        new = min(self.count - count, len(self._last))
        last = tuple(islice(self._last, len(self._last) - new, None))
        return (*self._first, *last) if not count and self.count > len(self._last) else last


class _Asked(NamedTuple):
    call: ToolCall
    agent: str = ""
    time_ns: int = 0


def dialogue_spans(
    messages: Iterable[Message],
    *,
    name: str,
    key: str = "",
    task: str = "",
    answer: str = "",
    error: str = "",
    begin_ns: int = 0,
) -> tuple[Span, ...]:
    """Return one trace with the steps of a dialogue.

    Args:
        messages: in the order in which they were written.
        name: the program or framework, for the root span and ``service.name``.
        key: identifies the dialogue; by default its contents do.
        task: what was asked, if it is recorded apart; the first message of a person is the default.
        answer: the final answer, if it is recorded apart; the last text at the top is the default.
        error: what ended the dialogue, if an error did.
        begin_ns: when it began, in ns since the epoch, if no message has a time.

    Returns:
        Spans in the order of their start, the root first; empty if no agent speaks and no tool answers.
    """
    messages = list(in_order(messages))
    if not any(message.speaker in _SHOWN for message in messages):
        return ()
    times = _times(messages, begin_ns)
    made = _Dialogue(messages, times, trace_id_of(key or _contents(messages)), name)
    task = task or next((one.text for one in messages if one.speaker is USER and not one.inside), "")
    answer = answer or _last_text(messages)
    attributes: dict[str, AttributeValue] = {
        GEN_AI_OPERATION_NAME: _WORKFLOW,
        GEN_AI_WORKFLOW_NAME: name,
    }
    if task:
        attributes[GEN_AI_INPUT_MESSAGES] = f"[{_text_message('user', task)}]"
    if answer:
        attributes[GEN_AI_OUTPUT_MESSAGES] = f"[{_text_message('assistant', answer)}]"
    root = made.span(
        span_id=made.root_id,
        parent_id=None,
        name=f"invoke_workflow {name}",
        kind=_INTERNAL,
        start_ns=times[0] - _MOMENT_NS,
        end_ns=times[-1],
        attributes=attributes,
        error=error or None,
    )
    return (root, *made.spans(messages))


def dialogues_spans(dialogues: Iterable[Iterable[Message]], *, name: str) -> Iterator[Span]:
    """Yield the traces of dialogues; one without times begins when the one before it has ended."""
    begin_ns = 0
    for messages in dialogues:
        spans = dialogue_spans(messages, name=name, begin_ns=begin_ns)
        begin_ns = spans[0].end_ns if spans else begin_ns
        yield from spans


def joined_answers(messages: Iterable[Message]) -> list[Message]:
    """Return messages with the parts of each answer as one: some APIs write each part as an item of its own.

    A call belongs to the message of the same agent right before it: the model asked for it in the same
    answer.
    """
    found: list[Message] = []
    for message in in_order(messages):
        last = found[-1] if found else None
        if last is None or not _continues(last, message):
            found.append(message)
            continue
        text = "\n".join(filter(None, (last.text, message.text)))
        calls = (*last.calls, *message.calls)
        found[-1] = replace(last, text=text, calls=calls, time_ns=message.time_ns, finish=message.finish)
    return found


def in_order(messages: Iterable[Message]) -> Sequence[Message]:
    """Return messages in the order in which they were written: many APIs list the newest first.

    A result follows its call. Where all stand before theirs, the newest is first; where some do, the times of
    the messages tell, if all have one. Times alone do not, as they are of several clocks.
    """
    found = tuple(messages)
    asked: dict[str, int] = {}
    answered: dict[str, int] = {}
    for place, message in enumerate(found):
        if message.call_id:
            answered.setdefault(message.call_id, place)
        for call in message.calls:
            asked.setdefault(call.call_id, place)
    places = [(asked[call_id], place) for call_id, place in answered.items() if call_id in asked]
    early = sum(place < call for call, place in places)
    if early and early == len(places):
        return found[::-1]
    return sorted(found, key=attrgetter("time_ns")) if early and all(one.time_ns for one in found) else found


def _continues(last: Message, message: Message) -> bool:
    is_answer = last.speaker is message.speaker is Speaker.AGENT and not (last.failed or message.failed)
    is_same = (last.agent, last.inside, last.model) == (message.agent, message.inside, message.model)
    return is_answer and is_same and bool(message.calls)


def _times(messages: Sequence[Message], begin_ns: int) -> list[int]:
    """Return the time of each message, in ns: as recorded, but ascending."""
    latest = next((one.time_ns for one in messages if one.time_ns), begin_ns + _MOMENT_NS)
    found: list[int] = []
    for message in messages:
        latest = max(message.time_ns, latest + _MOMENT_NS)
        found.append(latest)
    return found


_SHOWN_AS: Final = {speaker: repr(speaker) for speaker in Speaker}


def _contents(messages: Iterable[Message]) -> str:
    parts = [
        f"({_SHOWN_AS[one.speaker]}, {one.agent!r}, {one.text!r}, {one.call_id!r}, {_shown(one.calls)})"
        for one in messages
    ]
    return hashlib.sha256(f"[{', '.join(parts)}]".encode("utf-8", "replace")).hexdigest()


def _shown(calls: Sequence[ToolCall]) -> str:
    """Return what ``repr`` returns, in a fifth of the time: runs are known by it."""
    if not calls:
        return "()"
    shown = [
        f"ToolCall(name={one.name!r}, arguments={one.arguments!r}, call_id={one.call_id!r})" for one in calls
    ]
    return f"({', '.join(shown)}{',' if len(shown) == 1 else ''})"


def _last_text(messages: Sequence[Message]) -> str:
    spoken = (one for one in reversed(messages) if one.speaker is AGENT and not one.inside and one.text)
    last = next(spoken, None)
    return "" if last is None or last.failed else last.text


class _Dialogue:
    """Builds the spans of one dialogue; a message is visited once."""

    def __init__(
        self, messages: Sequence[Message], times: Sequence[int], trace_id: TraceId, name: str
    ) -> None:
        self._trace_id: Final = trace_id
        self._first_id: Final = int(trace_id[:16], 16)
        self._resource: Final = Resource(attributes={"service.name": name})
        self.root_id: Final = self._id("root")
        self._times: Final = times
        self._asked: Final[defaultdict[str, deque[_Asked]]] = defaultdict(deque)
        """Calls without a result yet, by their id; by the tool's name if they have none."""
        self._around: Final = dict.fromkeys(message.inside for message in messages if message.inside)
        """Ids of the calls that others are inside of, in the order of the messages."""
        self._calls: Final[set[SpanId]] = set()
        """Spans of calls, which other dialogues may be inside of."""
        self._said: Final[defaultdict[str, _Talk]] = defaultdict(_Talk)
        """What was said in each dialogue, by the call that it is inside of."""
        self._spoke: Final[dict[tuple[str, str], int]] = {}
        """How much had been said in a dialogue when an agent spoke last."""
        self._agents: Final[dict[str, str]] = {}
        """The agent that spoke last in each dialogue."""
        self._instructions: Final[defaultdict[str, list[str]]] = defaultdict(list)
        """Instructions that no span has yet: a long prompt on each of thousands would take gigabytes."""

    def _place_id(self, place: int) -> SpanId:
        """Return the id of a message's span; a hash for each would take a tenth of the time."""
        return SpanId(f"{(self._first_id + place) % _IDS + 1:016x}")

    def _id(self, of: str) -> SpanId:
        return SpanId(hashlib.sha256(f"{self._trace_id} {of}".encode("utf-8", "replace")).hexdigest()[:16])

    def spans(self, messages: list[Message]) -> list[Span]:
        """Return the spans below the root, in the order of their start.

        The list is emptied meanwhile: a message takes as much memory as the span that is made of it.
        """
        messages.reverse()
        found = [span for place in range(len(messages)) if (span := self._of(place, messages.pop()))]
        inside = list(self._around)
        below: defaultdict[SpanId | None, list[Span]] = defaultdict(list)
        for span in found if inside else ():
            below[span.parent_id].append(span)
        found += [self._inner(one, below) for one in inside]
        return sorted(found, key=attrgetter("start_ns"))

    def span(
        self,
        *,
        span_id: SpanId,
        parent_id: SpanId | None,
        name: str,
        kind: int,
        start_ns: int,
        end_ns: int,
        attributes: Attributes,
        error: str | None = None,
    ) -> Span:
        """Return a span of the dialogue, failed if there is an error; its text may be empty."""
        status = _UNSET if error is None else _ERROR
        told = (name, kind, start_ns, end_ns, status, error or "", attributes)
        return _made(self._trace_id, span_id, parent_id, *told, (), (), (), _SCOPE, self._resource)

    def _of(self, place: int, message: Message) -> Span | None:
        speaker = message.speaker
        if speaker is AGENT:
            return self._chat(place, message)
        if speaker is TOOL:
            return self._tool(place, message)
        if speaker is USER:
            self._said[message.inside].add(_text_message("user", message.text))
        else:
            self._instructions[message.inside].append(message.text)
        return None

    def _speaker(self, message: Message) -> str:
        """Return the agent of a message: as recorded, as its instructions name it, or the one before."""
        known = message.agent or self._agents.get(message.inside)
        return known or titled_in_prompt("\n".join(self._instructions[message.inside])) or _FALLBACK

    def _chat(self, place: int, one: Message) -> Span:
        agent, inside, time_ns = self._speaker(one), one.inside, self._times[place]
        talk, parts = self._said[inside], _agent_parts(one)
        since = self._spoke.get((inside, agent), 0)
        heard = [message for message, speaker in talk.since(since) if speaker != agent]
        self._agents[inside] = agent
        if not one.failed:  # else the agent is asked the same again
            talk.add(f'{{"role": "assistant", "parts": {parts}, "name": {quoted(agent)}}}', agent)
            self._spoke[inside, agent] = talk.count
        for call in one.calls:
            self._asked[call.call_id or call.name].append(_Asked(call=call, agent=agent, time_ns=time_ns))
        operation = _AGENT if one.is_whole_turn else _CHAT
        attributes: dict[str, AttributeValue] = {
            GEN_AI_OPERATION_NAME: operation,
            GEN_AI_AGENT_NAME: agent,
        }
        if one.model:
            attributes[GEN_AI_REQUEST_MODEL] = one.model
        if instructions := "\n\n".join(self._instructions.pop(inside, ())):
            attributes[GEN_AI_SYSTEM_INSTRUCTIONS] = f"[{_text_part(instructions)}]"
        if heard:  # since the agent spoke last, up to a bound; at first also the task
            attributes[GEN_AI_INPUT_MESSAGES] = f"[{', '.join(heard)}]"
        if not one.failed:
            attributes[GEN_AI_OUTPUT_MESSAGES] = f'[{{"role": "assistant", "parts": {parts}}}]'
        if one.tokens:
            attributes[GEN_AI_USAGE_INPUT_TOKENS], attributes[GEN_AI_USAGE_OUTPUT_TOKENS] = one.tokens
        if one.finish:
            attributes[GEN_AI_RESPONSE_FINISH_REASONS] = (one.finish,)
        return self.span(
            span_id=self._place_id(place),
            parent_id=self._parent(one),
            name=f"{operation} {agent if one.is_whole_turn else one.model}".strip(),
            kind=_INTERNAL if one.is_whole_turn else _CLIENT,
            start_ns=max(self._times[place - 1] if place else 0, time_ns - _MOMENT_NS // 2),
            end_ns=time_ns,
            attributes=attributes,
            error=one.text if one.failed else None,
        )

    def _tool(self, place: int, message: Message) -> Span:
        time_ns = self._times[place]
        key = message.call_id or message.tool
        waiting = self._asked.get(key)
        asked = waiting.popleft() if waiting else _Asked(call=ToolCall(name=message.tool), time_ns=time_ns)
        if waiting is not None and not waiting:  # a queue for each call ever made takes as much as its text
            del self._asked[key]
        agent, tool = asked.agent or self._speaker(message), asked.call.name or message.tool or "unknown"
        call_id, result = quoted(message.call_id), quoted(message.text)
        part = f'{{"type": "tool_call_response", "id": {call_id}, "response": {result}}}'
        self._said[message.inside].add(f'{{"role": "tool", "parts": [{part}]}}')
        if successor := _handed_over(message.text):
            self._agents[message.inside] = successor
        return self.span(
            span_id=self._call_span(message, place),
            parent_id=self._parent(message),
            name=f"execute_tool {tool}",
            kind=_INTERNAL,
            start_ns=asked.time_ns,
            end_ns=time_ns,
            attributes={
                GEN_AI_OPERATION_NAME: _TOOL,
                GEN_AI_AGENT_NAME: agent,
                GEN_AI_TOOL_NAME: tool,
                GEN_AI_TOOL_CALL_ID: message.call_id,
                GEN_AI_TOOL_CALL_ARGUMENTS: asked.call.arguments,
                GEN_AI_TOOL_CALL_RESULT: message.text,
            },
            error=message.text if message.failed else None,
        )

    def _call_span(self, message: Message, place: int) -> SpanId:
        """Return the id of a result's span: of its call, unless an earlier call had the same id."""
        if message.call_id not in self._around:
            return self._place_id(place)
        own_id = self._id(f"call {message.call_id}")
        if own_id in self._calls:
            return self._place_id(place)
        self._calls.add(own_id)
        return own_id

    def _parent(self, message: Message) -> SpanId:
        return self._id(f"inside {message.inside}") if message.inside else self.root_id

    def _inner(self, call_id: str, below: Mapping[SpanId | None, Sequence[Span]]) -> Span:
        """Return the span of the agent that works inside a call, below the call's own."""
        own_id, call_span = self._id(f"inside {call_id}"), self._id(f"call {call_id}")
        inner = below.get(own_id, ())
        agent = self._agents.get(call_id, _FALLBACK)
        return self.span(
            span_id=own_id,
            parent_id=call_span if call_span in self._calls else self.root_id,
            name=f"invoke_agent {agent}",
            kind=_INTERNAL,
            start_ns=min((span.start_ns for span in inner), default=0),
            end_ns=max((span.end_ns for span in inner), default=0),
            attributes={GEN_AI_OPERATION_NAME: _AGENT, GEN_AI_AGENT_NAME: agent},
        )


def _handed_over(result: str) -> str:
    """Return the agent that speaks after a handoff; empty for other results.

    OpenAI's Agents SDK and Swarm answer a handoff with ``{"assistant": "Billing"}``, and name no agent else.
    """
    if "assistant" not in result[:200] or not _HANDED_OVER.match(result[:200]):
        return ""
    try:
        given = read_json(result)
    except ValueError:
        return ""
    return json_text(given["assistant"]) if given.keys() == {"assistant"} else ""


# JSON in the form of ``json.dumps``, which takes four times as long for values as small as these.


def _agent_parts(message: Message) -> str:
    if not message.calls:
        return f"[{_text_part(message.text)}]" if message.text else "[]"
    parts = [_text_part(message.text)] if message.text else []
    parts += [
        f'{{"type": "tool_call", "id": {quoted(call.call_id)}, "name": {quoted(call.name)},'
        f' "arguments": {quoted(call.arguments)}}}'
        for call in message.calls
    ]
    return f"[{', '.join(parts)}]"


def _text_message(role: str, text: str) -> str:
    return f'{{"role": {quoted(role)}, "parts": [{_text_part(text)}]}}'


def _text_part(text: str) -> str:
    return f'{{"type": "text", "content": {quoted(text)}}}'
