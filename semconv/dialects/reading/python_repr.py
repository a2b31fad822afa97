"""Python ``repr`` and ``str`` output inside texts: arguments, objects, langchain messages.

Traceloop writes a langchain tool's arguments as ``{'name': 'x'}``; the contrib instrumentation of
openai-agents writes a model's items as ``ResponseFunctionToolCall(arguments='{}', name='x')``; older
instrumentations, and users who print a message, write langchain's ``content='Hi' additional_kwargs={}
name='writer'``. The text is untrusted: it is parsed within bounds and never evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from semconv.dialects.reading.action import Message
from semconv.dialects.reading.values import items, mapping, words
from semconv.model import ToolCall

_MAX_CHARS: Final = 200_000
_MAX_LEVELS: Final = 20
_LITERAL: Final = re.compile(r"\s*[\[{(]")
_OBJECT: Final = re.compile(r"\s*[A-Z]\w{0,99}\(\w{1,99}=")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = frozenset("\\'\"nrtxuU")
"""Characters that ``repr`` writes after a backslash; the parser warns on standard error about others."""
_QUOTED: Final = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_ENUM: Final = re.compile(rf"({_QUOTED})|<\w{{1,99}}\.\w{{1,99}}: ({_QUOTED}|\d{{1,20}})>", re.DOTALL)
"""A quoted text, which is kept, or a member of an enum, which is shown by its value."""
_CONTENT: Final = re.compile(
    rf"content=({_QUOTED}) (?=(?:additional_kwargs|response_metadata|name|id|tool_call_id|status)=)",
    re.DOTALL,
)
_FIELD: Final = re.compile(rf"\b(name|tool_call_id|status)=({_QUOTED})", re.DOTALL)
_CALLS: Final = re.compile(r"(\[.*?\])(?= \w+=|$)", re.DOTALL)
_CALLS_FIELD: Final = re.compile(r"\btool_calls=(?=\[)")
_MODEL_MARKS: Final = ("tool_calls=", "usage_metadata=", "id='run-", "id='lc_run-", "name=")
"""Present only in an agent's own messages."""


def from_repr(text: str) -> Any:
    """Return the list, tuple, set or dictionary whose ``repr`` is ``text``, else ``text`` unchanged."""
    if _LITERAL.match(text) is None:
        return text
    body = _parsed(text)
    if body is None:
        return text
    try:
        return ast.literal_eval(body)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return text


def object_in(text: str) -> Mapping[str, Any]:
    """Return the fields of an object shown as ``Name(field=value, …)``, else an empty mapping.

    Fields that are not literals, lists or objects are left out.
    """
    body = _parsed(text) if _OBJECT.match(text) else None
    fields = _value(body, _MAX_LEVELS) if isinstance(body, ast.Call) else None
    return fields if isinstance(fields, dict) else {}


def _parsed(text: str) -> ast.expr | None:
    if len(text) > _MAX_CHARS or not _ESCAPES.issuperset(_ESCAPED.findall(text)):
        return None
    if "<" in text:
        text = _ENUM.sub(lambda found: found[1] or found[2], text)
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, levels: int) -> Any:
    if levels == 0:
        return None
    if isinstance(node, ast.Call) and not node.args:
        return {each.arg: _value(each.value, levels - 1) for each in node.keywords if each.arg is not None}
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(each, levels - 1) for each in node.elts]
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None


def message_fields(text: str) -> dict[str, Any] | None:
    """Return a langchain message's fields under OpenAI's names, or ``None`` if ``text`` is not one.

    Reads only fields delimited by quotes; content that is a list stays text.
    """
    if not text.startswith("content=") or len(text) > _MAX_CHARS:
        return None
    start = _CONTENT.match(text)
    if start is None:
        return None
    rest = text[start.end() :]
    fields: dict[str, Any] = {key: _unquoted(value) for key, value in _FIELD.findall(rest)}
    fields["content"] = _unquoted(start[1])
    if "tool_call_id" in fields:
        return {**fields, "role": "tool", "type": "tool"}
    field = _CALLS_FIELD.search(rest)
    calls = _CALLS.match(rest, field.end()) if field else None
    if calls is not None:
        fields["tool_calls"] = from_repr(calls[1])
    is_models = any(mark in rest for mark in _MODEL_MARKS)
    return {**fields, "role": "assistant" if is_models else "user"}


def _unquoted(literal: str) -> str:
    try:
        return str(ast.literal_eval(literal))
    except (ValueError, SyntaxError, MemoryError):
        return literal[1:-1]


# --- messages ---
#
# Messages shown as the ``repr`` of an object: ``ChatMessage(_role=<ChatRole.TOOL: 'tool'>, _content=[…])``.
#
# Haystack's, by their fields: a text, a tool call (``tool_name``, ``arguments``, ``id``), or a tool's result
# with the call that it answers (``result``, ``origin``).


def with_bodies(messages: tuple[Message, ...], given: str) -> tuple[Message, ...]:
    """Return ``messages`` with the bodies that only ``given`` holds: JSON with the same list as objects.

    OpenInference's attributes of Haystack's messages have the role of a tool's result and of a request, and
    neither text nor calls. Nothing is taken from a list of another length or with other roles.
    """
    if all(map(_has_body, messages)):
        return messages
    told = [message_in(words(each)) for each in items(mapping(given).get("messages"))]
    found = [message for message in told if message is not None]
    if [message.role for message in found] != [message.role for message in messages]:
        return messages
    return tuple(
        message if _has_body(message) else other for message, other in zip(messages, found, strict=True)
    )


def message_in(shown: str) -> Message | None:
    """Return the message whose ``repr`` is ``shown``, or ``None`` if it is not one."""
    fields = {name.lstrip("_"): value for name, value in object_in(shown).items()}
    role, content = fields.get("role"), fields.get("content")
    if not isinstance(role, str) or not isinstance(content, list):
        return None
    parts = [part for part in content if isinstance(part, Mapping)]
    origins = [origin for part in parts if isinstance(origin := part.get("origin"), Mapping)]
    return Message(
        role=role,
        text="\n".join(_texts(parts)),
        calls=tuple(
            [
                ToolCall(
                    name=words(part["tool_name"]),
                    arguments=words(part.get("arguments")),
                    call_id=words(part.get("id") or ""),
                )
                for part in parts
                if part.get("tool_name")
            ]
        ),
        answers=tuple([words(origin["id"]) for origin in origins if origin.get("id")]),
    )


def _texts(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    return [words(part[key]) for part in parts for key in ("text", "result") if part.get(key)]


def _has_body(message: Message) -> bool:
    return bool(message.text or message.calls or message.answers)
