"""LangChain4j (Java), as Quarkus writes it: AI services and tools, known by the span's name.

Source: quarkiverse/quarkus-langchain4j, ``AiServicesProcessor``, ``runtime/tool/ToolSpanWrapper.java``,
``runtime/listeners/SpanChatModelListener.java`` and ``PromptTextSpanContributor.java``. An AI service is the
user's interface, so its name is the agent's; its span and older versions' tools have no attributes. Calls are
left to the ``gen_ai`` dialect. A failure only records its exception: the span's status stays unset.
"""

from __future__ import annotations

from typing import Final

from semconv.dialects.conventions.otel_genai import read_operation
from semconv.dialects.reading.action import Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.values import EXCEPTION_EVENT, error_of
from semconv.model import AgentSource, Span
from semconv.record import replace

NAME: Final = "langchain4j"

_SERVICE: Final = "langchain4j.aiservices."
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
    return None


def _with_failure(action: Action, span: Span) -> Action:
    if action.failed or not any(event.name == EXCEPTION_EVENT for event in span.events):
        return action
    return replace(action, failed=True, error=error_of(span))


LANGCHAIN4J: Final = Dialect(name=NAME, read=read_langchain4j)
