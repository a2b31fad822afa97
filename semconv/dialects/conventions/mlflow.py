"""MLflow Tracing: autologging of frameworks and ``@mlflow.trace``, exported as OTLP.

Source: mlflow 3.17 (2026), ``mlflow/entities/span.py``, ``mlflow/tracing/constant.py``,
``mlflow/langchain``, ``mlflow/openai/_agent_tracer.py``; seen with langgraph 1.2 and openai-agents 0.24.
Values of ``mlflow.*`` are JSON, including strings. An agent span named after a framework's class and method
(``AgentRunner.run``) does not name the agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from semconv.dialects.reading.action import FUNCTION_KINDS, Action, ActionKind, Dialect, Surroundings
from semconv.dialects.reading.agent_names import NAMELESS_GRAPHS, Found, graph_agent
from semconv.dialects.reading.observations import Observation, action_of, handoff_of
from semconv.dialects.reading.values import mapping, structured, words
from semconv.model import AgentSource, Span

NAME: Final = "mlflow"

SPAN_TYPE: Final = "mlflow.spanType"
SPAN_INPUTS: Final = "mlflow.spanInputs"
SPAN_OUTPUTS: Final = "mlflow.spanOutputs"
OPENAI_ROOT: Final = "mlflow.openai.agent_run_root"
METADATA: Final = "metadata"
CALL_ID: Final = "tool_call_id"
INSTRUCTIONS: Final = "instructions"

_KINDS: Final[Mapping[str, ActionKind]] = {
    "LLM": ActionKind.LLM,
    "CHAT_MODEL": ActionKind.LLM,
    "TOOL": ActionKind.TOOL,
    "RETRIEVER": ActionKind.TOOL,
    "AGENT": ActionKind.AGENT,
    "RERANKER": ActionKind.OTHER,
    "GUARDRAIL": ActionKind.GUARDRAIL,
    "EVALUATOR": ActionKind.EVALUATION,
    "WORKFLOW": ActionKind.WORKFLOW,
}
"""Span types; any other (CHAIN, TASK, PARSER, EMBEDDING, MEMORY, UNKNOWN) is a container."""
_METHOD: Final = re.compile(r"^\w+\.\w+$")
_NUMBERED: Final = re.compile(r"_\d+$")
"""Older versions number spans that have the same name: ``lookup_1``, ``lookup_2``."""


def read_mlflow(span: Span, surroundings: Surroundings) -> Action | None:
    """Read a span with an ``mlflow.spanType``."""
    if not _is_traced(span):
        return None
    given, got = _value(span, SPAN_INPUTS), _value(span, SPAN_OUTPUTS)
    if isinstance(given, Mapping) and given.keys() == {"from_agent"}:
        return handoff_of(span, NAME, {**given, **mapping(got)})
    kind = _kind_of(span, surroundings)
    is_settings = isinstance(got, Mapping) and got.keys() == {"output_type"}  # openai-agents' agents
    return action_of(
        span,
        Observation(
            dialect=NAME,
            kind=kind,
            agent=_agent_of(span, kind, surroundings),
            given=given,
            got=None if is_settings else got,
            tool=_NUMBERED.sub("", span.name),
            function=_NUMBERED.sub("", span.name) if kind in FUNCTION_KINDS else "",
            call_id=words(_value(span, CALL_ID)),
            instructions=words(_value(span, INSTRUCTIONS)),
        ),
    )


def _value(span: Span, key: str) -> Any:
    return structured(span.attributes.get(key))


def _kind_of(span: Span, surroundings: Surroundings) -> ActionKind:
    if words(span.attributes.get(OPENAI_ROOT)) == "true":
        return ActionKind.WORKFLOW
    kind = _KINDS.get(words(_value(span, SPAN_TYPE)), ActionKind.CONTAINER)
    if kind is ActionKind.CONTAINER:
        above = surroundings.parent(span)
        if above is None or SPAN_TYPE not in above.attributes:
            return ActionKind.WORKFLOW
    return kind


def _metadata(span: Span) -> Mapping[str, object]:
    return mapping(span.attributes.get(METADATA))


def _agent_of(span: Span, kind: ActionKind, surroundings: Surroundings) -> Found:
    found = graph_agent(span, surroundings, _metadata)
    if found.name is None and kind is ActionKind.AGENT:
        name = _NUMBERED.sub("", span.name)
        if name not in NAMELESS_GRAPHS and not _METHOD.match(name):
            return Found(name, AgentSource.SPAN_NAME)
    return found


def _is_traced(span: Span) -> bool:
    return SPAN_TYPE in span.attributes


MLFLOW: Final = Dialect(name=NAME, read=read_mlflow, keys=frozenset({SPAN_TYPE}))
