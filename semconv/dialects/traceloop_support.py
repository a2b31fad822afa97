"""What each framework tells through OpenLLMetry's instrumentations."""

from __future__ import annotations

from typing import Final

from semconv.dialects.support import Support, gives, lacks, partly

_LANGCHAIN: Final = "opentelemetry.instrumentation.langchain"

TRACELOOP_SUPPORT: Final = (
    Support(
        framework="langgraph, langchain",
        instrumentation="opentelemetry-instrumentation-langchain 0.40 to 0.62 (Traceloop)",
        source="recorded",
        agent=gives("langgraph's metadata; older, in a task's input, else the path of tasks"),
        text=gives("`gen_ai.*.messages`; older, `gen_ai.prompt.<n>.*`"),
        tools=gives("`gen_ai.tool.*`; older, `traceloop.entity.*`"),
        handoff=partly("transfer tools; a graph's own edges are no steps"),
        task=gives("the workflow span's `traceloop.entity.*`"),
        errors=gives("span status; a handled error may be told only in the result"),
        scopes=(_LANGCHAIN,),
        recordings=("langgraph-traceloop",),
        switches=("TRACELOOP_TRACE_CONTENT=true",),
    ),
    Support(
        framework="crewai",
        instrumentation="opentelemetry-instrumentation-crewai 0.62 (Traceloop)",
        source="recorded",
        agent=gives("`gen_ai.agent.name` on agents; calls below inherit it"),
        text=partly("a task's description and output; model calls only with that client's own beside it"),
        tools=lacks("no spans; the next model call has heard what they returned"),
        handoff=lacks("a delegation is a tool, and has no span"),
        task=gives("`crewai.crew.tasks`, `crewai.crew.result` on the crew; a flow's crews are traces apart"),
        errors=gives("span status"),
        scopes=("opentelemetry.instrumentation.crewai",),
        switches=("TRACELOOP_TRACE_CONTENT=true",),
    ),
    Support(
        framework="agno",
        instrumentation="opentelemetry-instrumentation-agno 0.62 (Traceloop)",
        source="recorded",
        agent=gives("`gen_ai.agent.name` on agents, `agno.team.name` on teams; calls below inherit it"),
        text=partly("agents' answers; model calls only with that client's own beside it"),
        tools=gives("`traceloop.entity.*`, no call id"),
        handoff=partly("`delegate_task_to_member`; the member's run stands beside the call"),
        task=partly("a team's; agents alone have no question, and each of a workflow's is a trace"),
        errors=gives("span status, and the status in a tool's report"),
        scopes=("opentelemetry.instrumentation.agno",),
        switches=("TRACELOOP_TRACE_CONTENT=true",),
    ),
    Support(
        framework="llama-index",
        instrumentation="opentelemetry-instrumentation-llamaindex 0.62 (Traceloop)",
        source="recorded",
        agent=gives("the set-up that a workflow's method returned before an agent's turn"),
        text=partly(
            "what the workflow's methods return; of a query engine only with that client's own beside it"
        ),
        tools=gives("`tool.name`, `tool.arguments`, and what the method that calls it returned"),
        handoff=gives("tool `handoff` with `to_agent`"),
        task=partly("the workflow's own has the answer; the question is the first set-up's"),
        errors=partly("a tool's own report; what failed, and all around it, is never sent"),
        scopes=("opentelemetry.instrumentation.llamaindex",),
        switches=("TRACELOOP_TRACE_CONTENT=true",),
    ),
    Support(
        framework="openai-agents",
        instrumentation="opentelemetry-instrumentation-openai-agents 0.62 (Traceloop)",
        source="recorded",
        agent=gives("`gen_ai.agent.name` on agents; calls below inherit it"),
        text=gives("`gen_ai.*.messages`"),
        tools=gives("`gen_ai.tool.*`, no call id"),
        handoff=partly("the target is lost: the call that asked, and the next agent, tell"),
        task=partly("first and last model call; nothing on the root"),
        errors=gives("span status"),
        scopes=("opentelemetry.instrumentation.openai_agents",),
        recordings=("openai_agents-traceloop",),
        switches=("TRACELOOP_TRACE_CONTENT=true",),
    ),
)
