"""Reader of Codex's sessions: ``~/.codex/sessions/**/rollout-*.jsonl`` and ``codex exec --json``. Pure.

A rollout's lines are items of OpenAI's Responses API (``response_item``), besides events for the screen
(``event_msg``), which repeat them and add interruptions. Before version 0.32 the items stood alone on their
lines. The output of a command is JSON or text that states its exit code. ``exec --json`` writes completed
items of its own kind, where a command's item holds both call and result.
Source: openai/codex, ``codex-rs/protocol`` and ``codex-rs/exec/src/exec_events.rs`` (2025-2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogue_spans, joined_answers
from analyzer.recordings.fields import json_text, nanoseconds, object_at, objects, sessions_of, text_at
from analyzer.recordings.message_parts import call_of, text_of
from analyzer.recordings.openai_responses import ITEM_TYPES, messages_of_items
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.json_text import read_json
from semconv.record import replace

_NAME: Final = "codex"
_LINES: Final = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_SHELL: Final = "shell"
_CONTEXT: Final = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|INSTRUCTIONS|permissions)|# AGENTS\.md)"
)
"""Beginning of what Codex itself puts into a user's message."""
_EXIT_CODE: Final = re.compile(r"(?:^|\n)(?:Process exited with code|Exit code:|exit code) (-?\d+)")
_ITEM_TOOLS: Final = {"command_execution": _SHELL, "file_change": "apply_patch", "web_search": "web_search"}


def is_codex(records: Records) -> bool:
    """Tell whether records are lines of a rollout, or events of ``codex exec --json``."""
    if text_at(records[0], "type") == "thread.started" or _is_old_rollout(records):
        return True
    return all(map(_is_line, records)) and any(text_at(one, "type") == "response_item" for one in records)


def _is_line(one: Any) -> bool:
    kind = text_at(one, "type")
    return bool(kind) and (kind not in _LINES or isinstance(one.get("payload"), dict))


def _is_old_rollout(records: Records) -> bool:
    first = records[0]
    is_head = isinstance(first, dict) and {"id", "timestamp"} <= first.keys() and not text_at(first, "type")
    is_alone = is_head and "role" not in first
    return is_alone and any(text_at(record, "type") in ITEM_TYPES | {"message"} for record in records[1:])


def read_codex(records: Records) -> Spans:
    """Read one session, or several that were joined."""
    return (span for session in _sessions(records) for span in _read_session(session))


def _sessions(records: Records) -> Iterator[Records]:
    """Yield the lines of each session; a fork repeats the head of its origin after its own."""
    heads: list[Any] = []
    for part in sessions_of(records, _is_head):
        heads += part
        if len(part) > 1 or part is records:
            yield heads
            heads = []


def _is_head(one: Any) -> bool:
    return text_at(one, "type") in {"session_meta", "thread.started"}


def _read_session(records: Records) -> Spans:
    lines = objects(records)
    if lines[0].get("type") == "thread.started":
        messages, error = list(_of_events(lines)), _failure(lines)
        key = json_text(lines[0].get("thread_id"))
    else:
        is_old = "payload" not in lines[-1]
        items = [(line, 0) for line in lines] if is_old else list(_items(lines))
        messages, error = [found for item, at in items for found in _of_item(item, at)], _interruption(lines)
        head = lines[0] if is_old else object_at(lines[0], "payload")
        key = json_text(head.get("id"))
        messages = [*_instructions(head), *messages]
    named = [replace(one, agent=_NAME) if one.speaker is Speaker.AGENT else one for one in messages]
    named = joined_answers(named)
    return dialogue_spans(named, name=_NAME, key=f"{_NAME} {key}" if key else "", error=error)


def _items(lines: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], int]]:
    for line in lines:
        if line.get("type") == "response_item":
            yield object_at(line, "payload"), nanoseconds(line.get("timestamp"))


def _interruption(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the error that ended a session: only a turn that was aborted last, or failed last."""
    for line in reversed(lines):
        payload = object_at(line, "payload")
        if line.get("type") == "event_msg" and payload.get("type") == "turn_aborted":
            return "KeyboardInterrupt: interrupted by the user"
        if line.get("type") == "event_msg" and payload.get("type") in {"error", "stream_error"}:
            return json_text(payload.get("message"))
        if line.get("type") == "response_item":
            return ""
    return ""


def _instructions(head: Mapping[str, Any]) -> Iterator[Message]:
    given = head.get("instructions") or head.get("base_instructions")
    text = json_text(given.get("text") if isinstance(given, dict) else given)
    if text:
        yield Message(speaker=Speaker.SYSTEM, text=text)


def _of_item(item: Mapping[str, Any], time_ns: int) -> Iterator[Message]:
    """Yield an item's messages, without what Codex itself puts before the user's."""
    item = {"name": _SHELL, **item} if text_at(item, "type") == "local_shell_call" else item
    for message in messages_of_items([item]):
        if message.speaker is Speaker.SYSTEM or (
            message.speaker is Speaker.USER and _CONTEXT.match(message.text)
        ):
            continue
        if message.speaker is Speaker.TOOL and "output" in item:
            text, failed = _output(item["output"])
            message = replace(message, text=text, failed=message.failed or failed)  # noqa: PLW2901 - the same, with its code
        yield replace(message, time_ns=time_ns)


def _output(value: Any) -> tuple[str, bool]:
    """Return a call's output as text, and whether it says that the call failed."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = read_json(value)
        except ValueError:
            return value, False
    if not isinstance(value, dict):
        text = text_of(value)
        code = _EXIT_CODE.search(text[:500])
        return text, code is not None and code[1] != "0"
    text = json_text(value.get("output", value.get("content", value)))
    return text, bool(object_at(value, "metadata").get("exit_code")) or value.get("success") is False


def _of_events(lines: Iterable[Mapping[str, Any]]) -> Iterator[Message]:
    for line in lines:
        item = line.get("item")
        if line.get("type") != "item.completed" or not isinstance(item, dict):
            continue
        kind = json_text(item.get("type") or item.get("item_type"))
        if kind in {"agent_message", "assistant_message"}:
            yield Message(speaker=Speaker.AGENT, text=json_text(item.get("text")))
        elif kind in _ITEM_TOOLS or kind == "mcp_tool_call":
            yield from _executed(item, _ITEM_TOOLS.get(kind) or json_text(item.get("tool")))


def _executed(item: Mapping[str, Any], tool: str) -> Iterator[Message]:
    """Yield call and result of an item that holds both."""
    call_id = json_text(item.get("id"))
    given = item.get("command") or item.get("changes") or item.get("query") or item.get("arguments")
    yield Message(speaker=Speaker.AGENT, calls=(call_of(tool, given, call_id),))
    error = item.get("error")
    text = json_text(error.get("message") if isinstance(error, dict) else error)
    text = text or json_text(item.get("aggregated_output", item.get("result")))
    failed = item.get("status") == "failed" or item.get("exit_code") not in {None, 0}
    yield Message(speaker=Speaker.TOOL, text=text, call_id=call_id, failed=failed)


def _failure(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the error of the last turn of ``codex exec --json``, if it failed."""
    last = [line for line in lines if line.get("type") != "error"][-1]
    error = last.get("error") if last.get("type") == "turn.failed" else None
    return json_text(error.get("message") if isinstance(error, dict) else error)


CODEX: Final = FileFormat(
    name="Codex sessions",
    example="codex.jsonl",
    source="openai/codex, `codex-rs/protocol` and `exec_events.rs`",
    how="`~/.codex/sessions/YYYY/MM/DD/rollout-….jsonl`, or `codex exec --json … > session.jsonl`",
    agent=_NAME,
    recognizes=is_codex,
    read=read_codex,
)
