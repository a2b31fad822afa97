"""What frameworks tell in OpenTelemetry's own GenAI conventions, where no further dialect reads them."""

from __future__ import annotations

from typing import Final

from semconv.dialects.support import Support, gives, lacks, partly

_SWITCHES: Final = (
    "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY",
)
_OPT_IN: Final = partly("off by default; `gen_ai.{input,output}.messages`, or a log event")

OTEL_GENAI_SUPPORT: Final = (
    Support(
        framework="langgraph, langchain",
        instrumentation="`opentelemetry-instrumentation-genai-langchain` 1.3b0",
        source="recorded",
        agent=partly("`gen_ai.agent.name` on `invoke_agent`; plain functions as nodes have none"),
        text=_OPT_IN,
        tools=partly("arguments and result with content on"),
        handoff=partly("no span: the `transfer_to_X` call in the answer, once its result was heard"),
        task=partly("the root `invoke_workflow`, with content on"),
        errors=partly("a handled tool error leaves the status unset"),
        scopes=("opentelemetry.instrumentation.genai.langchain",),
        recordings=("langgraph-genai_official",),
        switches=_SWITCHES,
    ),
    Support(
        framework="openai-agents",
        instrumentation="`opentelemetry-instrumentation-genai-openai-agents` 1.3b0",
        source="recorded",
        agent=gives("`gen_ai.agent.name` on `invoke_agent`"),
        text=partly("model calls only with `opentelemetry-instrumentation-genai-openai` beside it"),
        tools=partly("arguments and result with content on"),
        handoff=partly("no span: the `transfer_to_X` call in the answer, once its result was heard"),
        task=partly("not on the root: the first and the last model call"),
        errors=gives("status and `error.type`"),
        scopes=("opentelemetry.instrumentation.genai.openai_agents",),
        switches=_SWITCHES,
    ),
    Support(
        framework="ag2",
        instrumentation="built in, 0.14 and 1.2",
        source="recorded",
        agent=gives("`gen_ai.agent.name` on agents (0.14: on calls too); bookkeepers are left out"),
        text=gives("`gen_ai.{input,output}.messages`"),
        tools=gives("`gen_ai.tool.call.*`, under the executor; given to the agent that asked"),
        handoff=partly("a plain tool, recognised by the agent that speaks next"),
        task=gives("0.14: the root; 1.x: the first and the last message"),
        errors=partly("status unset; `error.type` alone"),
        scopes=("opentelemetry.instrumentation.ag2",),
        recordings=("ag2-native",),
    ),
    Support(
        framework="agent-framework",
        instrumentation="built in, 1.23",
        source="recorded",
        agent=gives("`gen_ai.agent.name` on `invoke_agent`"),
        text=partly("off by default"),
        tools=partly("arguments and result with content on"),
        handoff=gives("`transfer`/`handoff_to_X` tools"),
        task=partly("not on the root: the first and the last `invoke_agent`"),
        errors=gives("status and `error.type`"),
        scopes=("agent_framework",),
        recordings=("agent_framework-handoff",),
        switches=("configure_otel_providers(enable_sensitive_data=True)",),
    ),
    Support(
        framework="any other that writes `gen_ai.*`",
        instrumentation="the conventions as of November 2026",
        source="source",
        agent=partly("`gen_ai.agent.name`, where it is set; calls inherit it"),
        text=_OPT_IN,
        tools=partly("arguments and result with content on"),
        handoff=lacks("the conventions have none; `transfer_to_X` calls are recognised"),
        task=partly("`invoke_workflow` with content on, else the first and the last model call"),
        errors=gives("status, `error.type`, `exception` events"),
        switches=_SWITCHES,
    ),
)
