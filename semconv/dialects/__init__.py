"""Dialects: how frameworks write spans, one file each.

A further dialect is one file and one line in ``DIALECTS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from semconv.dialects.action import Action, ActionKind, Dialect, Judgement, Message, ToolCall
from semconv.dialects.ag2 import AG2
from semconv.dialects.agent_framework import AGENT_FRAMEWORK
from semconv.dialects.autogen import AUTOGEN
from semconv.dialects.blamespan import BLAMESPAN
from semconv.dialects.claude_code import CLAUDE_CODE
from semconv.dialects.google_adk import GOOGLE_ADK
from semconv.dialects.langfuse import LANGFUSE
from semconv.dialects.langsmith import LANGSMITH
from semconv.dialects.litellm import LITELLM
from semconv.dialects.logfire import LOGFIRE
from semconv.dialects.mastra import MASTRA
from semconv.dialects.mlflow import MLFLOW
from semconv.dialects.openai_agents_v2 import OPENAI_AGENTS_V2
from semconv.dialects.openinference import OPENINFERENCE
from semconv.dialects.openlit import OPENLIT
from semconv.dialects.otel_genai import OTEL_GENAI
from semconv.dialects.pydantic_ai import PYDANTIC_AI
from semconv.dialects.strands import STRANDS
from semconv.dialects.surroundings import Surroundings
from semconv.dialects.traceloop import TRACELOOP
from semconv.dialects.vercel_ai import VERCEL_AI
from semconv.model import Span

DIALECTS: Final[tuple[Dialect, ...]] = (
    BLAMESPAN,
    AUTOGEN,
    OPENINFERENCE,  # before gen_ai: pydantic-ai's and Strands' OpenInference spans carry both
    GOOGLE_ADK,  # known by their scopes, whatever attributes others add
    STRANDS,
    CLAUDE_CODE,
    LANGFUSE,
    LANGSMITH,
    MLFLOW,
    LOGFIRE,
    LITELLM,  # before Traceloop, one of whose marks it writes too, over the spans of others
    OPENAI_AGENTS_V2,  # before gen_ai, whose attributes it fills with placeholders
    TRACELOOP,  # before gen_ai, which its newer versions speak too
    PYDANTIC_AI,
    AGENT_FRAMEWORK,
    AG2,
    VERCEL_AI,
    MASTRA,  # before gen_ai, whose messages stand on the span around its calls
    OPENLIT,  # before gen_ai, whose operations it stretches
    OTEL_GENAI,
)
"""First match wins."""


def read_action(
    span: Span, surroundings: Surroundings, dialects: Sequence[Dialect] = DIALECTS
) -> Action | None:
    """Return what the span stands for, or ``None`` for a span that no dialect knows."""
    for dialect in dialects:
        action = dialect.read(span, surroundings)
        if action is not None:
            return action
    return None


__all__ = [
    "DIALECTS",
    "Action",
    "ActionKind",
    "Dialect",
    "Judgement",
    "Message",
    "Surroundings",
    "ToolCall",
    "read_action",
]
