# ruff: noqa: E501 - the lines of a generated page are as long as they are
"""What the pages on frameworks say beyond what is read off the suite: one record a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkPage:
    """A page on one framework."""

    framework: str
    """As in the catalogue of the run scripts; names the file too."""
    title: str
    supports: tuple[str, ...]
    """Its names in the dialects' declarations."""
    first: tuple[str, ...] = ()
    """Runs to show first, in this order; the others follow by name."""
    advice: str
    """What to choose, in a sentence or two."""
    from_kit: tuple[tuple[str, str], ...] = ()
    """Functions of the scripts' kit that instrument too: module and name."""

    @property
    def file_name(self) -> str:
        """The page's file in docs/frameworks."""
        return f"{self.framework}.md"


PAGES: Final = (
    FrameworkPage(
        framework="openai-agents",
        title="OpenAI Agents SDK",
        supports=("openai-agents",),
        first=("openai_agents_openinference", "openai_agents_genai"),
        advice="Take OpenInference if you have no other: it tells most without a switch. Unless you say"
        " `set_trace_processors([])`, the SDK sends every run to OpenAI as well.",
    ),
    FrameworkPage(
        framework="langgraph",
        title="LangGraph and LangChain",
        supports=("langgraph, langchain",),
        first=("langgraph_openinference", "langgraph_genai"),
        advice="Take the one that you have already; all six are read. Give every agent a name"
        ' (`create_agent(…, name="researcher")`): a plain function as a node has no other.',
    ),
    FrameworkPage(
        framework="pydantic-ai",
        title="Pydantic AI",
        supports=("pydantic-ai",),
        first=("pydantic_ai_v6",),
        advice='Its own instrumentation is enough. Name the agents: `Agent(model, name="researcher")`.',
    ),
    FrameworkPage(
        framework="crewai",
        title="CrewAI",
        supports=("crewai",),
        advice="Instrument the model's client beside CrewAI: CrewAI's instrumentation alone has no spans of"
        " model calls.",
    ),
    FrameworkPage(
        framework="autogen",
        title="AutoGen",
        supports=("autogen-agentchat", "autogen-agentchat, autogen-core"),
        first=("autogen_openinference", "autogen_native"),
        advice="AutoGen's own spans show turns and tools, but no model calls; with OpenInference beside them"
        " those are there too, and what is told twice is counted once.",
    ),
    FrameworkPage(
        framework="ag2",
        title="AG2",
        supports=("ag2",),
        first=("ag2_1", "ag2_native"),
        advice="AG2 1.x and 0.x are instrumented differently. In 1.x tell the middleware the agent's name,"
        " or nothing names it.",
        from_kit=(("ag2_1_story", "_answer"),),
    ),
    FrameworkPage(
        framework="smolagents",
        title="smolagents",
        supports=("smolagents",),
        advice="Name managed agents; the span of one that fails is never sent, which no setting mends.",
    ),
    FrameworkPage(
        framework="google-adk",
        title="Google ADK",
        supports=("google-adk",),
        advice="ADK emits spans by itself, but puts what was said into log events: send logs to blamespan too,"
        " by the same endpoint. `logs()` below is what does it.",
    ),
    FrameworkPage(
        framework="strands",
        title="Strands Agents",
        supports=("strands-agents",),
        advice="Strands emits spans by itself, content included; an exporter is all it needs.",
    ),
    FrameworkPage(
        framework="agent-framework",
        title="Microsoft Agent Framework",
        supports=("agent-framework",),
        first=("agent_framework_handoff",),
        advice="It emits spans by itself once they are switched on; without `enable_sensitive_data` there is"
        " nothing of what was said, and blame rests on errors and order alone.",
        from_kit=(("agent_framework_story", "answer"),),
    ),
    FrameworkPage(
        framework="agno",
        title="Agno",
        supports=("agno",),
        advice="OpenInference instruments it: teams, members and their tools.",
    ),
    FrameworkPage(
        framework="llama-index",
        title="LlamaIndex",
        supports=("llama-index",),
        advice="OpenInference instruments it. Name the agents of a workflow.",
    ),
    FrameworkPage(
        framework="dspy",
        title="DSPy",
        supports=("dspy",),
        advice="OpenInference instruments it. What is an agent to you should be a module of its own: a step is"
        " told by the nearest `dspy.Module` of yours around it.",
    ),
    FrameworkPage(
        framework="litellm",
        title="LiteLLM",
        supports=("litellm",),
        advice="Its callback shows model calls, and nothing of agents or tools: with a framework around it,"
        " instrument that too. Without `USE_OTEL_LITELLM_REQUEST_SPAN=true` it writes each call over your own"
        " span.",
    ),
    FrameworkPage(
        framework="claude-agent-sdk",
        title="Claude Code and the Claude Agent SDK",
        supports=("claude-agent-sdk", "Claude Code"),
        first=("claude_code_native", "claude_code_detailed", "claude_code_background"),
        advice="Claude Code, which the SDK drives, traces itself (a beta of its makers): model calls, tools and"
        " subagents; it tells more than OpenInference, which sees no model calls. Send its log events too: answers"
        " stand there. Its detailed tracing, which also needs `BETA_TRACING_ENDPOINT` (the same address), writes"
        " prompts and answers into the spans. Subagents work in the background by default, and each of their"
        " reports then begins a trace of its own, which is joined to the first by the call that the report names:"
        " `OTEL_LOG_USER_PROMPTS=1` shows it. `CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1` keeps a task in one trace.",
    ),
)
