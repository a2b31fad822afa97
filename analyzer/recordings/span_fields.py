"""Fields of spans in JSON, as exports of tracing tools write them: attributes, events, status, kind. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from analyzer.recordings.fields import json_text, nanoseconds, to_json
from semconv import attributes as names
from semconv.dialects.conventions.openinference import INPUT_VALUE, TOOL_NAME
from semconv.dialects.conventions.openinference_agents import AGENT_NAME, OUTPUT_VALUE
from semconv.dialects.reading.action import Message
from semconv.dialects.reading.observations import input_messages_in, output_messages_in
from semconv.dialects.reading.values import EXCEPTION_EVENT, EXCEPTION_MESSAGE, EXCEPTION_TYPE, structured
from semconv.model import Attributes, AttributeValue, Event, SpanStatus
from semconv.record import record

_KINDS: Final = {"INTERNAL": 1, "SERVER": 2, "CLIENT": 3, "PRODUCER": 4, "CONSUMER": 5}
_STATUSES: Final = {"UNSET": SpanStatus.UNSET, "OK": SpanStatus.OK, "ERROR": SpanStatus.ERROR}
_CODES: Final = (SpanStatus.UNSET, SpanStatus.OK, SpanStatus.ERROR)
_SCALARS: Final = (str, bool, int, float)
_WORD: Final = re.compile(r"[A-Z]+\Z")


def attributes_of(fields: object) -> dict[str, AttributeValue]:
    """Return attributes; objects and lists of them as JSON text, which dialects read. Nulls are left out.

    Args:
        fields: an object, its JSON text, or nothing.

    Raises:
        TypeError: it is something else.
    """
    fields = structured(fields)
    if fields is None or fields == "":
        return {}
    if not isinstance(fields, dict):
        raise TypeError(f"attributes that are no object: {type(fields).__name__}")
    return {str(name): attribute_of(value) for name, value in fields.items() if value is not None}


def attribute_of(value: object) -> AttributeValue:
    """Return a value of JSON as an attribute's value."""
    if isinstance(value, _SCALARS) or value is None:
        return value
    if isinstance(value, list) and all(isinstance(each, _SCALARS) for each in value):
        return tuple(value)
    return json_text(value)


def events_of(items: object, time: str = "timestamp") -> tuple[Event, ...]:
    """Return a span's events.

    Args:
        items: a list of objects with ``name`` and ``attributes``, its JSON text, or nothing.
        time: the field with an event's time.

    Raises:
        TypeError: it is something else.
    """
    items = structured(items)
    if items is None or items == "":
        return ()
    if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
        raise TypeError("events that are no list of objects")
    return tuple(
        Event(
            name=json_text(each.get("name")),
            time_ns=nanoseconds(each.get(time)),
            attributes=attributes_of(each.get("attributes")),
        )
        for each in items
    )


def exception_event(kind: str, message: str, time_ns: int = 0, **more: str) -> Event:
    """Return the event by which OpenTelemetry records an exception.

    Args:
        kind: the class's name; may be empty.
        message: the exception's text.
        time_ns: the moment, in ns since the epoch.
        more: further attributes below ``exception.``, such as its ``stacktrace``.
    """
    known: Attributes = {
        **({EXCEPTION_TYPE: kind} if kind else {}),
        EXCEPTION_MESSAGE: message,
        **{f"{EXCEPTION_EVENT}.{name}": text for name, text in more.items() if text},
    }
    return Event(name=EXCEPTION_EVENT, time_ns=time_ns, attributes=known)


def status_of(code: object) -> SpanStatus:
    """Return a status by its number or its name: "Error", "StatusCode.ERROR", "STATUS_CODE_ERROR"."""
    if isinstance(code, int) and not isinstance(code, bool):
        return _CODES[code] if code in range(len(_CODES)) else SpanStatus.UNSET
    return _STATUSES.get(_last_word(code), SpanStatus.UNSET)


def kind_of(name: object) -> int:
    """Return a span kind's number in OTLP; any other word is ``INTERNAL``."""
    if isinstance(name, int) and not isinstance(name, bool) and name in _KINDS.values():
        return name
    return _KINDS.get(_last_word(name), 1)


def _last_word(text: object) -> str:
    found = _WORD.search(str(text).strip().upper())
    return found[0] if found else ""


def annotation(prefix: str, number: int, **fields: Any) -> dict[str, AttributeValue]:
    """Return an evaluation or a person's judgement as OpenInference's attributes.

    Args:
        prefix: "annotations" for a span's, "trace.annotations" for a run's.
        number: its position among those of the span, from 0.
        fields: ``name``, ``label``, ``score``, ``annotator_kind`` (HUMAN, LLM, CODE); empty ones are omitted.
    """
    return {
        f"{prefix}.{number}.annotation.{name}": attribute_of(value)
        for name, value in fields.items()
        if value is not None and value != ""
    }


# --- traced calls ---
#
# A traced function's call in OpenInference's terms: what readers of Weave and of Datadog share.
#
# Such tools record what went in and what came out, in the shapes of the model SDKs; a model's messages are
# written as OpenTelemetry's, which that dialect reads too.


AGENT: Final = "AGENT"
MODEL: Final = "LLM"
TOOL: Final = "TOOL"
FUNCTION: Final = "CHAIN"
"""Any function around calls; which of them are agents is told by what they call."""


@record
class TracedCall:
    """What one call is known by."""

    kind: str
    """An ``openinference.span.kind``."""
    name: str
    given: Any = None
    """Its input as JSON has it."""
    got: Any = None
    model: str = ""
    tokens: tuple[Any, Any] = (None, None)
    """Input and output tokens."""
    session: str = ""


def attributes_of_call(call: TracedCall) -> dict[str, AttributeValue]:
    """Return a call's attributes; what is absent is left out."""
    found: dict[str, AttributeValue] = {
        names.OPENINFERENCE_SPAN_KIND: call.kind,
        INPUT_VALUE: json_text(call.given),
        OUTPUT_VALUE: json_text(call.got),
        names.SESSION_ID: call.session,
        AGENT_NAME: call.name if call.kind == AGENT else None,
        TOOL_NAME: call.name if call.kind == TOOL else None,
    }
    if call.kind == MODEL:
        read, written = call.tokens
        found |= {
            names.GEN_AI_INPUT_MESSAGES: _encoded(input_messages_in(call.given)),
            names.GEN_AI_OUTPUT_MESSAGES: _encoded(output_messages_in(call.got)),
            names.GEN_AI_REQUEST_MODEL: call.model,
            names.GEN_AI_USAGE_INPUT_TOKENS: read if isinstance(read, int) else None,
            names.GEN_AI_USAGE_OUTPUT_TOKENS: written if isinstance(written, int) else None,
        }
    return {name: value for name, value in found.items() if value is not None and value != ""}


def _encoded(messages: Iterable[Message]) -> str:
    told = [{"role": one.role, "name": one.name, "parts": list(_parts(one))} for one in messages]
    return to_json(told) if told else ""


def _parts(message: Message) -> Iterator[dict[str, Any]]:
    if message.role == "tool":
        answered = message.answers[0] if message.answers else ""
        yield {"type": "tool_call_response", "id": answered, "response": message.text}
    elif message.text:
        yield {"type": "text", "content": message.text}
    for call in message.calls:
        yield {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": call.arguments}
    if message.results:
        yield {"type": "tool_call_response", "id": "".join(message.answers[:1]), "response": message.results}
