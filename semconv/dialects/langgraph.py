"""Whose step it is in a langgraph run, from the metadata that every instrumentation passes on.

langgraph and langchain put into the metadata of each call the agent's name (``lc_agent_name``,
langchain 1), the nodes that enclose it (``langgraph_checkpoint_ns``) and the node itself
(``langgraph_node``). OpenInference and MLflow write it as JSON, LangSmith, Langfuse and Traceloop
as one attribute a key. Nodes of prebuilt agents are parts of an agent, not agents: then the graph's
own name tells, if somebody gave it one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

from semconv.dialects.surroundings import Surroundings
from semconv.model import AgentSource, Span

LANGCHAIN_AGENT: Final = "lc_agent_name"
LANGGRAPH_NODE: Final = "langgraph_node"
LANGGRAPH_NAMESPACE: Final = "langgraph_checkpoint_ns"
LANGGRAPH_PATH: Final = "langgraph_path"

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
_TOOLS_AROUND: Final = re.compile(r".*(?:^|\|)(?:\w*tools?|tool_node|call_tool)(?::[^|]*)?(?=\|)")
"""A namespace up to the innermost node of tools that encloses another node."""
_AROUND_A_NAME: Final = re.compile(
    r"(?:(?:invoke_agent|invoke_workflow|execute_task|execute_tool) )?"
    r"(?P<name>.+?)(?:\.(?:workflow|task|tool))?$"
)
_CALLED_TASK: Final = re.compile(r"__pregel_push.*\btrue\W*$", re.IGNORECASE)
"""The path of a task that a function of langgraph's functional API called."""

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
    asked = _asked_by_tool(span, surroundings, metadata_of)
    name = asked or next((name for name in _names(metadata) if name not in PLUMBING_NODES), None)
    if name is not None:
        return Found(name, AgentSource.METADATA)
    if LANGGRAPH_NODE not in metadata:
        return NOBODY
    for above in islice(surroundings.ancestors(span), _MAX_ANCESTORS):
        if LANGGRAPH_NODE not in surroundings.once(metadata_of, above):
            known = _bare_name(above)
            return NOBODY if known in NAMELESS_GRAPHS else Found(known, AgentSource.SPAN_NAME)
    return NOBODY


def _names(metadata: Mapping[str, object]) -> Iterator[str]:
    """Yield candidates: the agent's name, the outermost node of the namespace, the node.

    A task of the functional API comes before the function that it is called from, which is the whole run.
    """
    keys = (LANGCHAIN_AGENT, LANGGRAPH_NAMESPACE, LANGGRAPH_NODE)
    is_task = _CALLED_TASK.search(str(metadata.get(LANGGRAPH_PATH) or "")) is not None
    for key in (LANGCHAIN_AGENT, LANGGRAPH_NODE) if is_task else keys:
        value = metadata.get(key)
        if isinstance(value, str) and value:
            yield value.partition("|")[0].partition(":")[0] if key == LANGGRAPH_NAMESPACE else value


def _asked_by_tool(span: Span, surroundings: Surroundings, metadata_of: Metadata) -> str | None:
    """Return the agent that a tool runs, where ``span`` is inside one.

    Its graph inherits the namespace and the metadata of the tools' node, the asking agent's name among
    them. A graph that nobody named goes by the tool that runs it.
    """
    metadata = surroundings.once(metadata_of, span)
    namespace = metadata.get(LANGGRAPH_NAMESPACE)
    tools = _TOOLS_AROUND.match(namespace) if isinstance(namespace, str) else None
    if tools is None:
        return None
    above = islice(surroundings.ancestors(span), _MAX_ANCESTORS)
    around = [
        each for each in above if surroundings.once(metadata_of, each).get(LANGGRAPH_NAMESPACE) == tools[0]
    ]
    asking = surroundings.once(metadata_of, around[-1]).get(LANGCHAIN_AGENT) if around else None
    own = metadata.get(LANGCHAIN_AGENT)
    nodes = (each.partition(":")[0] for each in str(namespace)[tools.end() + 1 :].split("|"))
    named = map(_bare_name, around)
    candidates = (own if own != asking else None, *nodes, *named)
    parts = PLUMBING_NODES | NAMELESS_GRAPHS
    return next((name for name in candidates if isinstance(name, str) and name and name not in parts), None)


def _bare_name(span: Span) -> str:
    """Return the name of a graph or a tool without what instrumentations put around it."""
    named = _AROUND_A_NAME.match(span.name)
    return named["name"] if named else span.name


def is_function(span: Span, metadata: Mapping[str, object], surroundings: Surroundings) -> bool:
    """Say whether what is called an agent is but a function in a node, called ``route_to_active_agent``, say.

    Instrumentations make an agent of whatever has ``agent`` in its name. A node that encloses nothing
    stays one: it may have asked a model that nobody traced.
    """
    node = metadata.get(LANGGRAPH_NODE)
    return node is not None and span.name != node and not surroundings.children(span)


def prefixed(prefix: str) -> Metadata:
    """Return a reader of metadata that stands as one attribute a key, all under ``prefix``."""

    def read(span: Span) -> Mapping[str, object]:
        found = {key: span.attributes.get(prefix + key) for key in _KEYS}
        return {key: _unquoted(value) for key, value in found.items() if value is not None}

    return read


_KEYS: Final = (LANGCHAIN_AGENT, LANGGRAPH_NAMESPACE, LANGGRAPH_NODE, LANGGRAPH_PATH)


def _unquoted(value: object) -> object:
    """Return the text without the quotes of its JSON (Langfuse)."""
    return value.strip('"') if isinstance(value, str) else value
