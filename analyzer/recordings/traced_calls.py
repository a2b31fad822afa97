"""A traced function's call in OpenInference's terms: what readers of Weave and of Datadog share. Pure.

Such tools record what went in and what came out, in the shapes of the model SDKs; a model's messages are
written as OpenTelemetry's, which that dialect reads too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from analyzer.recordings.file_format import json_text
from semconv import attributes as names
from semconv.dialects.conventions.openinference import INPUT_VALUE, TOOL_NAME
from semconv.dialects.conventions.openinference_agents import AGENT_NAME
from semconv.dialects.conventions.openinference_tools import OUTPUT_VALUE
from semconv.dialects.reading.action import Message
from semconv.dialects.reading.observations import input_messages_in, output_messages_in
from semconv.model import AttributeValue
from semconv.record import record

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
    return json.dumps(told, ensure_ascii=False) if told else ""


def _parts(one: Message) -> Iterator[dict[str, Any]]:
    if one.role == "tool":
        answered = one.answers[0] if one.answers else ""
        yield {"type": "tool_call_response", "id": answered, "response": one.text}
    elif one.text:
        yield {"type": "text", "content": one.text}
    for call in one.calls:
        yield {"type": "tool_call", "id": call.call_id, "name": call.name, "arguments": call.arguments}
    if one.results:
        yield {"type": "tool_call_response", "id": "".join(one.answers[:1]), "response": one.results}
