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
        framework="smolagents",
        instrumentation="`opentelemetry-instrumentation-genai-smolagents` 1.2b0",
        source="recorded",
        agent=gives("`gen_ai.agent.name`; a manager's span encloses its agents'"),
        text=partly("agents' questions and answers; no spans of model calls"),
        tools=lacks("no spans of tools"),
        handoff=lacks("managed agents run inside the manager's span; the calls that ask them are not told"),
        task=partly("the root `invoke_agent`, with content on"),
        errors=gives("status and `error.type`"),
        scopes=("opentelemetry.instrumentation.genai.smolagents",),
        switches=_SWITCHES,
    ),
    Support(
        framework="langgraph, langchain",
        instrumentation="openlit 1.45",
        source="recorded",
        agent=partly(
            "by the agent's span that runs around the call; a supervisor's own, and an asked one's, nowhere"
        ),
        text=gives("`gen_ai.{input,output}.messages`"),
        tools=gives("arguments and result; the id is another than the model's"),
        handoff=gives("tool `transfer_to_X`"),
        task=gives("the first and the last model call; the root has the answer"),
        errors=gives("status and exception"),
        scopes=("openlit.instrumentation.langgraph",),
    ),
    Support(
        framework="google-genai",
        instrumentation="`opentelemetry-instrumentation-google-genai` 1.3b0",
        source="recorded",
        agent=lacks("only what stands around the calls tells"),
        text=partly(
            "off by default; automatic function calling: one span for all calls, with the last answer"
        ),
        tools=partly("functions that the client calls by itself, with content on; no call id"),
        handoff=lacks("the client has none"),
        task=partly("not on the root: the first and the last model call"),
        errors=gives("status and `error.type`"),
        scopes=("opentelemetry.instrumentation.google_genai",),
        switches=_SWITCHES,
    ),
    Support(
        framework="semantic-kernel",
        instrumentation="built in, 1.45",
        source="recorded",
        agent=gives("`gen_ai.agent.name` on `invoke_agent`; calls below inherit it"),
        text=partly("log events, with the switch"),
        tools=gives("arguments and result"),
        handoff=gives("function `Handoff-transfer_to_X`"),
        task=partly("not on the root: the first and the last model call"),
        errors=gives("status and `error.type`"),
        scopes=("semantic_kernel.",),
        switches=("SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true",),
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
