"""Reader of messages of Microsoft's Agent Framework and Semantic Kernel, from Python and .NET. Pure.

A message has ``contents`` (Semantic Kernel: ``items``), each with its kind; keys are in camel, Pascal or
snake case. Messages stand in a list, one a line, or in the state of a thread or session.
Source: agent-framework 1.23, ``_types.py``; Microsoft.Extensions.AI, ``ChatMessage``; semantic-kernel 1.45,
``chat_message_content.py``, and its .NET ``ChatMessageContent`` (2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogues_spans
from analyzer.recordings.fields import dialogues_in, json_text, nanoseconds
from analyzer.recordings.message_parts import Part, Result, call_of, listed, messages_in, text_of, turn
from analyzer.recordings.recording import FileFormat, Records, Spans

_SPEAKERS: Final[Mapping[str, Speaker]] = {
    "user": Speaker.USER,
    "assistant": Speaker.AGENT,
    "tool": Speaker.USER,
    "system": Speaker.SYSTEM,
    "developer": Speaker.SYSTEM,
}
_MOST_SPELLINGS: Final = 256
"""Spellings of keys that are remembered: messages have few different ones."""
_MOST_AROUND: Final = 3
"""Levels of a state around its messages."""
_UNSAID: Final = frozenset({"textreasoning", "reasoning", "usage", "annotation", "functionapprovalrequest"})


def _named(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its keys in one spelling: lower case, without ``_`` and ``$``."""
    return {_spelling(key): value for key, value in found.items()}


@lru_cache(_MOST_SPELLINGS)
def _spelling(key: str) -> str:
    return key.lower().replace("_", "").removeprefix("$")


def is_agent_framework(records: Records) -> bool:
    """Tell whether records are messages, or states that hold some."""
    return bool(dialogues_in(records, _are_messages, _held))


def _are_messages(found: Sequence[Any]) -> bool:
    return bool(found) and all(map(_is_message, found))


def _is_message(one: Any) -> bool:
    fields = _named(one) if isinstance(one, dict) else {}
    contents = fields.get("contents", fields.get("items"))
    return (
        _role(fields) in _SPEAKERS
        and isinstance(contents, list)
        and all(isinstance(content, dict) and _kind(_named(content)) for content in contents)
    )


def _role(fields: Mapping[str, Any]) -> str:
    role = fields.get("role")
    if isinstance(role, dict):
        named = _named(role)
        role = named.get("label", named.get("value"))
    return json_text(role).lower()


def _kind(fields: Mapping[str, Any]) -> str:
    """Return a content's kind in one spelling: ``functioncall`` for ``FunctionCallContent``."""
    kind = json_text(fields.get("type", fields.get("contenttype")))
    return kind.lower().replace("_", "").removesuffix("content")


def _held(document: Any) -> list[Any]:
    """Return the messages that a state holds, a few levels down."""
    level: list[Any] = [document]
    for _ in range(_MOST_AROUND):
        states = [one for one in level if isinstance(one, dict)]
        held = (state.get("messages", state.get("Messages")) for state in states)
        if found := next((one for one in held if isinstance(one, list)), None):
            return found
        level = [value for state in states for value in state.values()]
    return []


def read_agent_framework(records: Records) -> Spans:
    """Read one dialogue, or one for each state."""
    dialogues = dialogues_in(records, _are_messages, _held)
    return dialogues_spans((messages_in(one, _of_message) for one in dialogues), name="agent_framework")


def _of_message(one: Mapping[str, Any]) -> Iterator[Message]:
    fields = _named(one)
    speaker = _SPEAKERS[_role(fields)]
    is_agent = speaker is Speaker.AGENT
    template = Message(
        speaker=speaker,
        agent=json_text(fields.get("authorname") or fields.get("name")) if is_agent else "",
        time_ns=nanoseconds(fields.get("createdat")),
        model=json_text(fields.get("modelid") or fields.get("aimodelid")) if is_agent else "",
    )
    contents = listed(fields.get("contents", fields.get("items")))
    yield from turn(template, (_part(_named(content)) for content in contents))


def _part(fields: Mapping[str, Any]) -> Part:
    kind, call_id = _kind(fields), json_text(fields.get("callid") or fields.get("id"))
    if kind.endswith(("functioncall", "toolcall")):
        given = fields.get("arguments", fields.get("inputs", fields.get("commands")))
        return call_of(_tool(fields) or kind.removesuffix("toolcall"), given, call_id)
    if kind.endswith(("functionresult", "toolresult")):
        error, given = fields.get("exception"), fields.get("result", fields.get("outputs"))
        return Result(
            text=text_of(given) or json_text(error),
            call_id=call_id,
            tool=_tool(fields),
            failed=error is not None,
        )
    if kind == "error":
        return json_text(fields.get("message"))
    if kind in _UNSAID:
        return ""
    text = fields.get("text")
    return json_text(text) if text is not None else f"[{kind}]"


def _tool(fields: Mapping[str, Any]) -> str:
    """Return a function's name, after its plugin's if it has one."""
    parts = (json_text(fields.get(key)) for key in ("pluginname", "functionname"))
    return json_text(fields.get("name") or fields.get("toolname")) or "-".join(filter(None, parts))


AGENT_FRAMEWORK: Final = FileFormat(
    name="Agent Framework or Semantic Kernel messages",
    example="agent-framework-messages.json",
    source="agent-framework, `_types.py`; Microsoft.Extensions.AI; semantic-kernel",
    how=(
        "`json.dumps([each.to_dict() for each in response.messages])`; .NET: "
        "`JsonSerializer.Serialize(response.Messages)`"
    ),
    recognizes=is_agent_framework,
    read=read_agent_framework,
)
