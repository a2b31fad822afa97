"""The tools an agent could call, as a span of its model call lists them.

Read from ``gen_ai.tool.definitions`` (a list or JSON; frameworks nest the function one level
down, or group several under ``function_declarations``) and from OpenInference's
``llm.tools.<n>.tool.json_schema``; of MLflow from ``mlflow.chat.tools``, of Vercel from
``ai.prompt.tools``, of older Traceloop from ``llm.request.functions.<n>.*``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

from semconv.attributes import GEN_AI_TOOL_DEFINITIONS
from semconv.dialects.reading import below, items, mapping, words
from semconv.model import Attributes, AttributeValue, Span

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
"""The attributes of a span that list tools, names with values."""


def tools_of(span: Span) -> str:
    """Return the tools as ``name(parameters): description``, one a line, in the span's order."""
    return tools_in(lists_of(span))


def lists_of(span: Span) -> Lists:
    """Return what lists tools; most spans have nothing of the kind, and an agent's calls all the same."""
    return tuple([pair for pair in span.attributes.items() if pair[0].startswith(_PREFIXES)])


def tools_in(lists: Lists) -> str:
    """Return the tools that are listed, as ``tools_of`` does."""
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
    schema = next(filter(None, (mapping(function.get(key)) for key in _SCHEMAS)), {})
    parameters = ", ".join(islice(mapping(schema.get("properties")), _MOST_PARAMETERS))
    description = " ".join(words(function.get("description")).split())[:_LONGEST_DESCRIPTION]
    return f"{name}({parameters})" + (f": {description}" if description else "")
