"""Where OpenInference's instrumentations put the agent's name: somewhere else in each.

Looked up in the order of trustworthiness: an attribute that says so, langgraph's
metadata, smolagents' managed agents, and last the span's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Final

from semconv.attributes import GEN_AI_AGENT_NAME, OPENINFERENCE_SPAN_KIND
from semconv.dialects.action import ActionKind
from semconv.dialects.function_names import function_agent
from semconv.dialects.langgraph import LANGGRAPH_NODE, NOBODY, Found, graph_agent
from semconv.dialects.openinference_claude import spawned
from semconv.dialects.openinference_dspy import module_around
from semconv.dialects.openinference_llama_index import workflow_agent
from semconv.dialects.payloads import asked
from semconv.dialects.reading import below, mapping, text
from semconv.dialects.surroundings import Surroundings
from semconv.model import AgentSource, Span

AGENT_NAME: Final = "agent.name"
PYDANTIC_AGENT_NAME: Final = "agent_name"
GRAPH_NODE_ID: Final = "graph.node.id"
METADATA: Final = "metadata"
MANAGED_AGENTS: Final = "smolagents.managed_agents"
VERCEL_OPERATION: Final = "ai.operationId"
VERCEL_FUNCTION: Final = "ai.telemetry.functionId"
INPUT_VALUE: Final = "input.value"

_PROMPT: Final = "llm.input_messages."
_OPENAI_AGENTS: Final = "openinference.instrumentation.openai_agents"
_AG2: Final = "openinference.instrumentation.ag2"
_LANGCHAIN: Final = "openinference.instrumentation.langchain"
_IN_SPAN_NAME: Final = re.compile(
    r"^(?:(?:invoke_agent|agent_run|agent)[ :]+\[?(?P<after>[^\]]+?)\]?"
    r"|(?P<before>.+?)(?:\.(?:a?run|run_stream|a?invoke|on_messages|on_messages_stream|kickoff|query)| run))$"
)
_SMOLAGENTS: Final = "openinference.instrumentation.smolagents"
_TOLD_NAME: Final = re.compile(r"You're a helpful agent named '(?P<name>[^']+)'")
"""In smolagents' prompt to a managed agent."""
_LEAVES: Final = frozenset({ActionKind.LLM, ActionKind.TOOL})
_MAX_ANCESTORS: Final = 16
"""How far up a manager is looked for; smolagents puts one step between."""
_MACHINE_MADE: Final = re.compile(r"^(?:[0-9a-f]{12,}|[0-9a-f-]{36}|\d+)$", re.IGNORECASE)


def agent_name(span: Span, kind: ActionKind, surroundings: Surroundings) -> Found:
    """Return whose span this is, as far as the span itself says."""
    if kind is ActionKind.TOOL and span.scope.name == _AG2:
        return NOBODY  # who runs tools for others; the call tells who asked
    said = text(span.attributes, AGENT_NAME, GEN_AI_AGENT_NAME, PYDANTIC_AGENT_NAME)
    if said is None and VERCEL_OPERATION in span.attributes:
        return Found(text(span.attributes, VERCEL_FUNCTION))  # the span's name is the operation's
    said = spawned(span, surroundings).name or said
    return Found(said) if said is not None else _named_elsewhere(span, kind, surroundings)


def _named_elsewhere(span: Span, kind: ActionKind, surroundings: Surroundings) -> Found:
    """Return whose span this is where no attribute is there to say it."""
    node = text(span.attributes, GRAPH_NODE_ID)
    if kind is ActionKind.AGENT and node is not None and not _MACHINE_MADE.match(node):
        return Found(node)
    graph = graph_agent(span, surroundings, _metadata)
    stepping = graph.name or workflow_agent(span, surroundings)
    if stepping is None and kind in _LEAVES:
        stepping = module_around(span, surroundings)
    if stepping is not None:
        return Found(stepping, AgentSource.METADATA if graph.name is None else graph.source)
    if kind in _LEAVES and span.scope.name == _LANGCHAIN:
        return _function_around(span, surroundings)
    if kind is not ActionKind.AGENT or span.scope.name == _OPENAI_AGENTS:
        is_smolagents = kind is ActionKind.LLM and span.scope.name == _SMOLAGENTS
        return Found(_told_in_prompt(span, surroundings) if is_smolagents else None, AgentSource.METADATA)
    managed = _managed_agent(span, surroundings)
    if managed is not None:
        return Found(managed, AgentSource.METADATA)
    named = _IN_SPAN_NAME.match(span.name)
    return Found((named["after"] or named["before"]) if named else span.name, AgentSource.SPAN_NAME)


def _function_around(span: Span, surroundings: Surroundings) -> Found:
    """Return the function of a chain that langchain's call stands in; a graph's nodes tell by themselves."""
    if LANGGRAPH_NODE in _metadata(span):
        return NOBODY
    return function_agent(span, surroundings, is_traced=_is_langchains, is_agent=_is_agents)


def _is_langchains(span: Span) -> bool:
    return span.scope.name == _LANGCHAIN


def _is_agents(span: Span) -> bool:
    return span.attributes.get(OPENINFERENCE_SPAN_KIND) == "AGENT"


def _metadata(span: Span) -> Mapping[str, object]:
    return mapping(span.attributes.get(METADATA))


def _told_in_prompt(span: Span, surroundings: Surroundings) -> str | None:
    """Return the name that a managed agent is told, where its own span is not there.

    The span of a managed agent that fails is never ended, so it is never sent (0.1.43).
    """
    above = islice(surroundings.ancestors(span), _MAX_ANCESTORS)
    if any(map(_is_agents, above)):
        return None
    prompts = (value for key, value in span.attributes.items() if key.startswith(_PROMPT))
    told = (_TOLD_NAME.search(value) for value in prompts if isinstance(value, str))
    return next((found["name"] for found in told if found), None)


def _managed_agent(span: Span, surroundings: Surroundings) -> str | None:
    """Return the name under which a smolagents manager knows the agent of ``span``.

    Older versions name the span after the agent's class (``ToolCallingAgent.run``). The manager
    lists the names of its agents, and its prompt tells each agent its own.
    """
    for above in islice(surroundings.ancestors(span), _MAX_ANCESTORS):
        managed = below(above.attributes, MANAGED_AGENTS)
        if managed:
            names = [name for fields in managed.values() if (name := text(fields, "name"))]
            given = asked(span.attributes.get(INPUT_VALUE))
            told = [name for name in names if f"'{name}'" in given]
            return told[0] if len(told) == 1 else (names[0] if len(names) == 1 else None)
    return None
