"""Reader of OpenCode's sessions: ``opencode export``, and ``GET /session/ID/message``. Pure.

A message has ``info`` (role, agent or mode, model, times) and ``parts``; a part of the type ``tool`` holds
the call and, in its ``state``, the result. A subagent's own session is another export.
Source: anomalyco/opencode (earlier sst/opencode), ``packages/sdk``: ``Message``, ``ToolPart`` (0.6 to 1.18).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogue_spans
from analyzer.recordings.fields import (
    all_have,
    json_text,
    nanoseconds,
    object_at,
    objects,
    text_at,
    unwrapped,
)
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.model import ToolCall

_NAME: Final = "opencode"
_ABORTED: Final = "MessageAbortedError"
_REJECTED: Final = ("The user rejected permission", "Tool execution aborted")
"""Errors of tools that a person stopped."""


def is_opencode(records: Records) -> bool:
    """Tell whether records are messages with parts, or an export that holds some."""
    messages = _entries(records)
    return all_have(messages, "info", "parts") and all(
        text_at(message["info"], "role") in {"user", "assistant"} for message in messages
    )


def _entries(records: Records) -> Records:
    """Return messages; the events of ``opencode run --format json`` are parts of the answer."""
    if not all_have(records, "type", "sessionID", "part"):
        return unwrapped(records, "messages")
    info = {"role": "assistant", "sessionID": records[0]["sessionID"]}
    return [{"info": info, "parts": [record["part"] for record in records]}]


def read_opencode(records: Records) -> Spans:
    """Read one session."""
    entries = objects(_entries(records))
    messages = [message for entry in entries for message in _of_entry(entry)]
    error = entries[-1]["info"].get("error")
    ended = ""
    if isinstance(error, dict):
        told = error.get("data")
        reason = json_text(told.get("message") if isinstance(told, dict) else told)
        ended = f"{json_text(error.get('name'))}: {reason}"
        ended = "KeyboardInterrupt: interrupted by the user" if error.get("name") == _ABORTED else ended
    key = json_text(entries[0]["info"].get("sessionID"))
    return dialogue_spans(messages, name=_NAME, key=f"{_NAME} {key}" if key else "", error=ended)


def _of_entry(entry: Mapping[str, Any]) -> Iterator[Message]:
    info, parts = entry["info"], objects(entry.get("parts"))
    times = object_at(info, "time")
    text = "\n".join(
        json_text(part.get("text"))
        for part in parts
        if part.get("type") == "text" and not part.get("synthetic") and not part.get("ignored")
    )
    if info["role"] == "user":
        if text:
            yield Message(speaker=Speaker.USER, text=text, time_ns=nanoseconds(times.get("created")))
        return
    agent = json_text(info.get("agent") or info.get("mode")) or _NAME
    model, texts = json_text(info.get("modelID")), []
    for part in parts:
        if part.get("type") == "text":
            texts.append(json_text(part.get("text")))
        elif part.get("type") == "tool" and isinstance(part.get("state"), dict):
            state = part["state"]
            call_id = json_text(part.get("callID") or part.get("id"))
            call = ToolCall(
                name=json_text(part.get("tool")), arguments=json_text(state.get("input")), call_id=call_id
            )
            moments = object_at(state, "time")
            yield Message(
                speaker=Speaker.AGENT,
                text="\n".join(texts),
                agent=agent,
                calls=(call,),
                time_ns=nanoseconds(moments.get("start")),
                model=model,
            )
            texts = []
            yield from _result(state, call_id, nanoseconds(moments.get("end")))
    if texts:
        yield Message(
            speaker=Speaker.AGENT,
            text="\n".join(texts),
            agent=agent,
            time_ns=nanoseconds(times.get("completed")),
            model=model,
        )


def _result(state: Mapping[str, Any], call_id: str, time_ns: int) -> Iterator[Message]:
    if state.get("status") not in {"completed", "error"}:
        return
    error, code = json_text(state.get("error")), object_at(state, "metadata").get("exit")
    yield Message(
        speaker=Speaker.TOOL,
        text=error or json_text(state.get("output")),
        call_id=call_id,
        failed=bool(code) or (state.get("status") == "error" and not error.startswith(_REJECTED)),
        time_ns=time_ns,
    )


OPENCODE: Final = FileFormat(
    name="OpenCode sessions",
    example="opencode.json",
    source="anomalyco/opencode, `packages/sdk`",
    how="`opencode export SESSION_ID > session.json`, or `opencode run --format json … > session.jsonl`",
    recognizes=is_opencode,
    read=read_opencode,
)
