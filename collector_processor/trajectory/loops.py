"""Tool loops inside one model call's span: a client that runs the tools itself and shows only the whole.

.NET's ``FunctionInvokingChatClient`` does so below a client that writes spans: the span's output is the
request, the tools' results and the answer, one message after the other, and no span shows a tool
(Microsoft.Extensions.AI; the GenAI conventions allow several messages in ``gen_ai.output.messages``).
A model never writes a tool's result. So a result among its output is a tool's, run between two calls, if it
answers a call requested before it. Each part becomes an act on the call's span: request, tool, next call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from collector_processor.trajectory.acts import HANDOFF, LLM, TOOL, TOOL_KINDS, Act, Ordering
from semconv.dialects import Action, Message, ToolCall
from semconv.dialects.reading.payloads import reported_failure, unwrapped
from semconv.dialects.reading.tools import transfer_target
from semconv.model import SpanStatus
from semconv.record import replace

_TOOL_ROLE: Final = "tool"
_MOST_ROUNDS: Final = 128
"""Rounds up to which a loop is split: each part repeats what was heard before it. Clients allow about 40."""


def add_unseen_tools(ordering: Ordering) -> Ordering:
    """Split each model call that holds a loop of calls and tools, unless spans show the tools."""
    steps = ordering.chosen()
    loops = {act.index for act in steps if act.action.kind is LLM and _is_loop(act.action.output_messages)}
    if not loops:
        return ordering
    shown = {act.action.call_id for act in steps if act.action.kind in TOOL_KINDS}
    acts, order = list(ordering.acts), list[int]()
    for act in steps:
        parts = [act]
        if act.index in loops and shown.isdisjoint(_answered(act)) and not _encloses_tools(act, ordering):
            parts = _parts(act, len(acts))
        acts[act.index] = parts[0]
        acts.extend(parts[1:])
        order.extend(part.index for part in parts)
    return replace(ordering, acts=tuple(acts), steps=tuple(order))


def _is_loop(messages: Sequence[Message]) -> bool:
    """Say whether a tool's result stands between messages, and answers a call made before it."""
    asked: set[str] = set()
    for message in messages:
        if message.role == _TOOL_ROLE and not asked.isdisjoint(message.answers):
            return True
        asked.update(call.call_id for call in message.calls if call.call_id)
    return False


def _answered(act: Act) -> set[str]:
    return {call_id for message in act.action.output_messages for call_id in message.answers}


def _encloses_tools(act: Act, ordering: Ordering) -> bool:
    below = (ordering.acts[index].action.kind for index in ordering.below.get(act.index, ()))
    return any(kind in TOOL_KINDS for kind in below)


def _parts(act: Act, free: int) -> list[Act]:
    """Return a loop's calls and tools in order: the first has the act's index, the others ``free`` and on."""
    asked: dict[str, ToolCall] = {}
    found: list[Act] = []
    rounds = _rounds(act.action.output_messages)
    if len(rounds) > _MOST_ROUNDS:
        return [act]
    heard = act.action.input_messages
    for messages in rounds:
        if messages[0].role == _TOOL_ROLE:
            found += [tool for message in messages for tool in _tools(act, message, asked)]
        else:
            is_last = messages is rounds[-1]
            found.append(_call(act, messages, heard, is_first=not found, is_last=is_last))
            asked |= {call.call_id: call for message in messages for call in message.calls if call.call_id}
        heard = (*heard, *messages)
    return [
        replace(part, index=act.index if place == 0 else free + place - 1) for place, part in enumerate(found)
    ]


def _rounds(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Return the messages in runs of tools' results and of the model's own."""
    found: list[list[Message]] = []
    for message in messages:
        if found and (found[-1][0].role == _TOOL_ROLE) is (message.role == _TOOL_ROLE):
            found[-1].append(message)
        else:
            found.append([message])
    return [tuple(each) for each in found]


def _call(
    act: Act,
    messages: tuple[Message, ...],
    heard: tuple[Message, ...],
    *,
    is_first: bool,
    is_last: bool,
) -> Act:
    """Return one call of a loop; the span's failure is the last one's, for the loop went on before it."""
    action = replace(act.action, input_messages=heard, output_messages=messages, output="")
    span = act.span if is_first else replace(act.span, start_ns=act.span.end_ns)
    if not is_last:
        action = replace(action, failed=False, error="", stop=None)
        span = replace(span, status=SpanStatus.UNSET)
    return replace(act, span=span, action=action)


def _tools(act: Act, message: Message, asked: Mapping[str, ToolCall]) -> Iterator[Act]:
    """Yield the tools whose results a message holds; a text that answers several calls is each one's."""
    span = replace(act.span, start_ns=act.span.end_ns, status=SpanStatus.UNSET)
    for call_id in message.answers:
        call = asked.get(call_id)
        if call is None:
            continue
        complaint = reported_failure(message.text)
        target = transfer_target(call.name, call.arguments)
        action = Action(
            dialect=act.action.dialect,
            kind=TOOL if target is None else HANDOFF,
            tool=call.name,
            target=target,
            call_id=call_id,
            input=call.arguments,
            output=unwrapped(message.text),
            failed=bool(complaint),
            error=complaint,
        )
        yield replace(act, span=replace(span, name=call.name), action=action)
