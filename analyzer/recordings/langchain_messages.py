"""Reader of langchain's messages and of the states of langgraph's graphs. Pure.

A message is written as ``model_dump`` or ``dict`` (``type`` beside ``content``), as ``messages_to_dict``
(``type`` and ``data``), or as ``dumpd`` (a constructor's ``id`` and ``kwargs``; also langchain.js). Messages
stand in a list, one a line, or as ``messages`` of a state, which may be under ``values`` or ``output``. Of
states that begin with the same message, such as ``stream_mode="values"`` and a thread's history, the longest
counts.
Source: langchain-core 1.8, ``messages``; langgraph-sdk 0.4, ``ThreadState`` (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogues_spans
from analyzer.recordings.fields import dialogues_in, json_text, object_at, text_at
from analyzer.recordings.message_parts import call_of, finish_of, listed, text_of, tokens_of
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.model import ToolCall

_SPEAKERS: Final[Mapping[str, Speaker]] = {
    "human": Speaker.USER,
    "ai": Speaker.AGENT,
    "chat": Speaker.AGENT,
    "tool": Speaker.TOOL,
    "function": Speaker.TOOL,
    "system": Speaker.SYSTEM,
}
_REMOVAL: Final = "remove"
"""Type of an order to drop a message from a state: nothing is said."""
_TEXTS: Final = frozenset({"text", "output_text", "input_text"})
_ROLES: Final[Mapping[str, Speaker]] = {"user": Speaker.USER, "human": Speaker.USER, "system": Speaker.SYSTEM}
"""Speakers of a ``ChatMessage``, whose role may be any; by default an agent."""
_HOLDERS: Final = ("values", "output", "state")


def fields_of(one: Any) -> Mapping[str, Any]:
    """Return a message's fields without what surrounds them; empty if it is no message."""
    if not isinstance(one, dict):
        return {}
    inner = one.get("kwargs")
    if not isinstance(inner, dict):
        inner = one.get("data")
        inner = inner if isinstance(inner, dict) else one
    return inner if "content" in inner and kind_of(one) else {}


def kind_of(one: Any) -> str:
    """Return a message's type: ``ai`` for ``AIMessage`` and ``AIMessageChunk``; empty for others."""
    kind = text_at(one, "type")
    if kind == "constructor" or (not kind and isinstance(one, dict) and "kwargs" in one):
        path = one.get("id")
        kind = json_text(path[-1]) if isinstance(path, list) and path else ""
    if kind not in _SPEAKERS:
        kind = kind.removesuffix("Chunk").removesuffix("Message").lower()
    return kind if kind in _SPEAKERS or kind == _REMOVAL else ""


def are_messages(found: Any) -> bool:
    """Tell whether there are messages, and nothing else."""
    return isinstance(found, Sequence) and bool(found) and all(map(fields_of, found))


def is_langchain(records: Records) -> bool:
    """Tell whether records are messages, or states that hold some."""
    return bool(dialogues_in(records, are_messages, _messages_in))


def _messages_in(document: Any) -> Any:
    if isinstance(document, list):
        return document
    states = [document]
    if isinstance(document, dict):
        states += [document.get(key) for key in _HOLDERS]
        states.append(object_at(object_at(document, "checkpoint"), "channel_values"))
    return next((one["messages"] for one in states if isinstance(one, dict) and "messages" in one), None)


def read_langchain(records: Records) -> Spans:
    """Read one dialogue, or one for each state with another beginning."""
    longest: list[Sequence[Any]] = []
    for found in dialogues_in(records, are_messages, _messages_in):
        if longest and found[0] == longest[-1][0]:
            longest[-1] = max(found, longest[-1], key=len)
        else:
            longest.append(found)
    return dialogues_spans((map(message_of, spoken(one)) for one in longest), name="langchain")


def spoken(found: Sequence[Any]) -> list[Any]:
    """Return messages without those that only remove others."""
    return [one for one in found if kind_of(one) != _REMOVAL]


_FINISHED: Final = ("finish_reason", "stop_reason", "done_reason", "stopReason")
"""Keys of the reason why a model stopped, in the metadata of OpenAI, Anthropic, Ollama and Bedrock."""


def message_of(one: Any, node: str = "") -> Message:
    """Return one message.

    Args:
        one: the message, in any of the forms.
        node: the agent, unless the message names one.
    """
    fields, kind = fields_of(one), kind_of(one)
    speaker = _SPEAKERS[kind]
    if kind == "chat":
        speaker = _ROLES.get(text_at(fields, "role"), Speaker.AGENT)
    name, metadata = json_text(fields.get("name")), fields.get("response_metadata")
    is_agent = speaker is Speaker.AGENT
    return Message(
        speaker=speaker,
        text=_text(fields["content"]),
        agent=(name or node) if is_agent else "",
        calls=tuple(_calls(fields)) if is_agent else (),
        call_id=json_text(fields.get("tool_call_id")),
        tool=name if speaker is Speaker.TOOL else "",
        failed=speaker is Speaker.TOOL and fields.get("status") == "error",
        model=text_at(metadata, "model_name") or text_at(metadata, "model") if is_agent else "",
        tokens=tokens_of(fields.get("usage_metadata")) if is_agent else None,
        finish=next(filter(None, (finish_of(text_at(metadata, key)) for key in _FINISHED)), ""),
    )


def _text(content: Any) -> str:
    """Return a content's text; of blocks that a provider adds to a text, only the text."""
    parts = content if isinstance(content, list) else []
    texts = [part for part in parts if isinstance(part, str) or text_at(part, "type") in _TEXTS]
    return text_of(texts or content)


def _calls(fields: Mapping[str, Any]) -> Iterator[ToolCall]:
    """Yield a message's calls; also those whose arguments langchain could not parse."""
    asked = [*listed(fields.get("tool_calls")), *listed(fields.get("invalid_tool_calls"))]
    yield from (call_of(one.get("name"), one.get("args"), one.get("id")) for one in asked)
    more = fields.get("additional_kwargs")
    if asked or not isinstance(more, dict):
        return
    single = more.get("function_call")
    raw = [*listed(more.get("tool_calls")), *([{"function": single}] if isinstance(single, dict) else [])]
    for one in raw:
        function = one.get("function")
        if isinstance(function, dict):
            yield call_of(function.get("name"), function.get("arguments"), one.get("id"))


LANGCHAIN: Final = FileFormat(
    name="langchain messages or langgraph states",
    example="langchain-messages.json",
    source="langchain-core, `messages`; langgraph-sdk, `ThreadState`",
    how=('`json.dumps(messages_to_dict(state["messages"]))`, or the state of a thread from LangGraph\'s API'),
    recognizes=is_langchain,
    read=read_langchain,
)
