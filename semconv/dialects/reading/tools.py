"""Tools: those available to an agent, and those that hand control to another one.

Reads ``gen_ai.tool.definitions`` (a list or JSON; frameworks nest the function one level down, or group
several under ``function_declarations``), OpenInference's ``llm.tools.<n>.tool.json_schema``, MLflow's
``mlflow.chat.tools``, Vercel's ``ai.prompt.tools`` and older Traceloop's ``llm.request.functions.<n>.*``.

Transfers are known by the names that frameworks give them. Source: openai-agents ``transfer_to_X``, likewise
AutoGen, AG2, langgraph-swarm and agent-framework; ADK ``transfer_to_agent`` and Strands ``handoff_to_agent``
name the agent in an argument; CrewAI delegates to a ``coworker``, agno to a ``member_id``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

from semconv.attributes import GEN_AI_TOOL_DEFINITIONS
from semconv.dialects.reading.values import below, items, mapping, words
from semconv.model import Attributes, AttributeValue
from semconv.record import record

_NAMED: Final = re.compile(
    r"^(?:transfer|hand_?-?off|hand_?over|switch|route)(?:_back)?"
    r"[_ -]+to[_ -]+(?:the[_ -]+)?(?P<agent>.+?)(?:[_ -]tool)?$",
    re.IGNORECASE,
)
_BY_ARGUMENT: Final = frozenset({"transfer_to_agent", "handoff_to_agent", "hand_off_to_agent", "handoff"})
_DELEGATIONS: Final = frozenset(
    {"delegate_work_to_coworker", "ask_question_to_coworker", "transfer_task_to_member"}
    | {"delegate_task_to_member", "delegate_task_to_members"}
    | {"adelegate_task_to_member", "adelegate_task_to_members"}
)
FINAL_ANSWER_TOOLS: Final = frozenset({"final_answer", "FinalAnswerTool", "finalanswer"})
"""Tools that a model calls in place of answering (smolagents)."""
_ARGUMENTS: Final = (
    "agent_name", "agent", "coworker", "member_id", "target", "target_agent", "to", "to_agent",
)  # fmt: skip
_COURTESIES: Final = frozenset(
    {"reason", "message", "task", "task_description", "context", "input", "content", "description", "summary"}
    | {"instructions", "request", "query", "tool_call_id", "state"}
)
"""Arguments of a transfer that carry text along; any other marks an ordinary tool."""


def transfer_target(tool: str, arguments: Any) -> str | None:
    """Return the agent that ``tool`` transfers control to; ``None`` for an ordinary tool."""
    name = tool.strip()
    if _is_by_argument(name):
        return _named_in(arguments)
    named = _NAMED.match(name)
    return named["agent"] if named else None


def is_silent_transfer(tool: str, arguments: Any) -> bool:
    """Say whether ``tool`` is a transfer whose target is unknown because its arguments are hidden."""
    return _is_by_argument(tool.strip()) and not mapping(arguments)


def _is_by_argument(name: str) -> bool:
    return name.replace(" ", "_").lower() in _BY_ARGUMENT


def delegation_target(tool: str, arguments: Any) -> str | None:
    """Return the agent that ``tool`` delegates part of the work to; control returns to the caller."""
    return _named_in(arguments) if is_delegation(tool) else None


def is_delegation(tool: str) -> bool:
    """Say whether ``tool`` delegates part of the work, to any agents."""
    return tool.strip().replace(" ", "_").lower() in _DELEGATIONS


def _named_in(arguments: Any) -> str | None:
    given = mapping(arguments)
    return next((words(given[key]) for key in _ARGUMENTS if given.get(key)), None)


def is_plain_transfer(arguments: Any) -> bool:
    """Say whether the arguments are those of a transfer: none, or texts to pass on.

    ``transfer_to_savings({"amount": 5})`` is named like a handoff but is an ordinary tool.
    """
    return mapping(arguments).keys() <= _COURTESIES | set(_ARGUMENTS)


_MLFLOW_TOOLS: Final = "mlflow.chat.tools"
_VERCEL_TOOLS: Final = "ai.prompt.tools"
_TRACELOOP_TOOLS: Final = "llm.request.functions"
_OPENINFERENCE_TOOLS: Final = "llm.tools"
_JSON_SCHEMA: Final = "tool.json_schema"
_PREFIXES: Final = (
    GEN_AI_TOOL_DEFINITIONS,
    _MLFLOW_TOOLS,
    _VERCEL_TOOLS,
    _TRACELOOP_TOOLS,
    _OPENINFERENCE_TOOLS,
)
_SCHEMAS: Final = ("parameters", "input_schema", "inputSchema")
_MOST_TOOLS: Final = 50
_LONGEST_DESCRIPTION: Final = 160
_MOST_PARAMETERS: Final = 12


Lists: TypeAlias = tuple[tuple[str, AttributeValue], ...]
"""A span's attributes that list tools, as pairs of name and value."""


@record
class OfferedTool:
    """A tool that a model may call."""

    name: str
    description: str
    parameters: str
    """JSON schema of its arguments, as text; empty if not recorded."""


def offered_tools(attributes: Attributes) -> tuple[OfferedTool, ...]:
    """Return the tools that a span's attributes list, in the span's order, each name once."""
    tools = (_offered(definition) for definition in islice(_definitions(attributes), _MOST_TOOLS))
    return tuple({tool.name: tool for tool in tools if tool.name}.values())


def _offered(definition: Mapping[str, Any]) -> OfferedTool:
    function = mapping(definition.get("function")) or definition
    return OfferedTool(
        name=" ".join(words(function.get("name")).split()),
        description=words(function.get("description")),
        parameters=words(_schema(function) or None),
    )


def listing_tools(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of attributes that list tools: most spans have none."""
    return tuple([name for name in names if name.startswith(_PREFIXES)])


def tools_in(lists: Lists) -> str:
    """Return the tools as ``name(parameters): description``, one per line, in the span's order."""
    if not lists:
        return ""
    lines = (_line(definition) for definition in islice(_definitions(dict(lists)), _MOST_TOOLS))
    return "\n".join(dict.fromkeys(line for line in lines if line))


def _definitions(attributes: Attributes) -> Iterator[Mapping[str, Any]]:
    for each in items(attributes.get(GEN_AI_TOOL_DEFINITIONS)):
        definition = mapping(each)
        grouped = items(definition.get("function_declarations"))
        yield from (mapping(one) for one in grouped) if grouped else (definition,)
    for key in (_MLFLOW_TOOLS, _VERCEL_TOOLS):
        yield from (mapping(each) for each in items(attributes.get(key)))
    yield from below(attributes, _TRACELOOP_TOOLS).values()
    for fields in below(attributes, _OPENINFERENCE_TOOLS).values():
        yield mapping(fields.get(_JSON_SCHEMA))


def _line(definition: Mapping[str, Any]) -> str:
    function = mapping(definition.get("function")) or definition
    name = " ".join(words(function.get("name")).split())
    if not name:
        return ""
    parameters = ", ".join(islice(mapping(_schema(function).get("properties")), _MOST_PARAMETERS))
    description = " ".join(words(function.get("description")).split())[:_LONGEST_DESCRIPTION]
    return f"{name}({parameters})" + (f": {description}" if description else "")


def _schema(function: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(filter(None, (mapping(function.get(key)) for key in _SCHEMAS)), {})
