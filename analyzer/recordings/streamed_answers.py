"""Streamed answers of model APIs: their events joined to the answer of a call without a stream. Pure.

Events of several answers may follow one another, and chunks of chat completions may be mixed. An error in the
stream is the answer's ``error``.
Source: the streaming references of OpenAI (chat completions, responses), Anthropic, Ollama, Amazon Bedrock
(ConverseStream) and the AI SDK (UI message stream) (2026).
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from analyzer.recordings.fields import Object, json_text, object_at, objects, sessions_of, text_at
from analyzer.recordings.message_parts import error_text, text_of
from analyzer.recordings.recording import Records
from semconv.json_text import read_json


def is_event(one: Any) -> bool:
    """Tell whether a record is an event of a stream."""
    if not isinstance(one, dict):
        return False
    if one.get("object") == "chat.completion.chunk":
        return True
    if (sent := _as_sent(one)) is not one:
        return is_event(sent)
    kind = text_at(one, "type")
    return (
        kind in _OF_ANTHROPIC | _OF_PAGES
        or _is_of_converse(one)
        or (kind.startswith("response.") and len(one) > 1)
        or (isinstance(one.get("done"), bool) and isinstance(one.get("message"), dict))
    )


def _is_error(one: Any) -> bool:
    return isinstance(one, dict) and ("error" in one or one.get("type") == "error")


def answers_of(records: Records) -> list[Any] | None:
    """Return the answers that the events of streams make up; ``None`` if not all records are events."""
    if not all(is_event(record) or _is_error(record) for record in records):
        return None
    events = list(map(_as_sent, records))
    join = _join_of(events)
    return join(events) if join else None


def _join_of(records: Records) -> Callable[[Records], list[Any]] | None:
    first, kind = records[0], text_at(records[0], "type")
    if kind in _OF_PAGES:
        return None if _SAID_ON_PAGES.isdisjoint(text_at(record, "type") for record in records) else _of_pages
    if first.get("object") == "chat.completion.chunk":
        return join_chunks
    if "done" in first:
        return _of_ollama
    if kind.startswith("response."):
        return join_responses
    if _is_of_converse(first):
        return None if all("metadata" in record for record in records) else _of_converse
    return join_blocks


def join_chunks(chunks: Iterable[Object]) -> list[Any]:
    """Join the chunks of chat completions, which may be mixed with those of others."""
    by_id: dict[str, list[Object]] = {}
    key = ""
    for chunk in chunks:
        key = text_at(chunk, "id") or key
        by_id.setdefault(key, []).append(chunk)
    return [answer for parts in by_id.values() for answer in join_completion(parts)]


def join_completion(chunks: Sequence[Object]) -> list[Any]:
    """Join the chunks of one completion, whatever their ids: some gateways give each chunk its own."""
    return [_completion(chunks)] if any(map(_says, chunks)) else []


def _says(chunk: Object) -> bool:
    """Tell whether it is a part of an answer; Azure begins with what its filters found in the prompt."""
    return bool(chunk.get("choices")) or "error" in chunk


def _completion(chunks: Sequence[Object]) -> Object:
    samples = [each for chunk in chunks for each in objects(chunk.get("choices"))]
    choices = [one for one in samples if not one.get("index")]
    deltas = [object_at(one, "delta") for one in choices]
    calls: dict[Any, dict[str, Any]] = {}
    for asked in (each for delta in deltas for each in _asked(delta)):
        custom = object_at(asked, "custom")
        function = {**custom, "arguments": custom.get("input")} if custom else object_at(asked, "function")
        place = asked.get("index")
        if place is None:  # what has neither an id nor a name goes on with the last call
            is_next = not calls or asked.get("id") or function.get("name")
            place = len(calls) if is_next else [*calls][-1]
        call = calls.setdefault(place, {"id": "", "name": [], "arguments": []})
        call["id"] = call["id"] or json_text(asked.get("id"))
        call["name"].append(json_text(function.get("name")))
        call["arguments"].append(json_text(function.get("arguments")))
    message: dict[str, Any] = {"role": "assistant"}
    message |= {key: "".join(text_of(delta.get(key)) for delta in deltas) for key in ("content", "refusal")}
    if calls:
        message["tool_calls"] = [
            {"id": one["id"], "function": {key: "".join(one[key]) for key in ("name", "arguments")}}
            for one in calls.values()
        ]
    finish = next((one["finish_reason"] for one in reversed(choices) if one.get("finish_reason")), None)
    choice = {"index": 0, "message": message, "finish_reason": finish}
    answer = {"object": "chat.completion", "choices": [choice]}
    kept = ("id", "model", "error", "usage")
    return {**answer, **{key: chunk[key] for chunk in chunks for key in kept if chunk.get(key)}}


def _asked(delta: Object) -> Iterable[Object]:
    """Return the parts of calls in a delta; of an API before tools, its only call."""
    legacy = object_at(delta, "function_call")
    return [{"index": 0, "function": legacy}] if legacy else objects(delta.get("tool_calls"))


def _of_ollama(lines: Iterable[Object]) -> list[Any]:
    found: list[Any] = []
    said: list[Object] = []
    for one in (*lines, {}):
        said += [object_at(one, "message")] if one else []
        if said and (not one or one.get("done")):
            calls = [call for each in said for call in objects(each.get("tool_calls"))]
            content = "".join(text_at(each, "content") for each in said)
            message = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
            found.append({"choices": [{"message": message, "finish_reason": one.get("done_reason")}]})
            said = []
    return found


_OF_ANTHROPIC: Final = frozenset(
    {"message_start", "message_delta", "message_stop", "ping"}
    | {"content_block_start", "content_block_delta", "content_block_stop"}
)
_SAYING: Final = frozenset({"content_block_start", "content_block_delta", "message_delta"})
_DELTAS: Final[Mapping[str, str]] = {"text_delta": "text", "thinking_delta": "thinking"}


def join_blocks(events: Iterable[Object]) -> list[Any]:
    """Join Anthropic's events: a message begins, then its blocks grow by their index.

    A provider that is overloaded sends an error in place of the begin, and some gateways leave begins out.
    """
    found: list[dict[str, Any]] = []
    blocks: dict[Any, dict[str, Any]] = {}
    pieces: dict[Any, list[str]] = {}
    for event in (*events, {"type": "message_start"}):
        kind, index = text_at(event, "type"), event.get("index")
        is_error = _is_error(event)
        if kind == "message_start" or (not found and (is_error or kind in _SAYING)):
            if found:
                found[-1]["content"] = [_block(one, pieces[at]) for at, one in blocks.items()]
            found.append({"stop_reason": None, **object_at(event, "message"), "role": "assistant"})
            blocks, pieces = {}, {}
        if kind == "content_block_start":
            blocks[index], pieces[index] = dict(object_at(event, "content_block")), []
        elif kind == "content_block_delta":
            delta = object_at(event, "delta")
            blocks.setdefault(index, {"type": "text", "text": ""})
            key = _DELTAS.get(text_at(delta, "type"), "partial_json")
            pieces.setdefault(index, []).append(text_at(delta, key))
        elif kind == "message_delta":
            found[-1]["stop_reason"] = (
                object_at(event, "delta").get("stop_reason") or found[-1]["stop_reason"]
            )
            found[-1]["usage"] = {**object_at(found[-1], "usage"), **object_at(event, "usage")}
        elif is_error:
            found[-1]["error"] = error_text(event)
    return found[:-1]


def _block(block: Mapping[str, Any], pieces: Sequence[str]) -> Object:
    key = "input" if "input" in block else "thinking" if "thinking" in block else "text"
    joined = "".join(pieces)
    if key == "input":
        return {**block, "input": joined or block["input"]}
    return {**block, key: text_at(block, key) + joined} if joined else block


def join_responses(events: Iterable[Object]) -> list[Any]:
    """Return the responses that events end with; of one that was cut off, the items that were done."""
    found: dict[str, dict[str, Any]] = {}
    items: list[Any] = []
    key = ""
    for event in events:
        if response := object_at(event, "response"):
            key = text_at(response, "id") or key
            found[key] = {**response, "object": "response", "output": response.get("output") or items}
        kind = text_at(event, "type")
        if kind == "response.created":
            items = found.setdefault(key, {"object": "response"})["output"] = []
        elif kind == "response.output_item.done":
            items.append(event.get("item"))
            found.setdefault(key, {"object": "response", "output": items})
        elif kind == "error":
            found.setdefault(key, {"object": "response", "output": items})["error"] = error_text(event)
    return list(found.values())


# --- Bedrock ---

_OF_CONVERSE: Final = frozenset(
    {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"}
    | {"internalServerException", "modelStreamErrorException", "serviceUnavailableException"}
    | {"throttlingException", "validationException"}
)


_SENT_AS: Final = {
    "start": "contentBlockStart",
    "delta": "contentBlockDelta",
    "contentBlockIndex": "contentBlockStop",
    "role": "messageStart",
    "stopReason": "messageStop",
    "usage": "metadata",
}
"""Events of ConverseStream by a key of what Bedrock sends over HTTP, the most telling first."""


def _as_sent(one: Object) -> Object:
    """Return an event as Bedrock's SDKs give it, if it is the payload that Bedrock sends over HTTP.

    There the event's name is in a header, and ``p`` is padding. ``InvokeModelWithResponseStream`` sends the
    model's own event as base64.
    """
    chunk = object_at(one, "chunk") or one
    if isinstance(encoded := chunk.get("bytes"), str) and chunk.keys() <= _CHUNK:
        return _decoded(encoded) or one
    if not isinstance(one.get("p"), str):
        return one
    name = next((name for key, name in _SENT_AS.items() if key in one), None)
    return one if name is None else {name: {key: value for key, value in one.items() if key != "p"}}


_CHUNK: Final = frozenset({"bytes", "p"})


def _decoded(encoded: str) -> Object | None:
    try:
        found = read_json(b64decode(encoded, validate=True).decode())
    except ValueError:
        return None
    return found if isinstance(found, dict) and not _CHUNK & found.keys() else None


def _is_of_converse(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and len(one) == 1
        and one.keys() <= _OF_CONVERSE
        and all(map(_is_object, one.values()))
    )


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _of_converse(events: Sequence[Object]) -> list[Any]:
    return [_converse_answer(part) for part in sessions_of(events, lambda one: "messageStart" in one)]


def _converse_answer(events: Iterable[Object]) -> Object:
    """Join Bedrock's events, each an object with one key; those of a text have none that begins it."""
    blocks: dict[Any, list[Object]] = {}
    last: dict[str, Any] = {}
    for event in events:
        last |= event
        for key, held in (("contentBlockStart", "start"), ("contentBlockDelta", "delta")):
            if told := object_at(event, key):
                blocks.setdefault(told.get("contentBlockIndex"), []).append(object_at(told, held))
    failed = (error_text({"type": key, **told}) for key, told in last.items() if key.endswith("Exception"))
    error = next(failed, "") or error_text(last.get("error"))
    content = list(map(_converse_block, blocks.values()))
    said = {"output": {"message": {"role": "assistant", "content": content}}} if content or not error else {}
    ended = {"stopReason": object_at(last, "messageStop").get("stopReason")}
    return {**said, **ended, **({"error": error} if error else {})}


def _converse_block(pieces: Sequence[Object]) -> Object:
    calls = [piece["toolUse"] for piece in pieces if _is_object(piece.get("toolUse"))]
    if calls:
        return {"toolUse": {**calls[0], "input": "".join(text_at(call, "input") for call in calls)}}
    if any("reasoningContent" in piece for piece in pieces):
        return {"reasoningContent": {}}
    return {"text": "".join(text_at(piece, "text") for piece in pieces)}


# --- pages made with the AI SDK ---

_SAID_ON_PAGES: Final = frozenset(
    {"text-delta", "tool-input-available", "tool-input-error", "tool-output-available", "tool-output-error"}
)
_OF_PAGES: Final = _SAID_ON_PAGES | {
    *("start", "start-step", "text-start", "text-end", "tool-input-start", "tool-input-delta", "finish-step"),
    *("reasoning-start", "reasoning-delta", "reasoning-end", "source-url", "source-document", "file"),
    *("finish", "abort", "message-metadata", "tool-output-denied", "tool-approval-request"),
}


_OF_TOOLS: Final = ("toolCallId", "toolName", "input", "output", "errorText")


def _of_pages(events: Sequence[Object]) -> list[Any]:
    return [_page_answer(part) for part in sessions_of(events, lambda one: one.get("type") == "start")]


def _page_answer(events: Iterable[Object]) -> Object:
    """Join the events that a page gets to a UI message, whose parts of tools hold call and result."""
    parts: dict[tuple[str, Any], list[Object]] = {}
    finish, error, steps = None, "", 0
    for event in events:
        kind = text_at(event, "type")
        steps += kind == "start-step"
        if kind == "text-delta":  # the ids of texts may begin anew in each step
            parts.setdefault((f"text {steps}", event.get("id")), []).append(event)
        elif kind in _SAID_ON_PAGES:
            parts.setdefault(("tool", event.get("toolCallId")), []).append(event)
        elif kind == "finish":
            finish = event.get("finishReason")
        elif _is_error(event):
            error = text_at(event, "errorText") or error_text(event)
    said = list(map(_page_part, parts.values()))
    message = {"role": "assistant", "parts": said, "finish_reason": finish}
    answer = {"output": {"message": message}} if said or not error else {}
    return {**answer, **({"error": error} if error else {})}


def _page_part(events: Sequence[Object]) -> Object:
    if events[0].get("type") == "text-delta":
        return {"type": "text", "text": "".join(text_at(event, "delta") for event in events)}
    told = {key: event[key] for event in events for key in _OF_TOOLS if key in event}
    state = "output-error" if "errorText" in told else "output-available" if "output" in told else "input"
    return {**told, "type": f"tool-{json_text(told.get('toolName'))}", "state": state}
