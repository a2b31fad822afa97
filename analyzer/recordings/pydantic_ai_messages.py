"""Reader of pydantic-ai's messages: ``all_messages_json`` and what ``ModelMessagesTypeAdapter`` dumps. Pure.

A request holds prompts and the results of tools, a response what the model said and called. A call of an
output tool (``final_result``) is an answer. A tool that asked for a retry failed: a ``retry-prompt`` in
version 1, an ``outcome`` in version 2. The messages do not name their agent.
Source: pydantic-ai 1.0 and 2.68, ``messages.py`` (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogue_spans
from analyzer.recordings.fields import json_text, nanoseconds, text_at, unwrapped
from analyzer.recordings.message_parts import (
    Part,
    Result,
    call_of,
    finish_of,
    listed,
    messages_in,
    tokens_of,
    turn,
)
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.json_text import read_json

_LISTS: Final = ("messages", "all_messages", "new_messages", "message_history")
_OUTPUT_TOOL: Final = "final_result"
"""Name of an output tool; with several types each is followed by ``_`` and the type."""
_FAILED: Final = frozenset({"failed", "retried", "error"})
_RESULTS: Final = frozenset({"tool-return", "builtin-tool-return"})
_CALLS: Final = frozenset({"tool-call", "builtin-tool-call"})


def is_pydantic_ai(records: Records) -> bool:
    """Tell whether records are requests and responses."""
    found = unwrapped(records, *_LISTS)
    return all(map(_is_message, found)) and any(one["kind"] == "response" for one in found)


def _is_message(one: Any) -> bool:
    parts = one.get("parts") if isinstance(one, dict) else None
    return (
        text_at(one, "kind") in {"request", "response"}
        and isinstance(parts, list)
        and all(text_at(part, "part_kind") for part in parts)
    )


def read_pydantic_ai(records: Records) -> Spans:
    """Read one dialogue."""
    found = listed(list(unwrapped(records, *_LISTS)))
    return dialogue_spans(messages_in(found, _of_message), name="pydantic_ai", answer=_answer(found))


def _of_message(one: Mapping[str, Any]) -> Iterator[Message]:
    parts, time_ns = listed(one["parts"]), nanoseconds(one.get("timestamp"))
    if one["kind"] == "response":
        model, tokens = json_text(one.get("model_name")), tokens_of(one.get("usage"))
        finish = finish_of(one.get("finish_reason"))
        template = Message(speaker=Speaker.AGENT, time_ns=time_ns, model=model, tokens=tokens, finish=finish)
        yield from turn(template, map(_part, parts))
        return
    if one.get("instructions"):
        yield Message(speaker=Speaker.SYSTEM, text=json_text(one["instructions"]))
    for part in parts:
        is_system = part["part_kind"] == "system-prompt"
        speaker = Speaker.SYSTEM if is_system else Speaker.USER
        template = Message(speaker=speaker, time_ns=nanoseconds(part.get("timestamp")) or time_ns)
        yield from turn(template, [_part(part)])


def _part(part: Mapping[str, Any]) -> Part:
    kind, tool, call_id = part["part_kind"], json_text(part.get("tool_name")), part.get("tool_call_id")
    if kind in _CALLS:
        is_answer = tool.startswith(_OUTPUT_TOOL)
        return json_text(part.get("args")) if is_answer else call_of(tool, part.get("args"), call_id)
    if kind in _RESULTS or (kind == "retry-prompt" and tool):
        failed = kind == "retry-prompt" or part.get("outcome") in _FAILED
        text = _text(part.get("content"))
        if tool.startswith(_OUTPUT_TOOL):
            return text if failed else ""
        return Result(text=text, call_id=json_text(call_id), tool=tool, failed=failed)
    return "" if kind in {"thinking", "compaction"} else _text(part.get("content"))


def _text(content: Any) -> str:
    """Return a content's text; media are named."""
    if (
        isinstance(content, list)
        and content
        and all(isinstance(one, str) or text_at(one, "kind") for one in content)
    ):
        texts = [one if isinstance(one, str) else json_text(one.get("content")) for one in content]
        named = [text or f"[{one['kind']}]" for one, text in zip(content, texts, strict=True)]
        return "\n".join(named)
    kind = text_at(content, "kind")
    return f"[{kind}]" if kind and "data" in content else json_text(content)


def _answer(found: list[Mapping[str, Any]]) -> str:
    """Return the value of the last output tool, if the run ended with one."""
    last = [part for one in reversed(found[-2:]) for part in reversed(one["parts"])]
    outputs = [part for part in last if text_at(part, "tool_name").startswith(_OUTPUT_TOOL)]
    given = next((part.get("args") for part in outputs if part["part_kind"] in _CALLS), None)
    if isinstance(given, str):
        try:
            given = read_json(given)
        except ValueError:
            return given
    if isinstance(given, dict) and given.keys() == {"response"}:  # an output that is no object
        return json_text(given["response"])
    return json_text(given)


PYDANTIC_AI: Final = FileFormat(
    name="pydantic-ai messages",
    example="pydantic-ai-messages.json",
    source="pydantic-ai, `messages.py`",
    how="`result.all_messages_json()`",
    recognizes=is_pydantic_ai,
    read=read_pydantic_ai,
)
