"""Parts of messages in the forms of all model APIs: texts, calls and results. Pure.

A content is a text or a list of parts. Thoughts are left out, as they are said to no one, and so are calls,
which readers take from elsewhere. Media are named, never dumped. A list in which anything is no part is a
tool's own result, and stays JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from analyzer.recordings.dialogue import Message, Speaker
from analyzer.recordings.fields import json_text
from semconv.emit.content import count_of
from semconv.model import ToolCall
from semconv.record import record, replace

_TEXTS: Final = frozenset({"text", "input_text", "output_text", "refusal"})
_UNSAID: Final = frozenset(
    {"thinking", "redacted_thinking", "reasoning", "reasoning_content", "reasoning_text", "summary_text"}
    | {"tool_use", "server_tool_use", "tool_call", "server_tool_call", "invalid_tool_call", "tool_call_chunk"}
    | {"function_call", "input_json_delta"}
)
"""Thoughts and calls."""
_MEDIA: Final = frozenset(
    {"image", "image_url", "input_image", "image_file", "audio", "input_audio", "output_audio", "video"}
    | {"file", "input_file", "document", "media", "computer_screenshot", "container_upload", "data", "uri"}
)
_MEDIA_KEYS: Final = frozenset({"image", "document", "video", "audio", "inlineData", "inline_data"}) | {
    "fileData",
    "file_data",
}
"""Keys of parts that have no ``type``: Bedrock's and Gemini's."""


_TEXT, _JSON = frozenset({"text"}), frozenset({"json"})
"""The only key of a part without a type that is a text, or a value."""


def text_of(content: Any) -> str:
    """Return a content's text; parts that are calls or results have none."""
    if content.__class__ is str:
        return str(content)
    if not isinstance(content, list):
        return json_text(content)
    texts = list(map(part_text, content))
    return json_text(content) if None in texts else "\n".join(filter(None, texts))


def part_text(part: Any) -> str | None:
    """Return the text of one part of a content; ``None`` if it is no part."""
    if not isinstance(part, dict):
        return part if isinstance(part, str) else None
    kind = part.get("type")
    if not isinstance(kind, str):
        if not (part.keys() <= _TEXT or part.keys() <= _JSON or not _MEDIA_KEYS.isdisjoint(part)):
            return None
    elif kind in _UNSAID:
        return ""
    elif kind in _MEDIA:
        return f"[{kind}]"
    elif kind not in _TEXTS:
        return None
    text = part.get("text", part.get("refusal", part.get("json")))
    if isinstance(text, dict) and "value" in text:  # the Assistants API
        text = text["value"]
    return json_text(text) or next((f"[{key}]" for key in part if key in _MEDIA_KEYS), "")


def listed(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list that may be absent.

    Raises:
        TypeError: it is another value, or holds one.
    """
    found = [] if value is None else value
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise TypeError(f"expected a list of objects, found {str(value)[:80]!r}")
    return found


def messages_in(found: Iterable[Any], messages_of: Callable[[Any], Iterator[Message]]) -> Iterator[Message]:
    """Yield the messages of a dialogue's entries, of which one may hold several."""
    return (message for one in found for message in messages_of(one))


def latest(documents: Sequence[Any], messages_in: Callable[[Any], Sequence[Any]]) -> list[Any]:
    """Return documents without those that the next one continues: a request holds the dialogue so far."""
    found: list[Any] = []
    said: Sequence[Any] = ()
    for one in documents:
        messages = messages_in(one)
        if said and len(said) < len(messages) and said == messages[: len(said)]:
            found.pop()
        found.append(one)
        said = messages
    return found


def instructed(content: Any) -> Iterator[Message]:
    """Yield a request's system prompt, if it has one."""
    if content:
        yield Message(speaker=Speaker.SYSTEM, text=text_of(content))


def nested_call(asked: Mapping[str, Any]) -> ToolCall:
    """Return a call as the model's API has it: OpenAI's nests it, Anthropic's does not."""
    inner = asked.get("function")
    function = inner if isinstance(inner, dict) else asked
    return call_of(function.get("name"), function.get("arguments", function.get("input")), asked.get("id"))


def call_of(name: Any, arguments: Any, call_id: Any) -> ToolCall:
    """Return a call with its arguments as text."""
    return ToolCall(name=json_text(name), arguments=json_text(arguments), call_id=json_text(call_id))


@record
class Result:
    """The part of a message that answers a call."""

    text: str
    call_id: str = ""
    tool: str = ""
    """The tool's name, if the result states it."""
    failed: bool = False


Part: TypeAlias = str | ToolCall | Result
"""What one part of a message says, calls or returns; empty for thoughts."""


def turn(template: Message, parts: Iterable[Part], *, joint: str = "\n") -> Iterator[Message]:
    """Yield one message of an API as messages of a dialogue: each result is a message of its own.

    Args:
        template: who speaks and when, without text and calls.
        parts: in order.
        joint: what stands between two texts.
    """
    texts: list[str] = []
    calls: list[ToolCall] = []
    is_silent = template.speaker is Speaker.AGENT
    for part in parts:
        match part:
            case str():
                texts += [part] if part else []
            case ToolCall():
                calls.append(part)
            case Result():
                if texts or calls:
                    yield replace(template, text=joint.join(texts), calls=tuple(calls))
                    texts, calls = [], []
                yield _answered(template, part)
                is_silent = False
    if texts or calls or is_silent:
        yield replace(template, text=joint.join(texts), calls=tuple(calls))


def _answered(template: Message, result: Result) -> Message:
    return Message(
        speaker=Speaker.TOOL,
        text=result.text,
        agent=template.agent,
        call_id=result.call_id,
        tool=result.tool,
        failed=result.failed,
        time_ns=template.time_ns,
        inside=template.inside,
    )


def tokens_of(
    usage: Any, asked: str = "input_tokens", answered: str = "output_tokens"
) -> tuple[int, int] | None:
    """Return input and output tokens that a usage counts under these keys; ``None`` if it does not."""
    if not isinstance(usage, dict):
        return None
    given, said = count_of(usage.get(asked)), count_of(usage.get(answered))
    return None if given is None or said is None else (given, said)
