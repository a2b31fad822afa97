"""Tapes and requests for tests of replays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from analyzer.experiment.replay.tape import Answer, RecordedCall, RecordedTool, Tape
from analyzer.experiment.replay.trial import Request
from semconv.dialects.reading.action import Message
from semconv.model import SpanId, ToolCall, TraceId

SECOND = 1_000_000_000


def said(*texts: str, system: str = "Be brief.") -> tuple[Message, ...]:
    """A conversation: system, then user and assistant alternately."""
    roles = ("user", "assistant")
    turns = tuple(Message(role=roles[place % 2], text=text) for place, text in enumerate(texts))
    return (Message(role="system", text=system), *turns) if system else turns


def call(
    index: int,
    *texts: str,
    answer: str | Answer = "",
    begin: float | None = None,
    end: float | None = None,
    messages: tuple[Message, ...] | None = None,
    has_system: bool = True,
) -> RecordedCall:
    """A recorded call that by default occupies the second of its index."""
    return RecordedCall(
        index=index,
        trace_id=TraceId("1" * 32),
        span_id=SpanId(f"{index:016x}"),
        agent="worker",
        messages=messages or said(*texts, system="Be brief." if has_system else ""),
        answer=answer if isinstance(answer, Answer) else Answer(text=answer or f"answer {index}"),
        step=index,
        has_system=has_system,
        start_ns=int((index if begin is None else begin) * SECOND),
        end_ns=int((index + 0.9 if end is None else end) * SECOND),
    )


def tool(index: int, name: str, result: str = "ok", /, **arguments: Any) -> RecordedTool:
    return RecordedTool(
        index=index,
        span_id=SpanId(f"{index:016x}"),
        name=name,
        arguments=json.dumps(arguments),
        result=result,
        is_ours=True,
    )


def tape(*calls: RecordedCall, tools: Sequence[RecordedTool] = ()) -> Tape:
    return Tape(run_id="run", calls=calls, tools=tuple(tools))


def asking(*texts: str, retry: int = 0, **more: Any) -> Request:
    return Request(messages=said(*texts), retry=retry, **more)


def again(recorded: RecordedCall, **more: Any) -> Request:
    """Repeat the request of a recorded call."""
    return Request(messages=recorded.messages, **more)


def chat_body(messages: Sequence[Message], *, stream: bool = False) -> dict[str, Any]:
    """The messages as an SDK sends them to the chat completions, with new ids for the calls."""
    return {"model": "gpt", "messages": _chat(messages), "stream": stream}


def _chat(messages: Sequence[Message]) -> list[dict[str, Any]]:
    ids: dict[str, str] = {}
    sent: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            answered = message.answers or (next(reversed(ids.values()), "call_x"),)
            sent.append(
                {"role": "tool", "tool_call_id": ids.get(answered[0], "call_x"), "content": message.text}
            )
            continue
        one: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.calls:
            for each in message.calls:
                ids[each.call_id] = f"call_new{len(ids)}"
            one["tool_calls"] = [_called(each, ids[each.call_id]) for each in message.calls]
        sent.append(one)
    return sent


def _called(wanted: ToolCall, id_: str) -> dict[str, Any]:
    return {
        "id": id_,
        "type": "function",
        "function": {"name": wanted.name, "arguments": wanted.arguments or "{}"},
    }
