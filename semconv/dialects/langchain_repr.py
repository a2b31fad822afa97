"""langchain's messages as ``str`` writes them: ``content='Hi' additional_kwargs={} name='writer'``.

Older instrumentations put them into inputs and outputs in this form, as do users who print a message.
Only fields that are told apart by their quotes are read; a content that is a list stays text.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final

from semconv.dialects.python_repr import from_repr

_MAX_CHARS: Final = 200_000
_QUOTED: Final = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_CONTENT: Final = re.compile(
    rf"content=({_QUOTED}) (?=(?:additional_kwargs|response_metadata|name|id|tool_call_id|status)=)",
    re.DOTALL,
)
_FIELD: Final = re.compile(rf"\b(name|tool_call_id|status)=({_QUOTED})", re.DOTALL)
_CALLS: Final = re.compile(r"\btool_calls=(\[.*?\])(?= \w+=|$)", re.DOTALL)
_MODEL_MARKS: Final = ("tool_calls=", "usage_metadata=", "id='run-", "id='lc_run-", "name=")
"""What stands only in an agent's own messages."""


def message_fields(text: str) -> dict[str, Any] | None:
    """Return a message's fields under the names of OpenAI's, or ``None`` where ``text`` is none."""
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
    calls = _CALLS.search(rest)
    if calls is not None:
        fields["tool_calls"] = from_repr(calls[1])
    is_models = any(mark in rest for mark in _MODEL_MARKS)
    return {**fields, "role": "assistant" if is_models else "user"}


def _unquoted(literal: str) -> str:
    try:
        return str(ast.literal_eval(literal))
    except (ValueError, SyntaxError, MemoryError):
        return literal[1:-1]
