"""Agent names from langgraph's metadata and, failing that, from the names of functions and spans.

langgraph and langchain add to each call's metadata the agent's name (``lc_agent_name``, langchain 1), the
nodes that enclose it (``langgraph_checkpoint_ns``) and the node itself (``langgraph_node``). OpenInference
and MLflow write this as JSON; LangSmith, Langfuse and Traceloop as one attribute per key. Nodes of prebuilt
agents are parts of an agent; for these the graph's name is used, if it has one.

Spans of traced functions (``@observe``, ``@traceable``), and of graphs whose metadata is masked, have only
the function's or node's name (``Action.function``): ``collector_processor.trajectory.functions`` tells
which of them are agents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from semconv.dialects.reading.action import ActionKind, Surroundings
from semconv.dialects.reading.values import mapping
from semconv.model import AgentSource, Span

LANGCHAIN_AGENT: Final = "lc_agent_name"
LANGGRAPH_NODE: Final = "langgraph_node"
LANGGRAPH_NAMESPACE: Final = "langgraph_checkpoint_ns"
LANGGRAPH_PATH: Final = "langgraph_path"
_KEYS: Final = (LANGCHAIN_AGENT, LANGGRAPH_NAMESPACE, LANGGRAPH_NODE, LANGGRAPH_PATH)

PLUMBING_NODES: Final = frozenset(
    {
        *("model", "tools", "agent", "tool", "call_model", "call_tool", "call_tools", "tool_node", "llm"),
        *("chatbot", "model_request", "__start__", "__end__", "generate_structured_response"),
        *("pre_model_hook", "post_model_hook", "call_agent", "acall_agent"),
    }
)
"""Node names in langgraph's prebuilt agents, supervisors and tutorials: parts of an agent, not agents."""
NAMELESS_GRAPHS: Final = frozenset(
    {"LangGraph", "AgentExecutor", "CompiledStateGraph", "Pregel", "RunnableSequence", "agent", "Agent"}
)
"""Default names of graphs and agents that were given no name."""
_HOOK: Final = re.compile(r"(?:^|\.)(?:before|after)_(?:agent|model)(?::|$)")
"""Matches the node of a middleware's hook. Source: langchain-ai/langchain, ``agents/factory.py``."""
_MAX_ANCESTORS: Final = 64
_TOOLS_AROUND: Final = re.compile(r".*(?:^|\|)(?:\w*tools?|tool_node|call_tool)(?::[^|]*)?(?=\|)")
"""Matches a namespace up to the innermost tools node that encloses another node."""
_AROUND_A_NAME: Final = re.compile(
    r"(?:(?:invoke_agent|invoke_workflow|execute_task|execute_tool) )?"
    r"(?P<name>.+?)(?:\.(?:workflow|task|tool))?$"
)
_NOTHING: Final = frozenset({"null", "None", "{}", "[]"})
"""Outputs of a node that produced no text and changed no state."""
_CLASSES: Final = ("Runnable", "Channel", "Prompt")
_KINDS_OF_CLASS: Final = ("Chain", "Executor", "OutputParser")
_CALLED_TASK: Final = re.compile(r"__pregel_push.*\btrue\W*$", re.IGNORECASE)
"""Matches the path of a task called from a function of langgraph's functional API."""

Metadata: TypeAlias = Callable[[Span], Mapping[str, object]]
"""Returns langgraph's metadata on a span, empty if there is none; each dialect stores it differently."""


class Found(NamedTuple):
    """An agent's name and where it was found."""

    name: str | None
    source: AgentSource = AgentSource.SPAN


NO_AGENT: Final = Found(None, AgentSource.UNKNOWN)


def plain(name: str) -> str:
    """Return a name by which its spellings are compared: without case, spaces and punctuation.

    An agent is ``Research Agent`` where it speaks, and ``research_agent`` in the name of the tool that hands
    over to it. What is shown is always the name as it was written, without space around it.
    """
    lowered = name.lower()
    return lowered if lowered.isalnum() else "".join(filter(str.isalnum, lowered))


def bare(tool: str) -> str:
    """Return a tool's plain name without its server's: ``mcp__register__look_up`` is ``lookup``."""
    return plain(tool.rpartition("__")[2])


def graph_agent(span: Span, surroundings: Surroundings, metadata_of: Metadata) -> Found:
    """Return the langgraph agent that ``span`` belongs to."""
    metadata = surroundings.once(metadata_of, span)
    if not metadata:
        return NO_AGENT
    asked = _asked_by_tool(span, surroundings, metadata_of)
    name = asked or next((name for name in _names(metadata) if not _is_part(name)), None)
    if name is not None:
        return Found(name, AgentSource.METADATA)
    if LANGGRAPH_NODE not in metadata:
        return NO_AGENT
    for above in islice(surroundings.ancestors(span), _MAX_ANCESTORS):
        if LANGGRAPH_NODE not in surroundings.once(metadata_of, above):
            known = _bare_name(above)
            return NO_AGENT if known in NAMELESS_GRAPHS else Found(known, AgentSource.SPAN_NAME)
    return NO_AGENT


def _names(metadata: Mapping[str, object]) -> Iterator[str]:
    """Yield candidate names: the agent's name, the outermost node of the namespace, the node.

    A task of the functional API comes before the function that calls it, which is the whole run.
    """
    keys = (LANGCHAIN_AGENT, LANGGRAPH_NAMESPACE, LANGGRAPH_NODE)
    path = metadata.get(LANGGRAPH_PATH)
    is_task = path is not None and _CALLED_TASK.search(str(path)) is not None
    for key in (LANGCHAIN_AGENT, LANGGRAPH_NODE) if is_task else keys:
        value = metadata.get(key)
        if isinstance(value, str) and value:
            yield value.partition("|")[0].partition(":")[0] if key == LANGGRAPH_NAMESPACE else value


def _asked_by_tool(span: Span, surroundings: Surroundings, metadata_of: Metadata) -> str | None:
    """Return the agent that a tool runs, if ``span`` is inside one.

    The graph inside inherits the namespace and metadata of the tools node, including the calling agent's
    name. A graph without a name is named after the tool that runs it.
    """
    metadata = surroundings.once(metadata_of, span)
    namespace = metadata.get(LANGGRAPH_NAMESPACE)
    if not isinstance(namespace, str) or "tool" not in namespace:  # quicker than the pattern
        return None
    tools = _TOOLS_AROUND.match(namespace)
    if tools is None:
        return None
    above = islice(surroundings.ancestors(span), _MAX_ANCESTORS)
    around = [
        each for each in above if surroundings.once(metadata_of, each).get(LANGGRAPH_NAMESPACE) == tools[0]
    ]
    asking = surroundings.once(metadata_of, around[-1]).get(LANGCHAIN_AGENT) if around else None
    own = metadata.get(LANGCHAIN_AGENT)
    nodes = (each.partition(":")[0] for each in str(namespace)[tools.end() + 1 :].split("|"))
    named = (agent_behind(_bare_name(each)) for each in around)
    candidates = (own if own != asking else None, *nodes, *named)
    return next((name for name in candidates if isinstance(name, str) and name and _is_named(name)), None)


def _is_named(name: str) -> bool:
    return name not in NAMELESS_GRAPHS and not _is_part(name)


def _bare_name(span: Span) -> str:
    """Return the name of a graph or tool without the affixes that instrumentations add."""
    named = _AROUND_A_NAME.match(span.name)
    return named["name"] if named else span.name


def _is_part(name: str) -> bool:
    return name in PLUMBING_NODES or _HOOK.search(name) is not None


def is_function(
    span: Span, metadata: Mapping[str, object], surroundings: Surroundings, *, got: object = None
) -> bool:
    """Say whether a span marked as an agent is only a function of a graph, such as ``route_to_active_agent``.

    Instrumentations mark everything with ``agent`` in its name, a middleware's hooks too. A node without
    children stays an agent if it returned something: it may have called a model that was not traced.
    """
    node = metadata.get(LANGGRAPH_NODE)
    if node is None:
        return False
    if _HOOK.search(span.name) is not None:
        return True
    return not surroundings.children(span) and (span.name != node or got in _NOTHING)


def prefixed(prefix: str) -> Metadata:
    """Return a reader for metadata stored as one attribute per key, all under ``prefix``."""
    names = {key: prefix + key for key in _KEYS}

    def read(span: Span) -> Mapping[str, object]:
        found = {key: span.attributes.get(name) for key, name in names.items()}
        return {key: _unquoted(value) for key, value in found.items() if value is not None}

    return read


def _unquoted(value: object) -> object:
    """Return the value without the JSON quotes that Langfuse leaves."""
    return value.strip('"') if isinstance(value, str) else value


_SAYING_NOTHING: Final = frozenset(
    {"a", "ainvoke", "act", "agent", "anthropic", "api", "ask", "async", "arun", "call", "chat"}
    | {"claude", "complete", "completion", "completions", "create", "do", "execute", "fn", "forward"}
    | {"func", "gemini", "generate", "get", "gpt", "handle", "inner", "invoke", "llm", "loop", "main"}
    | {"make", "model", "openai", "process", "prompt", "query", "reply", "request", "respond"}
    | {"response", "responses", "retry", "root", "run", "send", "span", "step", "stream", "sync"}
    | {"the", "think", "tool", "tools", "trace", "turn", "with", "wrapped", "wrapper"}
) | {""}
"""Words of functions' names that only mean that a model is called: ``run``, ``call_model``."""


def names_an_agent(name: str) -> bool:
    """Say whether a function's or a graph's name may be an agent's."""
    is_part = _is_part(name) or name in NAMELESS_GRAPHS
    is_class = name.startswith(_CLASSES) or name.endswith(_KINDS_OF_CLASS)  # langchain's own
    return not is_part and not is_class and not _SAYING_NOTHING.issuperset(name.lower().split("_"))


_ASKING: Final = re.compile(
    r"^(?:ask|consult|call|invoke|talk[_ -]?to|delegate[_ -]?to)(?:[_ -]the)?[_ -](?P<agent>\w.*)$",
    re.IGNORECASE,
)


def agent_behind(tool: str) -> str:
    """Return the name of the agent that a tool runs: ``ask_purser`` runs ``purser``."""
    found = _ASKING.match(tool)
    return found["agent"] if found else tool


_GENERIC: Final = frozenset(
    {"a", "agent", "ai", "an", "assistant", "bot", "chatbot", "expert", "friendly", "helpful", "intelligent"}
    | {"language", "model", "powerful", "smart", "useful", "very", "world-class"}
)
_YOU_ARE: Final = re.compile(
    r"\b[Yy]ou are (?:the |an? )?(?P<name>[\w-]+(?: [\w-]+){0,2}?)"
    r"(?=[.,;:!()\n]|$| (?:of|for|who|that|in|at|on|with|and|to|whose|from|working|responsible)\b)"
)
_MOST_PROMPT: Final = 500


def named_in_prompt(prompt: str) -> str:
    """Return the agent named in a prompt (``You are the registrar of …``), in lower case; empty if none."""
    found = _YOU_ARE.search(prompt[:_MOST_PROMPT])
    return found["name"].lower() if found else ""


def titled_in_prompt(prompt: str) -> str:
    """Return the agent that a prompt names, if the words distinguish one: not ``helpful assistant``."""
    name = named_in_prompt(prompt)
    return "" if _GENERIC.issuperset(name.split()) else name


# --- frameworks ---
#
# Facts about frameworks that their own dialect and a convention read alike: scopes, helper agents, teams.
#
# Source: ``autogen/agentchat/group/group_tool_executor.py``, ``group_utils.py`` and ``groupchat.py`` of
# AG2 0.14; ``strands/multiagent`` of strands-agents 1.62. OpenInference's instrumentation of these frameworks
# keeps their names, and for Google ADK and Strands their scope.


ADK_SCOPE: Final = "gcp.vertex.agent"
STRANDS_SCOPE: Final = "strands.telemetry.tracer"
STRANDS_TEAMS: Final[Mapping[str, ActionKind]] = {
    "invoke_swarm": ActionKind.WORKFLOW,
    "invoke_graph": ActionKind.WORKFLOW,
}
_AG2_HELPERS: Final = frozenset({"chat_manager", "checking_agent"})
"""A group chat's manager, and the agent that counts the speakers named by the model; neither calls a model.

The others start with an underscore: ``_User`` stands for the caller, ``_Group_Tool_Executor`` runs every
agent's tools.
"""


_SMOLAGENTS: Final = "You are an expert assistant who can solve any task using "
"""Begins smolagents' own system prompts (1.26), before the agent's tools and instructions."""


def is_agents_own(prompt: str) -> bool:
    """Tell whether a framework writes such a prompt for each agent, so that a different agent has another."""
    return prompt.startswith(_SMOLAGENTS)


def is_ag2_helper(name: str | None) -> bool:
    """Say whether ``name`` belongs to AG2 itself, not to one of the user's agents."""
    return name is not None and (name in _AG2_HELPERS or name.startswith("_"))


def is_ag2_tool_reply(reply: str) -> bool:
    """Say whether an AG2 agent's JSON reply only passes on its tools' results."""
    return '"tool"' in reply and mapping(reply).get("role") == "tool"
