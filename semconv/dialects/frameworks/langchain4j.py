"""LangChain4j (Java), as Quarkus writes it: AI services and tools, known by the span's name.

Source: quarkiverse/quarkus-langchain4j, ``AiServicesProcessor``, ``runtime/tool/ToolSpanWrapper.java``,
``runtime/listeners/SpanChatModelListener.java`` and ``PromptTextSpanContributor.java``. An AI service is the
user's interface, so its name is the agent's; its span and older versions' tools have no attributes. Since
1.10 model calls name no operation; older ones are left to the ``gen_ai`` dialect. A failure only records its
exception: the span's status stays unset.
"""

from __future__ import annotations

from typing import Final

from semconv.attributes import GEN_AI_OPERATION_NAME, GEN_AI_REQUEST_MODEL
from semconv.dialects.conventions.otel_genai import read_operation
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.values import EXCEPTION_EVENT, error_of, text
from semconv.model import AgentSource, Span
from semconv.record import replace

NAME: Final = "langchain4j"

_SERVICE: Final = "langchain4j.aiservices."
_PROMPT: Final = "gen_ai.prompt"
_COMPLETION: Final = "gen_ai.completion"
_CALL: Final = "completion "
_TOOLS: Final = ("langchain4j.tools.", "langchain4j.mcp-tools.")


def read_langchain4j(span: Span, _: Surroundings) -> Action | None:
    """Read a span with one of the names that Quarkus gives."""
    if span.name.startswith(_SERVICE):
        service = span.name.removeprefix(_SERVICE).rpartition(".")[0].rpartition("$")[2]
        action = _with_failure(read_operation(span, ActionKind.AGENT, NAME), span)
        return replace(action, agent=service or None, agent_source=AgentSource.SPAN_NAME)
    if span.name.startswith(_TOOLS):
        tool = next(span.name.removeprefix(each) for each in _TOOLS if span.name.startswith(each))
        return _with_failure(replace(read_operation(span, ActionKind.TOOL, NAME), tool=tool), span)
    if _is_call(span):
        action = _with_failure(read_operation(span, ActionKind.LLM, NAME), span)
        prompt, completion = text(span.attributes, _PROMPT), text(span.attributes, _COMPLETION)
        return replace(action, input=prompt or action.input, output=completion or action.output)
    return None


def _is_call(span: Span) -> bool:
    """Return whether it is a model call of the Quarkus extension, which names no operation."""
    found = span.attributes
    return (
        span.name.startswith(_CALL) and GEN_AI_REQUEST_MODEL in found and GEN_AI_OPERATION_NAME not in found
    )


def _with_failure(action: Action, span: Span) -> Action:
    if action.failed or not any(event.name == EXCEPTION_EVENT for event in span.events):
        return action
    return replace(action, failed=True, error=error_of(span))


LANGCHAIN4J: Final = Dialect(name=NAME, read=read_langchain4j, scopes=("io.quarkus.opentelemetry",))
