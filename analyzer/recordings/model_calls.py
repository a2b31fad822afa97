"""Calls of a model API as proxies, batches and streams record them, each as one document. Pure.

A log of calls has the request and the response under keys of their own, often as text. A document holds the
keys of both, as the readers of messages know them, and ``error`` if the call failed.
Source: LiteLLM's logging payload, OpenAI's batches, HAR 1.2, VCR's cassettes (2026).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from analyzer.inquiry.errors import UnreadableInput
from analyzer.recordings.fields import Object, json_text, object_at, text_at
from analyzer.recordings.file_text import split_events, split_parts
from analyzer.recordings.message_parts import error_text
from analyzer.recordings.recording import DEFECTS, Records
from analyzer.recordings.streamed_answers import answers_of, is_event
from semconv.json_text import read_json

_REQUESTS: Final = ("request", "request_body", "requestBody", "body", "input")
_RESPONSES: Final = ("response", "response_body", "responseBody", "body", "output", "result")
_INNER: Final = (
    "body",
    "postData",
    "content",
    "text",
    "string",
    "json",
    "inputBodyJson",
    "outputBodyJson",
    "message",
)
"""Keys below which a log keeps the body of a request or a response."""
_ASKED: Final = ("messages", "input", "contents")
"""Keys of a request that hold what the model is given."""
_ERRORS: Final = ("error", "exception", "error_str", "error_message", "errorMessage")
_STATUSES: Final = ("status", "status_code", "statusCode")
_FAILED: Final = frozenset({"failure", "failed", "error"})
_MARKS: Final = frozenset({*_REQUESTS, *_RESPONSES, *_ERRORS, "status"})
_LOGGED: Final = frozenset({"inputBodyJson", "outputBodyJson"})
"""Keys of a body in Bedrock's log of invocations."""
_HTTP: Final = frozenset({"url", "uri", "method"})
"""Keys of a request as HAR and VCR keep it."""
_NO_ITEMS: Final[Object] = {"object": "response", "output": []}
"""A call of the Responses API that answered nothing."""
_DEEPEST: Final = 4


def whole_calls(records: Records) -> Records:
    """Return records with the events of each stream joined, and each call of a log as one document.

    Records of other kinds are returned as they are.

    Raises:
        UnreadableInput: a value has a type that no API has.
    """
    try:
        return _whole_calls(records)
    except DEFECTS as error:
        raise UnreadableInput(f"calls of a model API that cannot be read: {error!r}") from error


def _whole_calls(records: Records) -> Records:
    joined = answers_of(records) if records and is_event(records[0]) else None
    if joined is not None:
        return joined
    if not records or not isinstance(records[0], dict) or _MARKS.isdisjoint(records[0]):
        return records
    found = [_document(record) if isinstance(record, dict) else None for record in records]
    if not any(found):
        return records
    pairs = zip(found, records, strict=True)
    return [call or _unasked_failure(one) or one for call, one in pairs if not _is_other_request(one, call)]


def _is_other_request(one: Any, call: Object | None) -> bool:
    """Tell whether an HTTP request asked no model: a browser's HAR has pages, lists of models, embeddings."""
    if _HTTP.isdisjoint(object_at(one, "request")):
        return False
    return call is None or _body(one.get("response"), _is_list) is not None


def _is_list(body: Object) -> bool:
    return body.get("object") == "list" and isinstance(body.get("data"), list)


def _document(one: Object) -> Object | None:
    """Return a call as one document; ``None`` if the record is no call, or is one already."""
    if _is_answer(one):
        return None
    one = _with_lists(one)
    asked = next((found for key in _REQUESTS if (found := _body(one.get(key), _is_request))), None)
    request = one if asked is None and _is_request(one) else asked
    answer = next((found for key in _RESPONSES if (found := _body(one.get(key), _is_answer))), None)
    if request is None:
        return answer
    error = "" if answer else _failure(one)
    if answer is None and asked is None and not error:
        return None
    if error:
        return {**request, **(_NO_ITEMS if "input" in request else {}), "error": error}
    return {**request, **(answer or {})}


def _with_lists(one: Object) -> Object:
    """Return a record with the messages that a table keeps as text."""
    texts = {key: one[key] for key in _ASKED if text_at(one, key).startswith("[{")}
    return {**one, **{key: _read(text) for key, text in texts.items()}} if texts else one


def _unasked_failure(one: Any) -> Object | None:
    """Return a call that failed and whose request a batch does not repeat, beside others that succeeded."""
    is_call = isinstance(one, dict) and any(isinstance(one.get(key), dict) for key in _RESPONSES)
    error = _failure(one) if is_call else ""
    return {"messages": [], "error": error} if error else None


def _is_request(body: Object) -> bool:
    return any(isinstance(body.get(key), list) for key in _ASKED) or (
        isinstance(body.get("input"), str) and "model" in body
    )


def _is_answer(body: Object) -> bool:
    return (
        any(isinstance(body.get(key), list) and body[key] for key in ("choices", "candidates"))
        or (isinstance(body.get("output"), list) and body.get("object") == "response")
        or (isinstance(body.get("content"), list) and body.get("role") == "assistant")
        or isinstance(object_at(body, "output").get("message"), dict)
    )


def _body(held: Any, is_body: Callable[[Object], bool]) -> Object | None:
    """Return the body of a request or response: itself, below another key, as text, or as a stream."""
    for _ in range(_DEEPEST):
        if isinstance(held, str):
            held = _read(held)
        held = [held] if is_event(held) else held
        if isinstance(held, list):
            answers = answers_of(held) if held and is_event(held[0]) else None
            held = answers[-1] if answers else None
        if not isinstance(held, dict):
            return None
        if is_body(held):
            return held
        held = next((held[key] for key in _INNER if held.get(key)), None)
    return None


def _read(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return _events(text) or _lines(text)


def _events(text: str) -> list[Any]:
    try:
        return split_parts(text)[0] or split_events(text)[0]
    except UnreadableInput:  # the other calls of the log can be read
        return []


def _lines(text: str) -> list[Any]:
    try:
        return [read_json(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return []


def _failure(one: Object) -> str:
    """Return the error of a call that has no answer; empty if none is recorded."""
    response: Object = next((one[key] for key in _RESPONSES if isinstance(one.get(key), dict)), {})
    answers = (_body(one.get(key), _has_error) for key in _RESPONSES)
    holders = (one, object_at(one, "error_information"), *filter(None, answers))
    said = (error_text(holder[key]) for holder in holders for key in _ERRORS if key in holder)
    if text := next(filter(None, said), ""):
        return text
    holders = (one, response) if any(key in one for key in _RESPONSES) else ()
    codes = (holder.get(key) for holder in holders for key in _STATUSES)
    code = next(filter(_is_failure, codes), None)
    return "" if code is None else f"status {json_text(code)}"


def _has_error(body: Object) -> bool:
    return any(key in body for key in _ERRORS)


def _is_failure(status: Any) -> bool:
    if isinstance(status, str) and not status.isdecimal():
        return status.lower() in _FAILED
    return isinstance(status, int | str) and not isinstance(status, bool) and 400 <= int(status) < 600
