"""Shapes of values: messages to and from models, anywhere inside a value, and flattened lists. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from semconv.dialects.reading.action import Message
from semconv.dialects.reading.messages import is_pair, message_of
from semconv.dialects.reading.python_repr import message_fields
from semconv.dialects.reading.values import structured, words

_ROLES: Final = frozenset(
    {"system", "developer", "user", "human", "assistant", "ai", "model", "tool", "function", "tool-response"}
)
_BODIES: Final = frozenset(
    {"content", "contents", "parts", "text", "tool_calls", "toolCalls", "function_call", "additional_kwargs"}
)
_ITEMS: Final = frozenset({"function_call", "function_call_output"})
_INSIDE: Final = ("message", "data", "kwargs", "delta")
"""Keys of an entry that holds a message."""
_AROUND: Final = (
    "messages", "new_messages", "choices", "generations", "candidates", "output", "outputs", "response",
    "input", "inputs", "request", "message", "contents", "content", "update", "result", "args", "state",
    "history",
)  # fmt: skip
"""Keys of conversations, the clearest first."""
_DEEPEST: Final = 5
_MOST_LOOKED_AT: Final = 200
_MIN_LENGTH: Final = 2
_SAID_BY: Final = frozenset({"ai", "assistant"})
_KEYED: Final = _SAID_BY | {"system", "developer", "user", "human", "tool"}
"""Roles that may be the only key of a message: ``{"human": "Hello"}``."""


def conversation(value: Any, speaker: str = "") -> tuple[Message, ...]:
    """Return the messages in ``value``, the first list of messages found from the outside in.

    Args:
        value: an attribute's value, JSON or objects.
        speaker: the role of a message that has none of its own, such as a provider's content blocks.
    """
    return _Search(speaker).find(value, 0)


class _Search:
    def __init__(self, speaker: str) -> None:
        self._speaker = speaker
        self._left = _MOST_LOOKED_AT

    def find(self, value: Any, depth: int) -> tuple[Message, ...]:
        value = structured(value)
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            return ()
        if isinstance(value, Mapping):
            return self._in_object(value, depth)
        if isinstance(value, (list, tuple)) and value:
            return self._in_list(value, depth)
        return ()

    def _in_object(self, value: Mapping[str, Any], depth: int) -> tuple[Message, ...]:
        if is_message(value):
            return _read([value])
        if self._speaker == "assistant" and _is_keyed(value) and value.keys() <= _SAID_BY:
            return _read([_with_role(value)])
        system = value.get("system") or value.get("instructions") or value.get("system_instruction")
        for key in _AROUND:
            messages = self.find(value[key], depth + 1) if value.get(key) else ()
            if messages:
                instructions = (
                    (Message(role="system", text=system),) if isinstance(system, str) and system else ()
                )
                return (*instructions, *messages)
        return ()

    def _in_list(self, value: Sequence[Any], depth: int) -> tuple[Message, ...]:
        entries = [each if is_pair(each) else structured(each) for each in value]
        messages = [entry for entry in entries if is_message(entry) or is_pair(entry)]
        if messages and len(messages) * 2 >= len(entries):
            return _read([_as_message(entry) for entry in entries])
        if entries and all(map(_is_keyed, entries)):
            return _read([_with_role(entry) for entry in entries])
        if self._speaker and all(map(_is_block, entries)):
            return _read([{"role": self._speaker, "content": list(entries)}])
        for each in entries[:4]:
            found = self.find(each, depth + 1) if isinstance(each, (Mapping, list, tuple)) else ()
            if found:
                return found
        return ()


def _read(values: Sequence[Any]) -> tuple[Message, ...]:
    messages = [message_of(value) for value in values]
    return tuple(message for message in messages if message is not None and (message.text or message.calls))


def _is_keyed(value: Any) -> bool:
    """Say whether ``value`` has one key, a role, and what that role said."""
    return isinstance(value, Mapping) and len(value) == 1 and value.keys() <= _KEYED


def _with_role(value: Mapping[str, Any]) -> Mapping[str, Any]:
    ((role, said),) = value.items()
    said = structured(said)
    return {"role": role, "content": [said] if isinstance(said, Mapping) else said}


def _as_message(value: Any) -> Any:
    """Return an entry's message without the object around it: ``{"index": 0, "message": {…}}``."""
    if isinstance(value, Mapping) and not _has_role(value):
        inner = next((value[key] for key in _INSIDE if isinstance(value.get(key), Mapping)), None)
        if inner is not None and _has_role(inner):
            return inner
    return value


def is_message(value: Any) -> bool:
    """Say whether ``value`` is a message to or from a model: it has a known role and content."""
    if isinstance(value, str):
        return message_fields(value) is not None
    if not isinstance(value, Mapping):
        return False
    kind = words(value.get("type"))
    if kind in _ITEMS or (kind == "message" and "content" in value):
        return True
    if _has_role(value):
        return bool(value.keys() & _BODIES) or any(isinstance(value.get(key), Mapping) for key in _INSIDE)
    inner = next((value[key] for key in _INSIDE if isinstance(value.get(key), Mapping)), None)
    return inner is not None and _has_role(inner)


def _has_role(value: Mapping[str, Any]) -> bool:
    role = value.get("role") or value.get("type")
    if isinstance(role, str) and role.lower() in _ROLES:
        return True
    return isinstance(value.get("source"), str) and "content" in value and "type" in value


def _is_block(value: Any) -> bool:
    """Say whether ``value`` is a part of a message in some provider's shape."""
    if not isinstance(value, Mapping):
        return False
    kind = words(value.get("type"))
    if kind == "text" or value.keys() == {"text"}:
        return isinstance(value.get("text") or value.get("content"), str)
    return kind in {"tool_use", "tool_call"} or bool(value.keys() & {"toolUse", "functionCall", "toolResult"})


def nested(pieces: Mapping[tuple[str, ...], Any]) -> list[Any]:
    """Return the list of objects that was flattened into attributes such as ``0.message.role``.

    Gaps in the indices are closed; an object whose only value is an object (``{"tool_call": {…}}``) is
    unwrapped.
    """
    tree: dict[str, Any] = {}
    for path, value in pieces.items():
        at = tree
        for step in path[:-1]:
            inner = at.setdefault(step, {})
            if not isinstance(inner, dict):
                inner = at[step] = {}
            at = inner
        at[path[-1]] = value
    found = _shaped(tree, 0)
    return found if isinstance(found, list) else [found]


def _shaped(value: Any, depth: int) -> Any:
    if not isinstance(value, dict) or depth > _DEEPEST * _MIN_LENGTH:
        return value
    if value and all(key.isdecimal() for key in value):
        entries = [_shaped(value[key], depth + 1) for key in sorted(value, key=lambda key: (len(key), key))]
        return [_bare(entry) for entry in entries]
    return {key: _shaped(inner, depth + 1) for key, inner in value.items()}


def _bare(value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1:
        inner = next(iter(value.values()))
        return inner if isinstance(inner, dict) else value
    return value
