"""Reader of the AI SDK's messages (Vercel): UI messages and model messages. Pure.

A UI message has ``parts``; the part of a tool holds call and result, and its ``state`` says how far it came
(version 4: ``tool-invocation``). A model message has the parts ``tool-call`` and ``tool-result``. Mastra
keeps UI parts under ``content``. A result of ``generateText`` has the new messages in the ``response`` of its
last step.
Source: vercel/ai 4 to 6, ``ui-messages.ts`` and ``content-part.ts`` (2025-2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogues_spans
from analyzer.recordings.fields import json_text, nanoseconds, object_at, objects, text_at
from analyzer.recordings.message_parts import (
    Part,
    Result,
    call_of,
    dialogues_of,
    ended,
    finish_of,
    listed,
    text_of,
    turn,
)
from analyzer.recordings.recording import FileFormat, Records, Spans

_SPEAKERS: Final[Mapping[str, Speaker]] = {
    "user": Speaker.USER,
    "assistant": Speaker.AGENT,
    "tool": Speaker.USER,
    "system": Speaker.SYSTEM,
    "data": Speaker.USER,
}
_LISTS: Final = ("messages", "responseMessages")
_FAILED: Final = frozenset({"error-text", "error-json"})
_OUTPUTS: Final = _FAILED | {"text", "json", "content", "execution-denied"}
"""Types of a model message's output, which is beside it."""
_RESULTS: Final = frozenset({"tool-result", "tool-error"})
_KINDS: Final = (
    "tool-", "dynamic-tool", "data-", "source", "step-start", "text", "reasoning", "file", "image",
)  # fmt: skip
"""Beginnings of the types of parts."""
_UNSAID: Final = ("reasoning", "step-start", "data-", "source", "tool-approval")


def is_vercel(records: Records) -> bool:
    """Tell whether records are messages of the SDK in either form, or documents that hold some."""
    return _are_messages(records) or all(
        isinstance(record, dict) and _are_messages([*_asked(record), *_answers(record)]) for record in records
    )


def _are_messages(found: Records) -> bool:
    return all(map(_is_message, found)) and any(map(_is_of_sdk, found))


def _asked(document: Mapping[str, Any]) -> list[Any]:
    return next((document[key] for key in _LISTS if isinstance(document.get(key), list)), [])


def _answers(document: Mapping[str, Any]) -> list[Any]:
    """Return the messages of a document's response or of its last step, or the answer of a stream."""
    streamed = object_at(document, "output").get("message")
    steps = objects(document.get("steps"))
    last = next(reversed(steps), None)
    said = [object_at(one, "response").get("messages") for one in (document, last)]
    kept = [{"role": "assistant", "content": content} for step in steps if (content := _of_step(step))]
    found = next((one for one in said if isinstance(one, list) and one), [streamed] if streamed else kept)
    return [*found[:-1], *(ended(one, document.get("finishReason")) for one in found[-1:])]


def _of_step(step: Mapping[str, Any]) -> Any:
    """Return the parts of a step, also if it lists them by kind; Mastra has their fields in a ``payload``."""
    if step.get("content"):
        return step["content"]
    listed_parts = [*objects(step.get("toolCalls")), *objects(step.get("toolResults"))]
    parts = [{**object_at(part, "payload"), **part} for part in listed_parts]
    return [*parts, *([{"type": "text", "text": step["text"]}] if step.get("text") else [])]


def _is_message(one: Any) -> bool:
    return isinstance(one, dict) and text_at(one, "role") in _SPEAKERS and _are_parts(_parts(one))


def _parts(one: Mapping[str, Any]) -> Any:
    """Return a message's parts; those of a text are one."""
    content = one.get("content")
    inner = content.get("parts") if isinstance(content, dict) else content
    found = one.get("parts", inner)
    if isinstance(one.get("toolInvocations"), list) and "parts" not in one:
        calls = [{"type": "tool-invocation", "toolInvocation": call} for call in one["toolInvocations"]]
        return [*calls, {"type": "text", "text": json_text(content)}]
    return [{"type": "text", "text": found}] if isinstance(found, str) else found


def _are_parts(parts: Any) -> bool:
    return isinstance(parts, list) and all(text_at(part, "type").startswith(_KINDS) for part in parts)


def _is_of_sdk(one: Mapping[str, Any]) -> bool:
    parts = _parts(one)
    calls = any("toolCallId" in part or "toolInvocation" in part for part in parts)
    return calls or (isinstance(one.get("parts"), list) and any("text" in part for part in parts))


def read_vercel(records: Records) -> Spans:
    """Read one dialogue, or one for each document."""
    documents = [{"messages": [*records]}] if _are_messages(records) else records
    return dialogues_spans(dialogues_of(documents, _asked, _answers, _of_message), name="ai_sdk")


def _of_message(one: Mapping[str, Any]) -> Iterator[Message]:
    template = Message(
        speaker=_SPEAKERS[one["role"]],
        time_ns=nanoseconds(one.get("createdAt")),
        finish=finish_of(one.get("finish_reason")),
    )
    yield from turn(template, (found for part in listed(_parts(one)) for found in _of_part(part)))


def _of_part(part: Mapping[str, Any]) -> Iterator[Part]:
    kind = part["type"]
    if kind == "tool-call":
        yield call_of(part.get("toolName"), part.get("input", part.get("args")), part.get("toolCallId"))
    elif kind in _RESULTS:
        yield _result(part)
    elif kind == "tool-invocation":
        yield from _invocation(part["toolInvocation"])
    elif "toolCallId" in part and kind.startswith(("tool-", "dynamic-tool")):
        yield from _invocation(part)
    elif not kind.startswith(_UNSAID):
        yield text_of([part])


def _result(part: Mapping[str, Any]) -> Result:
    output = part.get("output")
    is_typed = text_at(output, "type") in _OUTPUTS  # a step's content has the tool's own value
    value = output.get("value", output.get("reason")) if is_typed and output else part.get("result", output)
    given = part.get("error", value)
    failed = "error" in part or part.get("isError") is True or text_at(output, "type") in _FAILED
    return Result(
        text=text_of(given),
        call_id=json_text(part.get("toolCallId")),
        tool=json_text(part.get("toolName")),
        failed=failed,
    )


def _invocation(part: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the call of a UI message's part and, once it is there, the result."""
    call_id = json_text(part.get("toolCallId"))
    tool = json_text(part.get("toolName")) or text_at(part, "type").removeprefix("tool-")
    yield call_of(tool, part.get("input", part.get("args", part.get("rawInput"))), call_id)
    state = part.get("state")
    if state == "output-error":
        yield Result(text=json_text(part.get("errorText")), call_id=call_id, failed=True)
    elif state in {"output-available", "result"}:
        yield Result(text=text_of(part.get("output", part.get("result"))), call_id=call_id)


VERCEL: Final = FileFormat(
    name="AI SDK messages (Vercel)",
    example="ai-sdk-messages.json",
    source="vercel/ai, `ui-messages.ts` and `content-part.ts`",
    how=(
        "`JSON.stringify(messages)` with those of `useChat`, or of `response.messages` in `onFinish`, or "
        "`JSON.stringify(await generateText(…))`"
    ),
    recognizes=is_vercel,
    read=read_vercel,
)
