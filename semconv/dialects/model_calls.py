"""What went into a model call and what came out, as the SDKs of models take and give it.

Tracers of functions (LangSmith, Langfuse, MLflow, Logfire) keep a call's arguments and its result
as they were: OpenAI's chat and responses, Anthropic, Gemini, langchain's generations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from semconv.dialects.action import Message
from semconv.dialects.messages import message_of, messages_of
from semconv.dialects.reading import structured, words

_INPUTS: Final = ("messages", "input", "prompt", "prompts", "contents", "inputs", "request", "query")
_INSTRUCTIONS: Final = ("instructions", "system", "system_instruction", "system_prompt")
_MESSAGE_MARKS: Final = frozenset({"role", "tool_calls", "lc", "source", "data", "kwargs", "parts"})
_ITEMS: Final = frozenset({"function_call", "function_call_output", "reasoning", "message"})
_MAX_LEVELS: Final = 4


def heard_in(value: Any) -> tuple[Message, ...]:
    """Return the messages that a model call was given."""
    value = structured(value)
    for _ in range(_MAX_LEVELS):
        if not isinstance(value, Mapping) or _is_message(value):
            break
        told = next((words(value[key]) for key in _INSTRUCTIONS if value.get(key)), "")
        inner = next((value[key] for key in _INPUTS if value.get(key) not in (None, "", [], {})), None)
        if inner is None:
            inner = _arguments_of(value)
        if inner is None:
            return (Message(role="system", text=told),) if told else ()
        if told:
            return (Message(role="system", text=told), *heard_in_conversation(inner))
        value = structured(inner)
    return heard_in_conversation(value)


def _arguments_of(value: Mapping[str, Any]) -> Any:
    """Return the conversation among a traced function's arguments: its first list or its first text."""
    arguments = [*_listed(value.get("args")), *_valued(value.get("kwargs"))]
    lists = [each for each in arguments if isinstance(each, (list, tuple, Mapping)) and each]
    return next(iter(lists), next((each for each in arguments if isinstance(each, str) and each), None))


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _valued(value: Any) -> Sequence[Any]:
    if not isinstance(value, Mapping):
        return ()
    return (value,) if any(key in value for key in _INPUTS) else tuple(value.values())


def heard_in_conversation(value: Any) -> tuple[Message, ...]:
    """Return the messages of a list, a text, or a single message."""
    value = structured(value)
    if isinstance(value, str):
        return (Message(role="user", text=value),) if value else ()
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, str) for each in value):
        return tuple(Message(role="user", text=each) for each in value)
    return messages_of(value)


def said_in(value: Any) -> tuple[Message, ...]:
    """Return what a model answered."""
    value = structured(value)
    for _ in range(_MAX_LEVELS):
        if isinstance(value, str):
            return (Message(role="assistant", text=value),) if value else ()
        if isinstance(value, (list, tuple)):
            return _said_in_list(value)
        if not isinstance(value, Mapping):
            return ()
        if _is_message(value):
            return _spoken((value,))
        inner = _inside(value)
        if inner is None:
            return _spoken((value,)) if "content" in value else _as_text(value)
        value = structured(inner)
    return _as_text(value)


def _inside(value: Mapping[str, Any]) -> Any:
    """Return the part of an SDK's answer that holds what was said."""
    if value.get("choices"):
        return [_choice(each) for each in _listed(value["choices"])]
    if value.get("generations"):
        return [_choice(each) for batch in _listed(value["generations"]) for each in _batch(batch)]
    if value.get("candidates"):
        return [each.get("content") for each in _listed(value["candidates"]) if isinstance(each, Mapping)]
    return next(
        (value[key] for key in ("output", "outputs", "message", "messages", "response") if value.get(key)),
        None,
    )


def _batch(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _choice(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    inner = value.get("message") or value.get("delta")
    return inner or {"role": "assistant", "content": value.get("text") or value.get("content") or ""}


def _said_in_list(values: Sequence[Any]) -> tuple[Message, ...]:
    if all(isinstance(each, str) for each in values):
        return tuple(Message(role="assistant", text=each) for each in values if each)
    if all(isinstance(each, Mapping) and "text" in each and "role" not in each for each in values):
        return _spoken(({"role": "assistant", "content": values},))  # Anthropic's blocks
    return _spoken(values)


def _spoken(values: Sequence[Any]) -> tuple[Message, ...]:
    """Return messages whose speaker is the model where they do not say."""
    found: list[Message] = []
    for value in values:
        given = value
        if isinstance(value, Mapping) and not _is_message(value) and words(value.get("type")) not in _ITEMS:
            given = {"role": "assistant", **value}
        message = message_of(given)
        if message is not None and (message.text or message.calls):
            found.append(message)
    return tuple(found)


def _as_text(value: Any) -> tuple[Message, ...]:
    text = words(value) if value else ""
    return (Message(role="assistant", text=text),) if text else ()


def _is_message(value: Mapping[str, Any]) -> bool:
    return bool(value.keys() & _MESSAGE_MARKS) and not value.keys() >= {"args", "kwargs"}
