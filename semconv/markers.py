"""What gives an agent's spans away in raw OTLP bytes, before anything is decoded.

The fast lane reads these as bytes: a marked trace is recorded for analysis,
all else only passes through. A marker too many costs a decode; a marker too
few costs a verdict. Sources: the captures of each framework, and the semantic
conventions named beside each entry.
"""

from __future__ import annotations

from typing import Final

ATTRIBUTE_PREFIXES: Final[tuple[str, ...]] = (
    "gen_ai.",  # OpenTelemetry GenAI conventions, and most frameworks beside their own
    "openinference.",  # openinference.span.kind stands on every OpenInference span
    "llm.",  # OpenInference model calls; older Traceloop
    "traceloop.",
    "langfuse.",
    "langsmith.",
    "mlflow.span",
    "pydantic_ai.",
    "ag2.",
    "gcp.vertex.agent",
    "claude_code",
    "crewai.",
    "langgraph.",
    "smolagents.",
    "ai.operationId",  # Vercel's AI SDK, on every span
    "blamespan.",
)
"""Beginnings of attribute keys of agent spans.

``logfire.`` is not among them: it stands on every span of a Logfire user, web
requests too; Logfire's agent spans carry ``gen_ai.`` or a scope below.
"""

SCOPE_PREFIXES: Final[tuple[str, ...]] = (
    "openinference.",
    "opentelemetry.instrumentation.genai",
    "opentelemetry.instrumentation.openai_agents",
    "opentelemetry.instrumentation.ag2",
    "opentelemetry.instrumentation.crewai",
    "opentelemetry.instrumentation.langchain",
    "traceloop.",
    "langfuse",
    "langsmith",
    "pydantic-ai",
    "pydantic_ai",
    "agent_framework",
    "autogen",  # autogen-core, autogen SingleThreadedAgentRuntime: most of their spans carry no marked key
    "ag2",
    "gcp.vertex.agent",
    "strands",
    "crewai",
    "smolagents",
    "logfire.openai_agents",
    "com.anthropic.claude_code",
    "blamespan.",
)
"""Beginnings of instrumentation scope names all of whose spans are an agent's."""

WORKFLOW_VALUES: Final[tuple[tuple[str, str], ...]] = (
    ("gen_ai.operation.name", "invoke_workflow"),
    ("gen_ai.operation.name", "invoke_swarm"),  # Strands
    ("gen_ai.operation.name", "invoke_graph"),  # Strands
    ("traceloop.span.kind", "workflow"),
    ("ag2.span.type", "conversation"),
    ("ag2.span.type", "multi_conversation"),
)
"""Attributes of a span that encloses a whole run: when it ends, the run has ended."""

AGENT_VALUES: Final[tuple[tuple[str, str], ...]] = (
    ("gen_ai.operation.name", "invoke_agent"),
    ("openinference.span.kind", "AGENT"),
    ("traceloop.span.kind", "agent"),
    ("langfuse.observation.type", "agent"),
    ("langsmith.span.kind", "agent"),
    ("mlflow.spanType", "AGENT"),
    ("mlflow.spanType", '"AGENT"'),  # MLflow writes its values as JSON
    ("ag2.span.type", "agent"),
    ("ai.operationId", "ai.generateText"),
    ("ai.operationId", "ai.streamText"),
)
"""Attributes of a span that encloses one agent's work."""

CARRIER_SCOPE: Final = "blamespan"
"""The scope of what the processor itself emits; emitters' scopes are longer (``blamespan.…``)."""

CARRIER_KEY: Final = "blamespan.carrier"
"""A true value marks a carrier, whoever sent it."""

OWN_CALL_TRACE_PREFIX: Final = "b1a3e5ba9d0c5e1f"
"""First 16 hex digits of the trace ids that our own model calls send on.

Spans of a traced model proxy that come back under such an id are passed on and
never analysed. The other 16 digits are random.
"""
