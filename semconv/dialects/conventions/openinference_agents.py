"""Additions of individual frameworks to OpenInference, and the places where each keeps its agents' names.

Sources of an agent's name in order of reliability: an attribute that names the agent, langgraph's metadata,
smolagents' managed agents, the span's name.

Claude Agent SDK. Source: runs of openinference-instrumentation-claude-agent-sdk 0.1.22 with Claude Code
2.1.330. It sees messages and hooks but no model calls. A subagent's AGENT span is named after the tool, has
no texts, says OK after a crash and ends with the whole run; the TOOL span above it has the subagent's
prompt, answer and error.

CrewAI. Source: openinference-instrumentation-crewai 1.1.21 (wrappers, and the event listener behind
``use_event_listener``) and crewai 1.15, ``tools/agent_tools``, seen in sequential and hierarchical crews.
Wrappers record no model calls. A coworker has no span of its own, so the span of the tool that delegated to
it is read as the coworker's.

DSPy. Source: openinference-instrumentation-dspy 0.1 (``__init__.py``) and dspy 3.4, seen in a program of
three modules. A module's call is named after its class, ``Office.forward``; DSPy's own modules run inside
the user's. Tools are named after their function; ``finish`` belongs to ``ReAct``: the model calls it to end
the loop.

LlamaIndex. Source: openinference-instrumentation-llama-index 4.6 and llama-index-core 0.14
(``agent/workflow``), seen with an ``AgentWorkflow`` of three function agents. Every method call is a span
with its printed arguments. No span names the agent, but the event given to a workflow's step ends with its
name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice, takewhile
from typing import Final

from semconv.attributes import (
    GEN_AI_AGENT_NAME,
    GEN_AI_TOOL_CALL_ID,
    OPENINFERENCE_SPAN_KIND,
)
from semconv.dialects.reading.action import ActionKind, Message, Surroundings
from semconv.dialects.reading.agent_names import LANGGRAPH_NODE, NO_AGENT, Found, graph_agent
from semconv.dialects.reading.messages import last_request, messages_of
from semconv.dialects.reading.payloads import asked, content_of, is_tool_message
from semconv.dialects.reading.python_repr import message_fields
from semconv.dialects.reading.tools import delegation_target
from semconv.dialects.reading.values import (
    below,
    error_of,
    is_failed,
    items,
    mapping,
    structured,
    text,
    words,
)
from semconv.model import AgentSource, Span
from semconv.record import record

CLAUDE: Final = "openinference.instrumentation.claude_agent_sdk"
INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"
SUBAGENT_TYPE: Final = "subagent_type"
PROMPT: Final = "prompt"
STATUS: Final = "status"
CONTENT: Final = "content"

_COMPLETED: Final = "completed"
"""Results with another status only report that the subagent works in the background."""
_NOTE: Final = "<tools-used-before-summary>"
"""Start of the note that Claude Code appends to an answer for the calling agent."""


@record
class Spawned:
    """A subagent, as recorded by the call that spawned it."""

    name: str | None = None
    task: str = ""
    answer: str = ""
    failed: bool = False
    error: str = ""


_NOT_SPAWNED: Final = Spawned()


def spawned(span: Span, surroundings: Surroundings) -> Spawned:
    """Return the subagent's data in the enclosing call; empty if no call spawned it."""
    above = surroundings.parent(span) if span.scope.name == CLAUDE else None
    if above is None:
        return _NOT_SPAWNED
    given, got = (mapping(above.attributes.get(name)) for name in (INPUT_VALUE, OUTPUT_VALUE))
    name = text(given, SUBAGENT_TYPE)
    if name is None:
        return _NOT_SPAWNED
    return Spawned(
        name=name,
        task=text(given, PROMPT) or "",
        answer=_answer_text(got.get(CONTENT)) if got.get(STATUS) == _COMPLETED else "",
        failed=is_failed(above),
        error=error_of(above) if is_failed(above) else "",
    )


def _answer_text(content: object) -> str:
    texts = (text(mapping(block), "text") or "" for block in items(content))
    return "\n".join(each for each in texts if each and not each.startswith(_NOTE))


CREWAI: Final = "openinference.instrumentation.crewai"
CREW_TASKS: Final = "crew_tasks"
CREW_INPUTS: Final = "crew_inputs"
CREW_AGENTS: Final = "crew_agents"

_REFUSED: Final = "Error executing tool"
"""Start of a delegation's result if the coworker does not exist or could not be run."""
_FAILED: Final = "Error executing task with agent"
"""Start of the result if the coworker failed; the delegation's span itself says OK."""
_BLANK: Final = re.compile(r"\{\w+\}")
_NOT_PLANNED: Final = frozenset({"", "None"})


def crew_task(span: Span, got: str) -> str:
    """Return CrewAI's task: a crew's inputs and tasks, or the prompt in a task's report."""
    tasks = items(span.attributes.get(CREW_TASKS))
    if tasks:
        inputs = asked(span.attributes.get(CREW_INPUTS))
        planned = "\n".join(words(mapping(task).get("description")) for task in tasks)
        # The event listener writes unfilled templates; the first prompt has the values too.
        return "\n".join(filter(None, (inputs, planned))) if inputs or not _BLANK.search(planned) else ""
    report = mapping(got) if '"expected_output"' in got else {}
    return last_request(messages_of(report.get("messages"))) or words(report.get("description"))


def coworker_at_work(span: Span, tool: str, given: str, got: str, surroundings: Surroundings) -> str | None:
    """Return the role of the coworker that ``tool`` delegates to; ``None`` for any other tool.

    Models vary the spelling of roles; CrewAI compares them without case, quotes and surrounding spaces.
    """
    if not span.scope.name.startswith(CREWAI) or got.lstrip().startswith(_REFUSED):
        return None
    named = delegation_target(tool, given)
    if named is None:
        return None
    roles = {_plain(role): role for role in _roles(span, surroundings)}
    return roles.get(_plain(named), named)


def failure_in(got: str) -> str:
    """Return the coworker's failure as reported by the delegation's result, else an empty string."""
    return got.strip() if got.lstrip().startswith(_FAILED) else ""


def _roles(span: Span, surroundings: Surroundings) -> list[str]:
    crew = next((each for each in surroundings.ancestors(span) if CREW_AGENTS in each.attributes), None)
    agents = items(crew.attributes[CREW_AGENTS]) if crew is not None else ()
    return [role for agent in agents if (role := words(mapping(agent).get("role"))) not in _NOT_PLANNED]


def _plain(role: str) -> str:
    return " ".join(role.replace('"', "").casefold().split())


def calls_in(got: str) -> Sequence[Message]:
    """Return a model's reply that consists only of tool calls, as the event listener records it."""
    if not got.startswith("[{") or '"function"' not in got:
        return ()
    output_messages = messages_of({"role": "assistant", "tool_calls": items(got)})
    return output_messages if any(message.calls for message in output_messages) else ()


DSPY: Final = "openinference.instrumentation.dspy"

_MODULE: Final = re.compile(r"^(?P<name>[^.()]+)\.a?forward$")
_OWN_MODULES: Final = frozenset(
    {"Predict", "ChainOfThought", "ChainOfThoughtWithHint", "ReAct", "CodeAct", "ProgramOfThought", "RLM"}
    | {"MultiChainComparison", "BestOfN", "Refine", "Parallel", "Avatar", "KNN", "Retrieve", "Ensemble"}
)
_AGENT_NAMES: Final = (GEN_AI_AGENT_NAME, "agent.name")
_CALLED: Final = (".__call__", ".acall")
_FINISH: Final = "finish"
_DSPY_ANCESTORS: Final = 32
"""Levels to search upwards for the user's module; DSPy puts four spans between it and a model call."""


def called_tool(name: str) -> str:
    """Return the function's name from a tool span's name."""
    return next((name.removesuffix(each) for each in _CALLED if name.endswith(each)), name)


def is_finish(span: Span) -> bool:
    """Say whether the tool only ends ``ReAct``'s loop."""
    return span.scope.name == DSPY and called_tool(span.name) == _FINISH


def plain_result(got: str) -> str:
    """Return a tool's result, decoding texts stored as JSON strings."""
    return words(structured(got)) if got.startswith('"') else got


def module_around(span: Span, surroundings: Surroundings) -> str | None:
    """Return the nearest user-defined module that encloses ``span``.

    ``None`` if another framework's agent, called by a module, is nearer: the work is that agent's.
    """
    if span.scope.name != DSPY:
        return None
    above = takewhile(_is_no_agent, islice(surroundings.ancestors(span), _DSPY_ANCESTORS))
    names = (_MODULE.match(each.name) for each in above)
    return next((name["name"] for name in names if name and name["name"] not in _OWN_MODULES), None)


def _is_no_agent(span: Span) -> bool:
    if span.scope.name == DSPY:
        return True
    is_agent = span.attributes.get(OPENINFERENCE_SPAN_KIND) == "AGENT"
    return not is_agent and not any(span.attributes.get(key) for key in _AGENT_NAMES)


LLAMA_INDEX: Final = "openinference.instrumentation.llama_index"

_STATE: Final = '{"init_state":'
"""Start of the input of a workflow's run: internal state, without the question."""
_EVENT: Final = re.compile(r"(?:Stop|AgentWorkflowStart|Start)Event\(|Agent(?:Output|Input|Setup)\(")
_METHOD_KEYS: Final = frozenset({"args", "kwargs"})
_CONTEXT: Final = frozenset({"ctx", "context"})
"""Arguments that a workflow, not the model, passes to its tools."""
_OUTPUT_KEYS: Final = frozenset({"blocks", "tool_name", "is_error"})
_AGENT: Final = re.compile(r"\bcurrent_agent_name='([^']{1,200})'\)*$")
"""Found at the end of the event, after all user and model texts."""
_TAIL: Final = 300
"""Characters at the event's end to search for the agent."""
_LLAMA_INDEX_ANCESTORS: Final = 16


def is_preparation(span: Span) -> bool:
    """Say whether the span is a private method that calls no model: ``_prepare_chat_with_tools``."""
    return span.scope.name == LLAMA_INDEX and span.name.rpartition(".")[2].startswith("_")


def is_machinery(content: str) -> bool:
    """Say whether a run's input or output is the workflow's internal state, not a question or an answer."""
    return content.startswith(_STATE) or _EVENT.match(content) is not None


def without_context(given: str) -> str:
    """Return a tool's arguments without the method call around them."""
    call = mapping(given) if '"kwargs"' in given else {}
    named = call.get("kwargs")
    if not call.keys() <= _METHOD_KEYS or not isinstance(named, Mapping) or call.get("args"):
        return given
    return words({name: value for name, value in named.items() if name not in _CONTEXT})


def tool_words(got: str) -> str:
    """Return a tool's result without the ``ToolOutput`` around it."""
    value = mapping(got) if '"blocks"' in got else {}
    if not value.keys() >= _OUTPUT_KEYS:
        return got
    return content_of({"role": "tool", "content": value["blocks"]}) or words(value.get("raw_output"))


def workflow_agent(span: Span, surroundings: Surroundings) -> str | None:
    """Return the agent whose ``AgentWorkflow`` step encloses ``span``."""
    if span.scope.name != LLAMA_INDEX:
        return None
    for each in (span, *islice(surroundings.ancestors(span), _LLAMA_INDEX_ANCESTORS)):
        if (found := surroundings.once(_stepping, each)) is not None:
            return found
    return None


def _stepping(span: Span) -> str | None:
    """Return the agent named by the event given to a step."""
    event = text(mapping(span.attributes.get(INPUT_VALUE)), "ev") or ""
    found = _AGENT.search(event[-_TAIL:])
    return found[1] if found else None


AGENT_NAME: Final = "agent.name"
PYDANTIC_AGENT_NAME: Final = "agent_name"
GRAPH_NODE_ID: Final = "graph.node.id"
METADATA: Final = "metadata"
MANAGED_AGENTS: Final = "smolagents.managed_agents"
VERCEL_OPERATION: Final = "ai.operationId"
VERCEL_FUNCTION: Final = "ai.telemetry.functionId"

_PROMPT: Final = "llm.input_messages."
_OPENAI_AGENTS: Final = "openinference.instrumentation.openai_agents"
_AG2: Final = "openinference.instrumentation.ag2"
_SCOPES: Final = "openinference.instrumentation."
_LANGCHAIN: Final = "openinference.instrumentation.langchain"
_IN_SPAN_NAME: Final = re.compile(
    r"^(?:(?:invoke_agent|agent_run|agent)[ :]+\[?(?P<after>[^\]]+?)\]?"
    r"|(?P<before>.+?)(?:\.(?:a?run|run_stream|a?invoke|on_messages|on_messages_stream|kickoff|query)| run))$"
)
_SMOLAGENTS: Final = "openinference.instrumentation.smolagents"
_PROMPTED_NAME: Final = re.compile(r"You're a helpful agent named '(?P<name>[^']+)'")
"""Part of smolagents' prompt to a managed agent."""
_LEAVES: Final = frozenset({ActionKind.LLM, ActionKind.TOOL})
_MAX_ANCESTORS: Final = 16
"""Levels to search upwards for a manager; smolagents puts one step between."""
_MACHINE_MADE: Final = re.compile(r"^(?:[0-9a-f]{12,}|[0-9a-f-]{36}|\d+)$", re.IGNORECASE)


def agent_name(span: Span, kind: ActionKind, surroundings: Surroundings) -> Found:
    """Return the agent of a span, as far as the span itself names it."""
    if kind is ActionKind.TOOL and span.scope.name == _AG2:
        return NO_AGENT  # its agent executes tools for others; the call names the caller
    name = text(span.attributes, AGENT_NAME, GEN_AI_AGENT_NAME, PYDANTIC_AGENT_NAME)
    if name is None and VERCEL_OPERATION in span.attributes:
        return Found(text(span.attributes, VERCEL_FUNCTION))  # the span's name is the operation
    name = spawned(span, surroundings).name or name
    return Found(name) if name is not None else _named_elsewhere(span, kind, surroundings)


def _named_elsewhere(span: Span, kind: ActionKind, surroundings: Surroundings) -> Found:
    """Return the agent of a span without an attribute that names it."""
    node = text(span.attributes, GRAPH_NODE_ID)
    if kind is ActionKind.AGENT and node is not None and not _MACHINE_MADE.match(node):
        return Found(node)
    graph = graph_agent(span, surroundings, _metadata)
    stepping = graph.name or workflow_agent(span, surroundings)
    if stepping is None and kind in _LEAVES:
        stepping = module_around(span, surroundings)
    if stepping is not None:
        return Found(stepping, AgentSource.METADATA if graph.name is None else graph.source)
    if kind is not ActionKind.AGENT or span.scope.name == _OPENAI_AGENTS:
        is_smolagents = kind is ActionKind.LLM and span.scope.name == _SMOLAGENTS
        return Found(_name_in_prompt(span, surroundings) if is_smolagents else None, AgentSource.METADATA)
    managed = _managed_agent(span, surroundings)
    if managed is not None:
        return Found(managed, AgentSource.METADATA)
    named = _IN_SPAN_NAME.match(span.name)
    return Found((named["after"] or named["before"]) if named else span.name, AgentSource.SPAN_NAME)


def function_of(span: Span) -> str:
    """Return the function that a chain traces: the user's own, or langchain's outside of a graph."""
    metadata = span.attributes.get(METADATA)
    is_node = isinstance(metadata, str) and LANGGRAPH_NODE in metadata
    is_theirs = span.scope.name.startswith(_SCOPES) and span.scope.name != _LANGCHAIN
    return "" if is_node or is_theirs else span.name


def _is_agents(span: Span) -> bool:
    return span.attributes.get(OPENINFERENCE_SPAN_KIND) == "AGENT"


def _metadata(span: Span) -> Mapping[str, object]:
    return mapping(span.attributes.get(METADATA))


def _name_in_prompt(span: Span, surroundings: Surroundings) -> str | None:
    """Return a managed agent's name from its prompt, if its own span is missing.

    The span of a managed agent that fails is never ended, so it is never sent (0.1.43).
    """
    above = islice(surroundings.ancestors(span), _MAX_ANCESTORS)
    if any(map(_is_agents, above)):
        return None
    prompts = (value for key, value in span.attributes.items() if key.startswith(_PROMPT))
    matches = (_PROMPTED_NAME.search(value) for value in prompts if isinstance(value, str))
    return next((found["name"] for found in matches if found), None)


def _managed_agent(span: Span, surroundings: Surroundings) -> str | None:
    """Return a smolagents manager's name for the agent of ``span``.

    Older versions name the span after the agent's class (``ToolCallingAgent.run``). The manager lists its
    agents' names, and its prompt to each agent contains that agent's name.
    """
    for above in islice(surroundings.ancestors(span), _MAX_ANCESTORS):
        managed = below(above.attributes, MANAGED_AGENTS)
        if managed:
            names = [name for fields in managed.values() if (name := text(fields, "name"))]
            given = asked(span.attributes.get(INPUT_VALUE))
            named = [name for name in names if f"'{name}'" in given]
            return named[0] if len(named) == 1 else (names[0] if len(names) == 1 else None)
    return None


# --- values on tool spans ---
#
# Values on OpenInference's tool spans, without what frameworks wrap around them.


TOOL_CALL_ID: Final = "tool_call.id"
STRANDS_CALL_ID: Final = "tool.call_id"
CLAUDE_CALL_ID: Final = "tool.id"
DOCUMENTS: Final = "retrieval.documents"


def documents_of(span: Span) -> str:
    """Return a retriever's documents as text."""
    documents = below(span.attributes, DOCUMENTS).values()
    return "\n".join(text(fields, "document.content") or "[document]" for fields in documents)


def call_id_of(span: Span, result: str) -> str:
    """Return the call id, which langchain keeps only in the result's tool message."""
    found = text(span.attributes, TOOL_CALL_ID, GEN_AI_TOOL_CALL_ID, STRANDS_CALL_ID, CLAUDE_CALL_ID)
    if found is None and '"tool_call_id"' in result:
        message = mapping(result)
        data = message.get("data") or message.get("kwargs") or message
        found = text(data, "tool_call_id") if isinstance(data, Mapping) else None
    return found or ""


def arguments_in(given: str) -> str:
    """Return a tool's arguments without smolagents' wrapper."""
    value = mapping(given)
    if "sanitize_inputs_outputs" not in value:
        return given
    args, kwargs = value.get("args"), value.get("kwargs")
    if args and kwargs:
        return words({"args": args, **kwargs} if isinstance(kwargs, Mapping) else value)
    return words(kwargs or args or {})


def without_response(got: str) -> str:
    """Return a tool's result without Gemini's function response, which ADK wraps around it."""
    value = mapping(got) if '"response"' in got else {}
    return words(value["response"]) if value.keys() >= {"id", "name", "response"} else got


def result_in(got: str) -> str:
    """Return a tool's result without langchain's tool message or AG2's pair around it."""
    pair = items(got)
    if len(pair) == 2 and isinstance(pair[0], bool) and isinstance(pair[1], dict) and "content" in pair[1]:
        return content_of(pair[1])
    value = mapping(got)
    if value.keys() == {"output"} and message_fields(words(value["output"])) is not None:
        return content_of(value["output"])
    return content_of(value) if is_tool_message(value) else got
