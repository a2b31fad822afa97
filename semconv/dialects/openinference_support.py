"""What frameworks tell in OpenInference: one entry for each of its instrumentations that was read or seen."""

from __future__ import annotations

from typing import Final

from semconv.dialects.support import Gift, Support, gives, lacks, partly

_SCOPE: Final = "openinference.instrumentation"
_HIDDEN: Final = ("OPENINFERENCE_HIDE_INPUTS=false", "OPENINFERENCE_HIDE_OUTPUTS=false")
_MESSAGES: Final = gives("`llm.input_messages`, `llm.output_messages`; long runs lose the oldest to limits")
_VALUES: Final = gives("`tool.name`, `input.value`, `output.value`")
_ROOT: Final = gives("the root's `input.value` and `output.value`")
_FAILING: Final = gives("status and `exception` events")


def _support(  # noqa: PLR0913 - one argument an aspect
    framework: str,
    version: str,
    scope: str,
    *,
    agent: Gift,
    text: Gift = _MESSAGES,
    tools: Gift = _VALUES,
    handoff: Gift,
    task: Gift = _ROOT,
    errors: Gift = _FAILING,
    recordings: tuple[str, ...] = (),
    source: str = "recorded",
) -> Support:
    return Support(
        framework=framework,
        instrumentation=version,
        source=source,
        agent=agent,
        text=text,
        tools=tools,
        handoff=handoff,
        task=task,
        errors=errors,
        scopes=(f"{_SCOPE}.{scope}",),
        recordings=recordings,
        switches=_HIDDEN,
    )


OPENINFERENCE_SUPPORT: Final = (
    _support(
        "openai-agents",
        "`openinference-instrumentation-openai-agents` 2.6",
        "openai_agents",
        agent=gives("`agent.name` on AGENT spans"),
        handoff=gives("TOOL span `handoff to X`"),
        task=partly("the root has neither; read from the first and the last model call"),
        errors=partly("the root says OK after a crash; the error of the agent below it is taken"),
        recordings=("openai_agents-openinference", "oa-crash"),
    ),
    _support(
        "langgraph, langchain",
        "`openinference-instrumentation-langchain` 0.1.80",
        "langchain",
        agent=partly("no AGENT span: JSON in `metadata` (`lc_agent_name`, checkpoint namespace, node)"),
        handoff=partly("`transfer_to_X` tools; a plain `goto` is routing and no step"),
        errors=partly("a handled tool error has status OK; read from the tool message's `status`"),
        recordings=("langgraph-openinference", "lg-crash"),
    ),
    _support(
        "crewai",
        "`openinference-instrumentation-crewai` 1.1",
        "crewai",
        agent=gives("`graph.node.id` on AGENT spans"),
        text=partly("no spans of model calls: the task's prompt and answer stand for them"),
        handoff=lacks("a delegation is the coworker's own work, its tools and its answer are the coworker's"),
        task=gives("`crew_inputs` and `crew_tasks` on the root"),
        recordings=("crewai-openinference",),
    ),
    _support(
        "autogen-agentchat",
        "`openinference-instrumentation-autogen-agentchat` 0.1.22",
        "autogen_agentchat",
        agent=gives("`graph.node.id` on AGENT spans; managers by AutoGen's own spans around them"),
        handoff=gives("tool `transfer_to_X`"),
        errors=gives("the outer span says OK; AutoGen's own inside it has the error"),
        recordings=("autogen-openinference", "autogen_openinference"),
    ),
    _support(
        "smolagents",
        "`openinference-instrumentation-smolagents` 0.1.43",
        "smolagents",
        agent=partly("the span's name, `X.run`; managed agents by `smolagents.managed_agents`"),
        handoff=lacks("managed agents are tools that enclose the agent"),
        recordings=("smolagents-openinference",),
    ),
    _support(
        "ag2",
        "`openinference-instrumentation-ag2` 0.1.12",
        "ag2",
        agent=gives("`agent.name`; bookkeepers are left out"),
        text=partly("replies on agents' spans; no spans of model calls"),
        recordings=("ag2_openinference",),
        handoff=partly("a plain tool, recognised by the agent that speaks next"),
    ),
    _support(
        "agno",
        "`openinference-instrumentation-agno` 1.0",
        "agno",
        agent=gives("`agent.name`; `graph.node.id` is a hash"),
        recordings=("agno_openinference",),
        handoff=partly("`delegate_task_to_member`; the member's run stands beside the call"),
    ),
    _support(
        "llama-index",
        "`openinference-instrumentation-llama-index` 4.6",
        "llama_index",
        agent=gives("the event that a step of an `AgentWorkflow` was given"),
        handoff=gives("tool `handoff` with `to_agent`"),
        task=partly("the workflow's own has only its wiring; read from the first and the last model call"),
    ),
    _support(
        "dspy",
        "`openinference-instrumentation-dspy` 0.1.48",
        "dspy",
        agent=partly("the user's own module that a call stands in; predictors inside one are not told apart"),
        handoff=lacks("modules are called, and return"),
    ),
    _support(
        "google-adk",
        "`openinference-instrumentation-google-adk` 1.0.5",
        "google_adk",
        agent=gives("`agent.name`, `gen_ai.agent.name`"),
        text=partly("ADK 2: an agent's span is written over with each of its model calls; the last is told"),
        handoff=gives("tool `transfer_to_agent` with `agent_name`"),
    ),
    _support(
        "pydantic-ai",
        "`openinference-instrumentation-pydantic-ai` 0.1.30",
        "pydantic_ai",
        agent=gives("`agent_name`, `gen_ai.agent.name`"),
        text=partly("a call that failed has none"),
        recordings=("pydantic_ai_openinference",),
        handoff=lacks("pydantic-ai has none; agents are asked as tools"),
    ),
    _support(
        "claude-agent-sdk",
        "`openinference-instrumentation-claude-agent-sdk` 0.1.22",
        "claude_agent_sdk",
        agent=partly("`subagent_type` of the tool that started it; the main one has no name"),
        text=partly(
            "no spans of model calls: an agent's answer stands for its last; that it asked is told nowhere"
        ),
        handoff=lacks("the tool that starts the subagent encloses it"),
        errors=partly("a subagent says OK after a crash; the error of the tool that runs it is taken"),
    ),
)
