"""What a conversation says: as text, and which of it is the request and the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from semconv.dialects.action import Message, ToolCall


def render_call(call: ToolCall) -> str:
    """Return a requested tool call on one line."""
    return f"call {call.name}({call.arguments})"


def render(messages: Iterable[Message]) -> str:
    """Return messages as text, each under its role (and name); those that say nothing are left out."""
    return "\n".join(
        f"{message.role}{f' ({message.name})' if message.name else ''}: {body}"
        for message in messages
        if (body := body_of(message))
    )


def body_of(message: Message) -> str:
    """Return a message's text and calls, without its role."""
    if not message.calls:
        return message.text
    return "\n".join(filter(None, (message.text, *(render_call(call) for call in message.calls))))


def last_request(messages: Sequence[Message]) -> str:
    """Return what the user asks in a conversation: the first user message after the last plain answer.

    Frameworks add context as further user messages, and a session's earlier turns come first.
    """
    request = ""
    for message in reversed(messages):
        if message.role == "user" and message.text:
            request = message.text
        elif request and message.role == "assistant" and message.text and not message.calls:
            break
    return request


def last_answer(messages: Sequence[Message]) -> str:
    """Return the text of the last message that is an agent's and says something."""
    return next(
        (
            message.text
            for message in reversed(messages)
            if message.role not in {"user", "system", "tool"} and message.text
        ),
        "",
    )
