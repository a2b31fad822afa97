"""Reader of Gemini's contents and of ADK's sessions, whose events hold such contents. Pure.

Contents stand in a list, one a line, or under ``contents`` beside ``systemInstruction``; answers under
``candidates``. ADK's session holds ``events``; each has an ``author``, an agent's name or ``user``. Its sets
of evaluations hold cases of turns. Keys are in camel or snake case. A function's response has ``error`` if it
failed, as the API's reference asks for.
Source: Gemini API reference, ``Content`` and ``FunctionResponse``; google-adk 2.13, ``events/event.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from analyzer.recordings.dialogue import Message, Speaker, dialogues_spans
from analyzer.recordings.fields import dialogues_in, json_text, nanoseconds, objects, text_at
from analyzer.recordings.message_parts import (
    Part,
    Result,
    call_of,
    continued,
    ended,
    finish_of,
    is_failed,
    listed,
    messages_in,
    text_of,
    turn,
)
from analyzer.recordings.recording import FileFormat, Records, Spans
from semconv.record import replace

_ROLES: Final = frozenset({"user", "model", "function", "tool", "system"})
_EVENT_KEYS: Final = ("invocationId", "invocation_id", "actions")
_LISTS: Final = ("contents", "history")
_RESULTS: Final = ("output", "result")
"""Keys of a response that hold the function's output alone."""


def _at(found: Any, camel: str) -> Any:
    """Return a value by its key in camel or snake case; ``None`` without one."""
    if not isinstance(found, dict):
        return None
    return found[camel] if camel in found else found.get(_snake(camel))


@cache
def _snake(camel: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in camel)


def is_gemini(records: Records) -> bool:
    """Tell whether records are contents, documents that hold some, or answers."""
    return (_are_contents(records) and _has_answer(records)) or all(map(_is_document, records))


def _is_document(one: Any) -> bool:
    held = [*_asked(one), *_answers(one)] if isinstance(one, dict) else []
    return _are_contents(held) and (_has_answer(held) or is_failed(one))


def _are_contents(found: Sequence[Any]) -> bool:
    return bool(found) and all(
        _is_content(one) and (text_at(one, "role") or "user") in _ROLES for one in found
    )


def _has_answer(found: Sequence[Any]) -> bool:
    return any(one.get("role") == "model" for one in found)


def _is_content(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("parts"), list)
        and all(
            isinstance(part, dict) and "type" not in part and "part_kind" not in part for part in one["parts"]
        )
    )


def _asked(document: Mapping[str, Any]) -> list[Any]:
    return next((document[key] for key in _LISTS if isinstance(document.get(key), list)), [])


def _answers(document: Mapping[str, Any]) -> list[Any]:
    """Return the answer that stands beside a request, with the reason if it was cut off."""
    found = objects(document.get("candidates"))[:1]
    return [ended(one["content"], _at(one, "finishReason")) for one in found if "content" in one]


def read_gemini(records: Records) -> Spans:
    """Read one dialogue, or one for each document."""
    documents = [{"contents": [*records]}] if _are_contents(records) else records
    dialogues = continued(documents, _asked, _answers)
    return dialogues_spans((_dialogue(one, found) for one, found in dialogues), name="gemini")


def _dialogue(document: Mapping[str, Any], found: Sequence[Any]) -> Iterator[Message]:
    config = _at(document, "config") or _at(document, "generationConfig")
    given = _at(document, "systemInstruction") or _at(config, "systemInstruction")
    if given:
        yield Message(
            speaker=Speaker.SYSTEM, text=text_of(given.get("parts") if isinstance(given, dict) else given)
        )
    yield from messages_in(found, _of_content)


def _of_content(one: Mapping[str, Any]) -> Iterator[Message]:
    speaker = Speaker.AGENT if one.get("role") == "model" else Speaker.USER
    yield from messages_of_content(Message(speaker=speaker, finish=finish_of(one.get("finish_reason"))), one)


def messages_of_content(template: Message, content: Mapping[str, Any]) -> Iterator[Message]:
    """Yield what a content says, calls and returns."""
    yield from turn(template, map(_part, listed(content["parts"])), joint="")


def _part(part: Mapping[str, Any]) -> Part:
    asked, answered = _at(part, "functionCall"), _at(part, "functionResponse")
    if asked is not None:
        return call_of(asked.get("name"), asked.get("args"), asked.get("id"))
    if answered is not None:
        return _answered(answered)
    code, result = _at(part, "executableCode"), _at(part, "codeExecutionResult")
    if code is not None:
        return call_of("code_execution", code.get("code"), code.get("id"))
    if result is not None:
        failed = json_text(result.get("outcome")) not in {"OUTCOME_OK", ""}
        return Result(text=json_text(result.get("output")), tool="code_execution", failed=failed)
    if part.get("thought") is True:
        return ""
    return json_text(part["text"]) if isinstance(part.get("text"), str) else text_of([part])


def _answered(answered: Mapping[str, Any]) -> Result:
    given = answered.get("response")
    error = given.get("error") if isinstance(given, dict) else None
    only = (
        next((given[key] for key in _RESULTS if given.keys() == {key}), given)
        if isinstance(given, dict)
        else given
    )
    return Result(
        text=json_text(error or only),
        call_id=json_text(answered.get("id")),
        tool=json_text(answered.get("name")),
        failed=bool(error),
    )


def is_adk(records: Records) -> bool:
    """Tell whether records are sessions, or the events of one."""
    return bool(dialogues_in(_cases(records), _are_events, _events))


def _events(document: Any) -> list[Any]:
    details = _at(document, "sessionDetails")  # of a case that ran
    session = document.get("session", details or document) if isinstance(document, dict) else None
    found = _at(session, "events") or _at(session, "sessionEvents")
    return found if isinstance(found, list) else _of_case(session)


def _of_case(case: Any) -> list[Any]:
    """Return the events of a case of an evaluation, of which each turn holds question, calls and answer."""
    found: list[Any] = []
    for each in objects(_at(case, "conversation")):
        held = _at(each, "intermediateData")
        calls = [{"functionCall": one} for one in objects(_at(held, "toolUses"))]
        results = [{"functionResponse": one} for one in objects(_at(held, "toolResponses"))]
        between = objects(_at(held, "invocationEvents")) or [
            {"author": _AGENT, "content": {"parts": parts}} for parts in (calls, results) if parts
        ]
        author = text_at(between[-1], "author") if between else _AGENT
        found.append({"author": "user", "content": _at(each, "userContent")})
        found += [{"author": _AGENT, **one} for one in between]
        found.append({"author": author, "content": _at(each, "finalResponse")})
    return [{**one, "actions": {}} for one in found]


_AGENT: Final = "agent"
"""The author of events in cases that record none."""


def _cases(records: Records) -> Records:
    """Return the cases of sets of evaluations or their results; other records unchanged."""
    sets = [_at(record, "evalCases") or _at(record, "evalCaseResults") for record in records]
    return [case for one in sets for case in one] if all(isinstance(one, list) for one in sets) else records


def _are_events(found: Sequence[Any]) -> bool:
    return (
        bool(found)
        and all(
            isinstance(one, dict)
            and isinstance(one.get("author"), str)
            and any(key in one for key in _EVENT_KEYS)
            for one in found
        )
        and any(_is_content(one.get("content")) for one in found)
    )


def read_adk(records: Records) -> Spans:
    """Read one run for each session."""
    sessions = dialogues_in(_cases(records), _are_events, _events)
    return dialogues_spans((messages_in(events, _of_event) for events in sessions), name="adk")


def _of_event(event: Mapping[str, Any]) -> Iterator[Message]:
    """Yield an event's messages; chunks of a streamed answer are left out, the whole follows them."""
    author, content = event["author"], event.get("content")
    template = Message(
        speaker=Speaker.USER if author == "user" else Speaker.AGENT,
        agent="" if author == "user" else author,
        time_ns=nanoseconds(event.get("timestamp")),
        model=json_text(_at(event, "modelVersion")),
        finish=finish_of(_at(event, "finishReason")),
    )
    error = _at(event, "errorMessage") or _at(event, "errorCode")
    if error and author != "user":
        yield replace(template, text=json_text(error), failed=True)
    elif isinstance(content, dict) and content.get("parts") and event.get("partial") is not True:
        yield from messages_of_content(template, content)


GEMINI: Final = FileFormat(
    name="Gemini contents",
    example="gemini-contents.json",
    source="Gemini API reference, `Content`",
    how='`json.dumps([each.model_dump(mode="json") for each in chat.get_history()])`',
    recognizes=is_gemini,
    read=read_gemini,
)
ADK: Final = FileFormat(
    name="ADK sessions and evaluation sets",
    example="adk-session.json",
    source="google-adk, `events/event.py` and `sessions/session.py`",
    how="`(await session_service.get_session(…)).model_dump_json()`, or `NAME.evalset.json`",
    recognizes=is_adk,
    read=read_adk,
)
