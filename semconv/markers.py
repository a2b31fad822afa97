"""Markers: byte patterns that identify agents' spans in raw OTLP, before decoding.

The fast lane searches for these bytes: a trace with a marker is recorded for analysis, all others only pass
through. A false match costs one decode; a missed one costs a verdict. Sources: the captures of each
framework, and the semantic conventions named beside each entry.
"""

from __future__ import annotations

from typing import Final

ATTRIBUTE_PREFIXES: Final[tuple[str, ...]] = (
    "gen_ai.",  # OpenTelemetry GenAI conventions, and most frameworks beside their own
    "a2a.",  # the Agent2Agent protocol, in the GenAI conventions
    "openinference.",  # openinference.span.kind is on every OpenInference span
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
    "haystack.",
    "genkit:",
    "spring.ai.",
    "lmnr.",
    "ai.operationId",  # Vercel's AI SDK, on every span
    "blamespan.",
)
"""Prefixes of attribute keys of agents' spans.

``logfire.`` is left out: it is on every span of a Logfire user, including web requests; Logfire's agent
spans carry ``gen_ai.`` or a scope below.
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
    "autogen",  # autogen-core, autogen SingleThreadedAgentRuntime: most of their spans have no marked key
    "ag2",
    "gcp.vertex.agent",
    "strands",
    "crewai",
    "smolagents",
    "logfire.openai_agents",
    "com.anthropic.claude_code",
    "blamespan.",
)
"""Prefixes of the names of instrumentation scopes whose spans all belong to agents."""

_REST_OF_JSON_KEY: Final = r"[\w.:-]{0,60}(?:\\{0,7}[\"']|\\{1,7}u0022)(?:\s|\\{1,7}[nrt]){0,9}:"
"""The rest of a key, its quote, and white space; both are escaped where the JSON is a text in JSON."""
MODEL_HINTS: Final[tuple[tuple[str, str, str], ...]] = (
    # counts of a model's tokens: input_tokens, promptTokenCount
    ("_token", r"(?:input|prompt|output|completion)", _REST_OF_JSON_KEY),
    ("Token", r"(?:[iI]nput|[pP]rompt|[oO]utput|[cC]ompletion|[cC]andidates)", _REST_OF_JSON_KEY),
    # the role of a model's message, in JSON (escaped or not) and as an attribute of its own
    ('"assistant', r"[rR]ole[\\\"']{1,6}: ?[\\\"']{0,5}", r"[\\\"']"),
    ("\n\tassistant", r"[rR]ole\x12.", ""),
)
"""Signs of a model call in spans without a marker: a text, and patterns of the bytes before and behind it.

The bytes before it must match. Those behind it must match too, unless the text is in the key of an attribute:
a count in JSON is a key there, and in other texts it says nothing. Traces with a sign are read by inference
(``dialects/generic``), or by a user's mapping.
"""

WORKFLOW_VALUES: Final[tuple[tuple[str, str], ...]] = (
    ("gen_ai.operation.name", "invoke_workflow"),
    ("gen_ai.operation.name", "invoke_swarm"),  # Strands
    ("gen_ai.operation.name", "invoke_graph"),  # Strands
    ("traceloop.span.kind", "workflow"),
    ("genkit:metadata:subtype", "flow"),
    ("ag2.span.type", "conversation"),
    ("ag2.span.type", "multi_conversation"),
)
"""Attributes of a span that encloses a whole run: its end is the run's end."""

AGENT_VALUES: Final[tuple[tuple[str, str], ...]] = (
    ("gen_ai.operation.name", "invoke_agent"),
    ("openinference.span.kind", "AGENT"),
    ("traceloop.span.kind", "agent"),
    ("langfuse.observation.type", "agent"),
    ("langsmith.span.kind", "agent"),
    ("mlflow.spanType", "AGENT"),
    ("mlflow.spanType", '"AGENT"'),  # MLflow writes its values as JSON
    ("ag2.span.type", "agent"),
    ("spring.ai.kind", "chat_client"),
    ("genkit:metadata:subtype", "agent"),
    ("genkit:metadata:subtype", "executable-prompt"),
    ("ai.operationId", "ai.generateText"),
    ("ai.operationId", "ai.streamText"),
)
"""Attributes of a span that encloses one agent's work."""

CARRIER_SCOPE: Final = "blamespan"
"""The scope of the processor's own spans and logs; emitters' scopes are longer (``blamespan.…``)."""

CARRIER_KEY: Final = "blamespan.carrier"
"""A true value marks a carrier, whatever its sender."""

OWN_CALL_TRACE_PREFIX: Final = "b1a3e5ba9d0c5e1f"
"""First 16 hex digits of the trace ids that our own model calls propagate; the other 16 are random.

Spans that a traced model proxy sends under such an id are forwarded and never analysed.
"""
