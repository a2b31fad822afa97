"""Reader of Gemini CLI's sessions: ``~/.gemini/tmp/*/chats/session-*.json``. Pure.

One document with ``messages`` of the types ``user``, ``gemini``, ``info`` and ``error``. A message of the
model holds its tool calls together with their results. Newer versions write one record a line, the session's
own fields first; of records with one id the last counts. ``--output-format stream-json`` prints calls and
results as events of their own.
Source: google-gemini/gemini-cli, ``packages/core/src/services/chatRecordingService.ts`` (0.20 to 0.61).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogue_spans, joined_answers
from analyzer.recordings.fields import json_text, nanoseconds, objects, sessions_of, text_at
from analyzer.recordings.message_parts import text_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.model import ToolCall
from semconv.record import replace

_NAME: Final = "gemini"
_HEAD: Final = frozenset({"sessionId", "projectHash"})
"""Keys of a session, or of the first of its lines."""
_EVENTS: Final = frozenset({"init", "message", "tool_use", "tool_result", "error", "result"})
_EXIT_CODE: Final = re.compile(r"^Exit Code: (-?\d+)$", re.MULTILINE)
_MOST_TAIL: Final = 500
"""Characters at the end of an output in which its exit code stands."""
_CANCELLED: Final = "Request cancelled."


def is_gemini_session(records: Records) -> bool:
    """Tell whether a file is a session with the model's messages in it, or the stream of a run."""
    first = records[0]
    if not isinstance(first, dict):
        return False
    if _is_stream(records):
        return True
    is_session = first.keys() >= _HEAD and all(map(_is_of_session, records))
    return is_session and any(text_at(message, "type") == _NAME for message in _messages_of(records))


def _is_of_session(one: Any) -> bool:
    """Tell whether it may be a session, a message, or an order such as ``$set``."""
    is_order = isinstance(one, dict) and all(str(key).startswith("$") for key in one)
    return _is_head(one) or text_at(one, "type") != "" or is_order


def _is_stream(records: Records) -> bool:
    if text_at(records[0], "type") != "init" or "session_id" not in records[0]:
        return False
    kinds = {text_at(record, "type") for record in records}
    return "message" in kinds and kinds <= _EVENTS


def _messages_of(records: Records) -> list[Mapping[str, Any]]:
    """Return the messages of a document, or of lines; a line may replace an earlier one."""
    found = objects(records[0].get("messages")) if isinstance(records[0], dict) else []
    lines = [one for one in objects(records)[1:] if "type" in one and "id" in one]
    return list(
        {json_text(one.get("id")) or str(place): one for place, one in enumerate([*found, *lines])}.values()
    )


def read_gemini_session(records: Records) -> Spans:
    """Read one session, or several that were joined."""
    return (span for session in sessions_of(records, _is_head) for span in _read_session(session))


def _is_head(one: Any) -> bool:
    return text_at(one, "type") == "init" or (isinstance(one, dict) and one.keys() >= _HEAD)


def _read_session(records: Records) -> Spans:
    if _is_stream(records):
        events = objects(records)
        messages = [message for event in events for message in _of_event(event)]
        error = events[-1].get("error") if events[-1].get("type") == "result" else None
        reason = json_text(error.get("message") if isinstance(error, dict) else error)
        key = f"{_NAME} {json_text(events[0]['session_id'])}"
        return dialogue_spans(_joined(messages), name="gemini_cli", key=key, error=reason)
    entries = _messages_of(records)
    messages = [message for entry in entries for message in _of_entry(entry)]
    last = entries[-1]
    error = ""
    if last.get("type") == "info" and json_text(last.get("content")) == _CANCELLED:
        error = "KeyboardInterrupt: interrupted by the user"
    elif last.get("type") == "error":
        error = text_of(last.get("content"))
    key = f"{_NAME} {json_text(records[0]['sessionId'])}"
    return dialogue_spans(messages, name="gemini_cli", key=key, error=error)


def _of_event(event: Mapping[str, Any]) -> Iterator[Message]:
    """Yield the message of an event of the stream."""
    kind, time_ns = event.get("type"), nanoseconds(event.get("timestamp"))
    call_id = json_text(event.get("tool_id"))
    if kind == "message":
        speaker = Speaker.USER if event.get("role") == "user" else Speaker.AGENT
        agent = _NAME if speaker is Speaker.AGENT else ""
        yield Message(speaker=speaker, text=text_of(event.get("content")), agent=agent, time_ns=time_ns)
    elif kind == "tool_use":
        name = json_text(event.get("tool_name"))
        call = ToolCall(name=name, arguments=json_text(event.get("parameters")), call_id=call_id)
        yield Message(speaker=Speaker.AGENT, agent=_NAME, calls=(call,), time_ns=time_ns)
    elif kind == "tool_result":
        error = event.get("error")
        told = json_text(error.get("message") if isinstance(error, dict) else error)
        text = told or json_text(event.get("output"))
        failed = event.get("status") == "error" or _has_failed(text)
        yield Message(speaker=Speaker.TOOL, text=text, call_id=call_id, failed=failed, time_ns=time_ns)


def _joined(messages: list[Message]) -> list[Message]:
    """Return the messages with the pieces of each answer as one."""
    found: list[Message] = []
    for message in messages:
        last = found[-1] if found else None
        is_answer = last is not None and last.speaker is message.speaker is Speaker.AGENT
        if last is not None and is_answer and not (last.calls or message.calls):
            found[-1] = replace(last, text=last.text + message.text, time_ns=message.time_ns)
        else:
            found.append(message)
    return joined_answers(found)


def _has_failed(text: str) -> bool:
    """Tell whether the output of a command states an exit code that is not zero."""
    code = _EXIT_CODE.search(text[-_MOST_TAIL:])
    return code is not None and code[1] != "0"


def _of_entry(entry: Mapping[str, Any]) -> Iterator[Message]:
    time_ns = nanoseconds(entry.get("timestamp"))
    text = text_of(entry.get("content"))
    if entry.get("type") == "user":
        yield Message(speaker=Speaker.USER, text=text, time_ns=time_ns)
    if entry.get("type") != _NAME:
        return
    asked = objects(entry.get("toolCalls"))
    calls = tuple(
        ToolCall(
            name=json_text(one.get("name")),
            arguments=json_text(one.get("args")),
            call_id=json_text(one.get("id")),
        )
        for one in asked
    )
    yield Message(
        speaker=Speaker.AGENT,
        text=text,
        agent=_NAME,
        calls=calls,
        time_ns=time_ns,
        model=json_text(entry.get("model")),
    )
    for one in asked:
        text = json_text(one.get("error")) or _result(one)
        yield Message(
            speaker=Speaker.TOOL,
            text=text,
            call_id=json_text(one.get("id")),
            failed=one.get("status") == "error" or _has_failed(text),
            time_ns=nanoseconds(one.get("timestamp")),
        )


def _result(call: Mapping[str, Any]) -> str:
    """Return what a tool gave the model; by default what the screen showed."""
    given = []
    for part in objects(call.get("result")):
        response = part.get("functionResponse")
        answer = response.get("response") if isinstance(response, dict) else None
        if isinstance(answer, dict):
            given.append(json_text(answer.get("output", answer.get("error", answer))))
    return "\n".join(given) or json_text(call.get("resultDisplay"))


GEMINI_SESSION: Final = FileFormat(
    name="Gemini CLI sessions",
    example="gemini-cli.json",
    source="google-gemini/gemini-cli, `chatRecordingService.ts`",
    how=(
        "`~/.gemini/tmp/PROJECT/chats/session-….json`, or `gemini -p … --output-format "
        "stream-json > session.jsonl`"
    ),
    agent=_NAME,
    recognizes=is_gemini_session,
    read=read_gemini_session,
)
