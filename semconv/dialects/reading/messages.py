"""Messages to and from models: read from every shape that frameworks write, and written as text.

Reads OpenTelemetry's ``parts``, OpenAI chat and responses items, Anthropic blocks, Bedrock ``toolUse``,
Gemini ``functionCall``, Vercel's ``toolName``, langchain's serialised messages, AutoGen's ``source``.
Images and files are named, never dumped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from semconv.dialects.reading.action import Message
from semconv.dialects.reading.python_repr import message_fields
from semconv.dialects.reading.values import below, items, mapping, structured, text, words
from semconv.model import AttributeValue, Heard, Span, ToolCall

_ROLES: Final[Mapping[str, str]] = {
    "human": "user",
    "ai": "assistant",
    "aimessagechunk": "assistant",
    "model": "assistant",
    "function": "tool",
    "developer": "system",
    "tool-response": "tool",
    "tool-call": "assistant",
}
_WRAPPERS: Final = ("data", "kwargs", "message")
"""Keys under which serialised messages nest the message itself."""
_TEXT_KEYS: Final = ("text", "content", "thinking", "reasoning", "summary", "refusal", "output")
_MEDIA: Final[frozenset[str]] = frozenset(
    {"image", "image_url", "input_image", "audio", "input_audio", "file", "blob", "uri", "video", "document"}
)
_CALLS: Final = frozenset({"tool_call", "tool_use", "function_call", "tool-call", "server_tool_call"})
_RESULTS: Final = frozenset(
    {"tool_call_response", "tool_result", "tool-result", "tool-return", "server_tool_call_response"}
)
_TEXTS: Final = frozenset(
    {"text", "input_text", "output_text", "summary_text", "thinking", "reasoning", "refusal"}
)
_PART_TYPES: Final = _CALLS | _RESULTS | _MEDIA | _TEXTS
_ITEM_TYPES: Final = ("function_call", "function_call_output", "reasoning")
_CALL_KEYS: Final = ("toolUse", "functionCall", "function_call")
_RESULT_KEYS: Final = ("toolResult", "functionResponse", "function_response")
_PART_KEYS: Final = frozenset({*_CALL_KEYS, *_RESULT_KEYS, "inline_data", "file_data", "part_kind"})
_PART_PAIRS: Final = ({"name", "arguments"}, {"call_id", "content"})
"""AutoGen's function calls and results."""
_RESULT_IDS: Final = ("tool_call_id", "call_id", "tool_use_id", "toolUseId", "toolCallId", "id")
_MORE_ARGUMENTS: Final = ("args", "input", "arguments_json")
_MORE_CALL_IDS: Final = ("call_id", "toolUseId", "toolCallId", "tool_call_id")
_CONTENT_OFF: Final = frozenset({"type", "part_kind"})
"""The only keys left of a part whose content was switched off."""
_KIND_KEYS: Final = ("type", "kind", "contentType", "content_type")
"""Keys that state what a block is."""
_MAX_WRAPPERS: Final = 4
_PLAIN_ROLES: Final = ("user", "assistant", "system")
_SPEAKERS: Final = frozenset({*_PLAIN_ROLES, "human", "ai", "developer"})
"""Roles that may come first in a pair of role and text."""


@dataclass(slots=True)
class _Draft:
    texts: list[str] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    """Positions of the texts that are tools' results."""
    calls: list[ToolCall] = field(default_factory=list)
    answers_tool: bool = False
    """True if it holds a tool's result, regardless of its role."""
    answers: list[str] = field(default_factory=list)

    def answer(self, item: Mapping[str, Any]) -> None:
        """Record ``item`` as a tool's result, with the id of its call."""
        self.answers_tool = True
        call_id = next((item[key] for key in _RESULT_IDS if item.get(key)), None)
        if call_id is not None:
            self.answers.append(words(call_id))

    def add_result(self, result: Mapping[str, Any]) -> None:
        """Record a part that is a tool's result, with its text."""
        self.answer(result)
        self.results.append(len(self.texts))
        self.texts.append(_result_of(result))


def messages_of(value: Any) -> tuple[Message, ...]:
    """Return the messages in ``value``: a list (also as JSON or under ``messages``), or one message."""
    if value is None:
        return ()
    value = structured(value)
    if isinstance(value, dict) and isinstance(value.get("messages"), (list, tuple)):
        value = value["messages"]
    if isinstance(value, (list, tuple)) and len(value) == 1 and isinstance(value[0], (list, tuple)):
        value = value if is_pair(value[0]) else value[0]  # langchain batches
    if isinstance(value, dict):
        value = (value,)
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple([message for each in value if (message := message_of(each)) is not None])


def message_of(value: Any) -> Message | None:
    """Return one message, or ``None`` if ``value`` is not one."""
    if not isinstance(value, dict):
        value = _as_object(value)
        if value is None:
            return None
    if (plain := _plain_text(value)) is not None:
        return plain
    if "parts" in value and "role" in value:  # OpenTelemetry's shape, the most frequent
        draft = _Draft()
        for part in items(value["parts"]):
            _read_part(draft, part)
        return _finish(draft, words(value["role"]), words(value.get("name")))
    name = words(value.get("name") or "")
    role = value.get("role") or value.get("type")
    for _ in range(_MAX_WRAPPERS):
        inner = next((value[key] for key in _WRAPPERS if isinstance(value.get(key), dict)), None)
        if inner is None:
            break
        value = inner
        role = value.get("role") or value.get("type") or role
    draft = _Draft()
    _read_item(draft, value) if _is_item(value) else _read_body(draft, value)
    speaker = value.get("source")
    if role is None or (isinstance(speaker, str) and not value.get("role")):
        role = _role_of(speaker, value)
    name = words(value.get("name") or name or (speaker if speaker != "user" else "") or "")
    return _finish(draft, words(role), name)


def _as_object(value: Any) -> dict[str, Any] | None:
    value = structured(value)
    if isinstance(value, str):
        return message_fields(value)
    if is_pair(value):
        return {"role": value[0], "content": value[1]}
    return value if isinstance(value, dict) else None


def is_pair(value: Any) -> bool:
    """Say whether ``value`` is langchain's short form of a message: ``["user", "Hello"]``."""
    return (
        isinstance(value, (list, tuple))
        and len(value) == len(("role", "content"))
        and all(isinstance(each, str) for each in value)
        and value[0] in _SPEAKERS
    )


def _plain_text(value: Mapping[str, Any]) -> Message | None:
    """Return a message of one text, the most frequent kind: a fast path, since long runs repeat thousands."""
    parts = value.get("parts")
    if not isinstance(parts, (list, tuple)) or len(parts) != 1:
        return None
    part, role = parts[0], value.get("role")
    if not isinstance(part, dict) or len(part) != 2 or role not in _PLAIN_ROLES:
        return None
    content, name = part.get("content"), value.get("name")
    if part.get("type") != "text" or not isinstance(content, str):
        return None
    return Message(role=role, text=content, name="" if name is None else words(name))


def _finish(draft: _Draft, role: str, name: str) -> Message:
    role = role.lower()
    role = _ROLES.get(role, role)
    if draft.answers_tool and not draft.calls:
        role = "tool"
    elif role not in {"user", "assistant", "system", "tool"}:
        role = "assistant" if draft.calls else (role or "user")
    results = "" if role == "tool" else _joined(draft.texts[place] for place in draft.results)
    own = draft.texts
    if results:
        told = set(draft.results)
        own = [text for place, text in enumerate(draft.texts) if place not in told]
    return Message(
        role=role,
        text=_joined(own),
        calls=tuple(draft.calls),
        name=name,
        answers=tuple(draft.answers),
        results=results,
    )


def _joined(texts: Iterable[str]) -> str:
    return "\n".join(filter(None, texts))


def _role_of(speaker: Any, value: Mapping[str, Any]) -> str:
    if isinstance(speaker, str):
        return "user" if speaker == "user" else "assistant"
    return "assistant" if value.get("tool_calls") else "user"


def _is_item(value: Mapping[str, Any]) -> bool:
    """Say whether a list entry is a bare item of OpenAI's responses API, not a message with a body."""
    return value.get("type") in _ITEM_TYPES and "role" not in value


def _read_item(draft: _Draft, item: Mapping[str, Any]) -> None:
    if item.get("type") == "function_call":
        draft.calls.append(_call_of(item))
    elif item.get("type") == "function_call_output":
        draft.answer(item)
        draft.texts.append(words(item.get("output")))
    else:
        _read_content(draft, item.get("summary") or item.get("content"))


def _read_body(draft: _Draft, value: Mapping[str, Any]) -> None:
    if "parts" in value:
        for part in items(value["parts"]):
            _read_part(draft, part)
    else:
        content = value.get("content", value.get("contents", value.get("text")))
        if content != [] or value.get("role") != "assistant":  # a tool's empty list is its result
            _read_content(draft, content)
    known = {call.call_id for call in draft.calls if call.call_id}
    more = value.get("additional_kwargs")  # langchain's messages as stored by Langfuse 3
    given = value.get("tool_calls") or (more.get("tool_calls") if isinstance(more, dict) else None)
    for each in items(given):
        if isinstance(each, dict):
            call = _call_of(each)
            if call.name and call.call_id not in known:
                draft.calls.append(call)
    single = value.get("function_call")
    if isinstance(single, dict) and not draft.calls:
        draft.calls.append(_call_of(single))
    if value.get("tool_call_id"):
        draft.answer({"tool_call_id": value["tool_call_id"]})
    elif value.get("type") == "tool":
        draft.answers_tool = True


def _read_content(draft: _Draft, content: Any) -> None:
    value = structured(content) if isinstance(content, str) and content.startswith("[{") else content
    if isinstance(value, dict) and _is_part(value):
        _read_part(draft, value)
    elif isinstance(value, (list, tuple)) and value and all(map(_is_part, value)):
        for part in value:
            _read_part(draft, part)
    else:
        draft.texts.append(words(content))


def _is_part(value: Any) -> bool:
    """Say whether ``value`` is a part of a message, not JSON content such as a tool's result."""
    if not isinstance(value, dict):
        return isinstance(value, str)
    keys = value.keys()
    return (
        words(value.get("type")) in _PART_TYPES
        or keys == {"text"}
        or bool(keys & _PART_KEYS)
        or any(keys >= pair for pair in _PART_PAIRS)
        or _block_text(value) is not None
    )


def _block_text(block: Mapping[str, Any]) -> str | None:
    """Return the text of a block that states that it is text, whatever its two keys; ``None`` for others."""
    kind = next((key for key in _KIND_KEYS if key in block), None)
    if kind is None or len(block) != len(("kind", "text")) or words(block[kind]).lower() not in _TEXTS:
        return None
    (text,) = (value for key, value in block.items() if key != kind)
    return text if isinstance(text, str) else None


def _read_part(draft: _Draft, part: Any) -> None:
    if not isinstance(part, dict):
        draft.texts.append(words(part))
        return
    kind = str(part.get("type") or part.get("part_kind") or "")
    if kind == "text":
        draft.texts.append(_text_of(part))
    elif (call := _call_in(part, kind)) is not None:
        draft.calls.append(_call_of(call))
    elif (result := _result_in(part, kind)) is not None:
        draft.add_result(result)
    elif kind in _MEDIA or "inline_data" in part or "file_data" in part:
        draft.texts.append(f"[{kind or 'file'}{_label(part)}]")
    else:
        said = _block_text(part)
        draft.texts.append(_text_of(part) if said is None else said)


def _call_in(part: dict[str, Any], kind: str) -> dict[str, Any] | None:
    if kind in _CALLS or (not kind and "arguments" in part):
        return part
    return next((part[key] for key in _CALL_KEYS if isinstance(part.get(key), dict)), None)


def _result_in(part: dict[str, Any], kind: str) -> dict[str, Any] | None:
    if kind in _RESULTS or (not kind and "call_id" in part):
        return part
    return next((part[key] for key in _RESULT_KEYS if isinstance(part.get(key), dict)), None)


def _label(part: Mapping[str, Any]) -> str:
    label = part.get("mime_type") or part.get("media_type") or part.get("modality")
    return f" {label}" if isinstance(label, str) else ""


def _text_of(part: Mapping[str, Any]) -> str:
    for key in _TEXT_KEYS:
        value = part.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, (list, tuple)):
            return "\n".join(_plain(value))
    return "" if part.keys() <= _CONTENT_OFF else words(part)


def _plain(parts: Iterable[Any]) -> list[str]:
    """Return the texts of parts, one level down; deeper nesting stays JSON."""
    return [
        words(next((part[key] for key in _TEXT_KEYS if isinstance(part.get(key), str)), part))
        if isinstance(part, dict)
        else words(part)
        for part in parts
    ]


def _result_of(part: Mapping[str, Any]) -> str:
    for key in ("response", "result", "content", "output"):
        value = part.get(key)
        if value is not None:
            value = value["value"] if isinstance(value, dict) and value.keys() == {"type", "value"} else value
            return "\n".join(_plain(value)) if isinstance(value, (list, tuple)) else words(value)
    return ""


def _call_of(value: Mapping[str, Any]) -> ToolCall:
    inner = value.get("function")
    spec: Mapping[str, Any] = inner if isinstance(inner, dict) else value
    arguments = spec.get("arguments")
    if arguments is None:
        arguments = next((spec[key] for key in _MORE_ARGUMENTS if spec.get(key) is not None), "")
    call_id = value.get("id") or next((value[key] for key in _MORE_CALL_IDS if value.get(key)), "")
    name = words(spec.get("name") or spec.get("toolName"))
    return ToolCall(name=name, arguments=words(arguments), call_id=words(call_id))


def render_call(call: ToolCall) -> str:
    """Return a requested tool call on one line."""
    return f"call {call.name}({call.arguments})"


def render(messages: Iterable[Message]) -> tuple[str, tuple[Heard, ...]]:
    """Return messages as text, each under its role (and name), and their places in it.

    Empty messages are left out.
    """
    parts: list[str] = []
    heard: list[Heard] = []
    end = -1  # the first message follows no line end
    for message in messages:
        if not (body := body_of(message)):
            continue
        label = f"{message.role}{f' ({message.name})' if message.name else ''}: "
        start = end + 1 + len(label)
        end = start + len(body)
        parts.append(f"{label}{body}")
        heard.append(
            Heard(role=message.role, start=start, end=end, author=message.name, answers=message.answers)
        )
    return "\n".join(parts), tuple(heard)


def body_of(message: Message) -> str:
    """Return a message's text, calls and results of tools, without its role."""
    if not message.calls:
        return message.text
    calls = (render_call(call) for call in message.calls)
    return "\n".join(filter(None, (message.text, *calls, message.results)))


def system_text(messages: Iterable[Message]) -> str:
    """Return the system messages' texts."""
    return "\n".join([message.text for message in messages if message.role == "system"])


def last_request(messages: Sequence[Message]) -> str:
    """Return the user's request: the first user message after the last plain answer.

    Frameworks append context as further user messages, and a session's earlier turns come first.
    """
    request = ""
    for message in reversed(messages):
        if message.role == "user" and message.text:
            request = message.text
        elif request and message.role == "assistant" and message.text and not message.calls:
            break
    return request


def last_answer(messages: Sequence[Message]) -> str:
    """Return the text of the agent's last message that has text."""
    return next(
        (
            message.text
            for message in reversed(messages)
            if message.role not in {"user", "system", "tool"} and message.text
        ),
        "",
    )


# --- flattened into attributes ---
#
# Messages flattened into attributes, one attribute per field.
#
# Sources: OpenInference ``llm.{input,output}_messages.<n>.message.*``, with the additions of single
# instrumentations; Traceloop's OpenLLMetry until 2025 (``opentelemetry-semantic-conventions-ai`` 0.4):
# ``gen_ai.prompt.<n>.*`` and ``gen_ai.completion.<n>.*``, before 0.20 ``llm.prompts`` and
# ``llm.completions``, calls in ``tool_calls.<m>.{id,name,arguments}``.


PROMPTS: Final = ("gen_ai.prompt", "llm.prompts")
COMPLETIONS: Final = ("gen_ai.completion", "llm.completions")

_FLAT_ROLES: Final = ("user", "assistant", "system", "tool")
_STRUCTURED: Final = "[{"
"""Start of content that is a list of parts."""


def flattened(span: Span, prefix: str) -> tuple[Message, ...]:
    """Return OpenInference's ``<prefix>.<index>.message.*`` as messages, in index order, with gaps closed.

    If attributes were evicted (oldest first), a message without a role is incomplete and left out.
    """
    pieces = below(span.attributes, prefix).values()
    return tuple(
        message
        for fields in pieces
        if ("message.role" in fields or not span.dropped_attributes)
        and (message := _unflatten(fields)) is not None
    )


def _unflatten(fields: Mapping[str, AttributeValue]) -> Message | None:
    plain = _flat_text(fields)
    return _unflatten_any(fields) if plain is None else plain


def _flat_text(fields: Mapping[str, AttributeValue]) -> Message | None:
    """Return a message of one text, the most frequent kind: a fast path, since long runs repeat thousands."""
    if len(fields) != 2:
        return None
    role, content = fields.get("message.role"), fields.get("message.content")
    if not isinstance(role, str) or not isinstance(content, str) or role not in _FLAT_ROLES:
        return None
    return None if content.startswith(_STRUCTURED) else Message(role=role, text=content)


def _unflatten_any(fields: Mapping[str, AttributeValue]) -> Message | None:
    parts: list[object] = []
    content = fields.get("message.content")
    pieces = below(fields, "message.contents")
    if pieces:
        parts.extend(_content_part(piece) for piece in pieces.values())
    elif content is not None:
        parts.append(content if isinstance(content, (list, tuple, Mapping)) else words(content))
    else:  # the Claude Agent SDK's blocks
        parts.extend(value for name, value in fields.items() if name.startswith("message.content."))
    parts.extend(mapping(value) for name, value in fields.items() if name.startswith("function."))  # AutoGen
    body = parts[0] if len(parts) == 1 else parts or None
    message = message_of({"role": words(fields.get("message.role")), "content": body})
    if message is None:
        return None
    calls = [_call(piece) for piece in below(fields, "message.tool_calls").values()]
    single = text(fields, "message.function_call_name")
    if single:
        calls.append(
            ToolCall(name=single, arguments=text(fields, "message.function_call_arguments_json") or "")
        )
    name = text(fields, "message.name") if message.role == "assistant" else None
    answered_call = text(fields, "message.tool_call_id")
    return Message(
        role=message.role,
        text=message.text,
        calls=(*message.calls, *calls),
        name=name or message.name,
        answers=message.answers if answered_call is None else (answered_call,),
    )


def _content_part(piece: Mapping[str, AttributeValue]) -> str:
    content = text(piece, "message_content.text")
    kind = text(piece, "message_content.type") or "content"
    return content or ("" if kind == "text" else f"[{kind}]")  # a streamed call has an empty text


def _call(piece: Mapping[str, AttributeValue]) -> ToolCall:
    return ToolCall(
        name=text(piece, "tool_call.function.name") or "",
        arguments=text(piece, "tool_call.function.arguments", "tool_call.function.arguments_json") or "",
        call_id=text(piece, "tool_call.id") or "",
    )


def prompts_of(span: Span) -> tuple[Message, ...]:
    """Return the input messages of one of Traceloop's model calls, in index order, with gaps closed."""
    return _flattened(span, PROMPTS, "user")


def completions_of(span: Span) -> tuple[Message, ...]:
    """Return the output messages of one of Traceloop's model calls."""
    return _flattened(span, COMPLETIONS, "assistant")


def _flattened(span: Span, prefixes: tuple[str, ...], speaker: str) -> tuple[Message, ...]:
    for prefix in prefixes:
        found = [
            _message(fields, speaker)
            for fields in below(span.attributes, prefix).values()
            if "role" in fields or not span.dropped_attributes  # else it is incomplete
        ]
        messages = tuple(message for message in found if message is not None)
        if messages:
            return messages
    return ()


def _message(fields: Mapping[str, AttributeValue], speaker: str) -> Message | None:
    if "role" not in fields and "content" not in fields and not _has_calls(fields):
        return None
    calls = [
        {"name": text(each, "name"), "arguments": text(each, "arguments"), "id": text(each, "id")}
        for each in below(fields, "tool_calls").values()
    ]
    single = text(fields, "function_call.name")
    if single:
        calls.append({"name": single, "arguments": text(fields, "function_call.arguments"), "id": None})
    return message_of(
        {
            "role": text(fields, "role") or speaker,
            "content": None if fields.get("content") == '""' else fields.get("content"),
            "tool_calls": calls,
            "tool_call_id": text(fields, "tool_call_id"),
        }
    )


def _has_calls(fields: Mapping[str, AttributeValue]) -> bool:
    return any(name.startswith(("tool_calls.", "function_call.")) for name in fields)
