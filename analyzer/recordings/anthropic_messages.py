"""Reader of Anthropic's messages and of those that the Claude Agent SDK yields. Pure.

Messages stand in a list, one a line, or under ``messages`` beside ``system``; an answer may stand alone. The
Agent SDK's messages, written with ``dataclasses.asdict``, have no role: one with a ``model`` is the agent's.
Those of a subagent name the call that started it.
Source: Anthropic's API reference, messages; claude-agent-sdk 0.2, ``types.py`` (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.dialogue import SPEAKERS, Message, Speaker, dialogue_spans, dialogues_spans
from analyzer.recordings.fields import json_text, object_at, text_at
from analyzer.recordings.message_parts import (
    Part,
    Result,
    call_of,
    dialogues_of,
    error_text,
    failures_of,
    finish_of,
    is_failed,
    listed,
    text_of,
    turn,
)
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.record import replace

_SPEAKERS: Final = {role: SPEAKERS[role] for role in ("user", "assistant", "system")}
_ANSWERED: Final = ("role", "content", "model", "stop_reason")
"""Keys of an answer that stand beside those of its request."""
_SDK: Final = "claude"
_SDK_KINDS: Final = ({"subtype", "data"}, {"subtype", "is_error"}, {"uuid", "event"}, {"rate_limit_info"})
"""Keys of the SDK's messages that are not said."""


def is_anthropic(records: Records) -> bool:
    """Tell whether records are messages of the API or the SDK, or documents with messages."""
    if _are_messages(records):
        return any(map(_is_of_this_api, records))
    if _are_of_sdk(records):
        return True
    return all(
        isinstance(record, dict)
        and isinstance(record.get("messages"), list)
        and _are_messages(found := [*record["messages"], *_answers(record)])
        and ("system" in record or any(map(_is_of_this_api, found)) or is_failed(record))
        for record in records
    )


def _answers(document: Mapping[str, Any]) -> list[Any]:
    """Return the answer whose keys stand beside those of its request."""
    return [{key: document[key] for key in _ANSWERED if key in document}] if "role" in document else []


def _are_messages(found: Sequence[Any]) -> bool:
    return bool(found) and all(
        isinstance(one, dict)
        and text_at(one, "role") in _SPEAKERS
        and _is_content(one.get("content"))
        and "tool_calls" not in one
        and "messages" not in one
        for one in found
    )


def _is_content(content: Any) -> bool:
    if isinstance(content, str):
        return True
    return isinstance(content, list) and all(
        isinstance(one, dict) and text_at(one, "type") for one in content
    )


def _is_of_this_api(message: Mapping[str, Any]) -> bool:
    content = message["content"]
    blocks = content if isinstance(content, list) else []
    return "stop_reason" in message or any(
        is_call(block) or is_result(block) or is_thought(block) for block in blocks
    )


def _are_of_sdk(records: Records) -> bool:
    return all(map(_is_of_sdk, records)) and any(
        isinstance(one.get("content"), list | str) and isinstance(one.get("model"), str) for one in records
    )


def _is_of_sdk(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and "role" not in one
        and (
            any(keys <= one.keys() for keys in _SDK_KINDS)
            or ("content" in one and "parent_tool_use_id" in one)
        )
    )


def read_anthropic(records: Records) -> Spans:
    """Read one dialogue, or one for each document."""
    if _are_of_sdk(records):
        return _sdk_dialogue(records)
    is_one = _are_messages(records)
    documents = [{"messages": records}] if is_one else records
    dialogues = dialogues_of(documents, lambda one: one["messages"], _answers, _of_message)
    return dialogues_spans(dialogues, name="anthropic")


def _of_message(one: Mapping[str, Any]) -> Iterator[Message]:
    template = Message(
        speaker=_SPEAKERS[one["role"]],
        model=json_text(one.get("model")),
        finish=finish_of(one.get("stop_reason")),
    )
    yield from messages_of_blocks(template, one["content"])
    if "error" in one:
        yield from failures_of(one)


def _sdk_dialogue(records: Records) -> Spans:
    found = listed(list(records))
    subagents = _subagents(found)
    messages: list[Message] = []
    error = ""
    for one in found:
        if "content" in one:
            messages += _sdk_messages(one, subagents)
        elif one.get("is_error") is True and "subtype" in one:
            error = json_text(one.get("result") or one["subtype"])
    return dialogue_spans(messages, name="claude_agent_sdk", error=error)


def _sdk_messages(one: Mapping[str, Any], subagents: Mapping[str, str]) -> Iterator[Message]:
    inside = json_text(one.get("parent_tool_use_id"))
    is_agent = isinstance(one.get("model"), str)
    template = Message(
        speaker=Speaker.AGENT if is_agent else Speaker.USER,
        agent=subagents.get(inside, _SDK) if is_agent else "",
        model=one["model"] if is_agent else "",
        inside=inside,
    )
    for message in messages_of_blocks(template, one["content"]):
        yield replace(message, failed=True) if one.get("error") and is_agent else message


def _subagents(found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the agents that calls start, by the call's id."""
    blocks = (block for one in found if isinstance(one.get("content"), list) for block in one["content"])
    return {
        json_text(block["id"]): block["input"]["subagent_type"]
        for block in blocks
        if isinstance(block, dict) and is_call(block) and text_at(block.get("input"), "subagent_type")
    }


# --- blocks ---
#
# Content blocks of Anthropic's Messages API as messages.
#
# Source: Anthropic's API reference, ``POST /v1/messages``, as ``anthropic`` 2 types it (2026). The results
# of tools are blocks of a user's message; tools that Anthropic runs have call and result in the answer. The
# blocks of the Claude Agent SDK are the same without ``type``.


_STREAMS: Final = ("stdout", "stderr")


def messages_of_blocks(template: Message, content: Any) -> Iterator[Message]:
    """Yield what a message says, calls and returns.

    Args:
        template: who speaks, and when.
        content: a text or blocks.
    """
    if not isinstance(content, list):
        text = json_text(content)
        if text or template.speaker is Speaker.AGENT:
            yield replace(template, text=text)
        return
    blocks = listed([{"text": one} if isinstance(one, str) else one for one in content])
    is_cited = any(block.get("citations") for block in blocks)  # a sentence is cut at each citation
    yield from turn(template, map(_part, blocks), joint="" if is_cited else "\n")


def is_call(block: Mapping[str, Any]) -> bool:
    """Tell whether a block calls a tool."""
    kind = block.get("type")
    return kind.endswith("tool_use") if isinstance(kind, str) else {"id", "name", "input"} <= block.keys()


def is_result(block: Mapping[str, Any]) -> bool:
    """Tell whether a block answers a call; Amp spells its id in its own way."""
    return "tool_use_id" in block or "toolUseID" in block


def is_thought(block: Mapping[str, Any]) -> bool:
    """Tell whether a block holds what the model thought."""
    return "thinking" in block or block.get("type") == "redacted_thinking"


def _part(block: Mapping[str, Any]) -> Part:
    if is_call(block):
        return call_of(block.get("name"), block.get("input"), block.get("id"))
    if is_thought(block):
        return ""
    return _result(block) if is_result(block) else text_of([block])


def _result(block: Mapping[str, Any]) -> Result:
    ran = object_at(block, "run")  # Amp's
    content = block.get("content", error_text(ran.get("error")) or ran.get("result"))
    failed = block.get("is_error") is True or ran.get("status") == "error"
    if isinstance(content, dict):
        failed = (
            failed or json_text(content.get("type")).endswith("_error") or bool(content.get("return_code"))
        )
        printed = "\n".join(json_text(content[key]) for key in _STREAMS if content.get(key))
        content = printed or content
    elif isinstance(content, list):
        content = [_readable(one) for one in content]
    call_id = json_text(block.get("tool_use_id") or block.get("toolUseID"))
    return Result(text=text_of(content), call_id=call_id, failed=failed)


def _readable(found: Any) -> Any:
    """Return an entry of a search's result without what only Anthropic can read."""
    if not isinstance(found, dict) or "encrypted_content" not in found:
        return found
    return {key: value for key, value in found.items() if key != "encrypted_content"}


ANTHROPIC: Final = FileFormat(
    name="Anthropic messages",
    example="anthropic-messages.json",
    source="Anthropic's API reference, messages; claude-agent-sdk",
    how=(
        '`json.dumps({"system": system, "messages": messages})` with what you send and the last '
        "answer; Claude Agent SDK: `dataclasses.asdict(message)`, one a line"
    ),
    recognizes=is_anthropic,
    read=read_anthropic,
)
