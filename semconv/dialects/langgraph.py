"""Whose step it is in a langgraph run, from the metadata that every instrumentation passes on.

langgraph and langchain put into the metadata of each call the agent's name (``lc_agent_name``,
langchain 1), the nodes that enclose it (``langgraph_checkpoint_ns``) and the node itself
(``langgraph_node``). OpenInference and MLflow write it as JSON, LangSmith, Langfuse and Traceloop
as one attribute a key. Nodes of prebuilt agents are parts of an agent, not agents: then the graph's
own name tells, if somebody gave it one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

from semconv.dialects.surroundings import Surroundings
from semconv.model import AgentSource, Span

LANGCHAIN_AGENT: Final = "lc_agent_name"
LANGGRAPH_NODE: Final = "langgraph_node"
LANGGRAPH_NAMESPACE: Final = "langgraph_checkpoint_ns"

PLUMBING_NODES: Final = frozenset(
    {
        *("model", "tools", "agent", "tool", "call_model", "call_tool", "call_tools", "tool_node", "llm"),
        *("chatbot", "__start__", "__end__", "generate_structured_response"),
        *("pre_model_hook", "post_model_hook", "call_agent", "acall_agent"),
    }
)
"""Node names of langgraph's prebuilt agents, supervisors and tutorials: parts of an agent, not agents."""
NAMELESS_GRAPHS: Final = frozenset(
    {"LangGraph", "AgentExecutor", "CompiledStateGraph", "Pregel", "RunnableSequence", "agent", "Agent"}
)
"""What a graph or an agent is called whose author gave it no name."""
_MAX_ANCESTORS: Final = 64

Metadata: TypeAlias = Callable[[Span], Mapping[str, object]]
"""Returns the metadata of langgraph's that a span carries, if any; how depends on the dialect."""


@dataclass(frozen=True, slots=True)
class Found:
    """An agent's name and where it stood."""

    name: str | None
    source: AgentSource = AgentSource.SPAN


NOBODY: Final = Found(None, AgentSource.UNKNOWN)


def graph_agent(span: Span, surroundings: Surroundings, metadata_of: Metadata) -> Found:
    """Return the agent of langgraph's that ``span`` belongs to."""
    metadata = surroundings.once(metadata_of, span)
    name = next((name for name in _names(metadata) if name not in PLUMBING_NODES), None)
    if name is not None:
        return Found(name, AgentSource.METADATA)
    if LANGGRAPH_NODE not in metadata:
        return NOBODY
    for above in islice(surroundings.ancestors(span), _MAX_ANCESTORS):
        if LANGGRAPH_NODE not in surroundings.once(metadata_of, above):
            known = above.name.removesuffix(".workflow")
            return NOBODY if known in NAMELESS_GRAPHS else Found(known, AgentSource.SPAN_NAME)
    return NOBODY


def _names(metadata: Mapping[str, object]) -> Iterator[str]:
    """Yield candidates: the agent's name, the outermost node of the namespace, the node."""
    for key in (LANGCHAIN_AGENT, LANGGRAPH_NAMESPACE, LANGGRAPH_NODE):
        value = metadata.get(key)
        if isinstance(value, str) and value:
            yield value.partition("|")[0].partition(":")[0] if key == LANGGRAPH_NAMESPACE else value


def prefixed(prefix: str) -> Metadata:
    """Return a reader of metadata that stands as one attribute a key, all under ``prefix``."""

    def read(span: Span) -> Mapping[str, object]:
        found = {key: span.attributes.get(prefix + key) for key in _KEYS}
        return {key: _unquoted(value) for key, value in found.items() if value is not None}

    return read


_KEYS: Final = (LANGCHAIN_AGENT, LANGGRAPH_NAMESPACE, LANGGRAPH_NODE)


def _unquoted(value: object) -> object:
    """Return the text without the quotes of its JSON (Langfuse)."""
    return value.strip('"') if isinstance(value, str) else value
