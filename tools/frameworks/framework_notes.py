# ruff: noqa: E501 - lines of generated pages cannot be wrapped
"""Hand-written parts of the framework pages, one record per page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkPage:
    """A page on one framework."""

    framework: str
    """Name in the catalogue of run scripts, and of the page's file."""
    title: str
    supports: tuple[str, ...]
    """Names of the framework in ``support.toml``."""
    first: tuple[str, ...] = ()
    """Runs shown first, in this order; the others follow by name."""
    advice: str
    """Recommended instrumentation, in a sentence or two."""
    from_kit: tuple[tuple[str, str], ...] = ()
    """Functions of the scripts' kit that also instrument, as (module, name)."""

    @property
    def file_name(self) -> str:
        """The page's file in docs/frameworks."""
        return f"{self.framework}.md"


OTHER_LANGUAGES: Final = (
    FrameworkPage(
        framework="vercel-ai",
        title="Vercel AI SDK",
        supports=("Vercel AI SDK",),
        first=("vercel_ai_v7",),
        advice="Give every run a `functionId`: it is the agent's name, and blamespan has no other. Version 7 writes"
        " OpenTelemetry's GenAI conventions, versions 4 to 6 spans of their own; both record all texts unless you"
        " switch them off.",
    ),
    FrameworkPage(
        framework="mastra",
        title="Mastra",
        supports=("Mastra",),
        advice="Its exporter records agents, model calls, tools and texts without further settings.",
    ),
    FrameworkPage(
        framework="voltagent",
        title="VoltAgent",
        supports=(),
        advice="VoltAgent writes spans by itself; only add an exporter. No dialect reads them: the steps are inferred. One"
        " span holds an agent's whole loop of model calls, so only its last answer is a step; each tool is one.",
    ),
    FrameworkPage(
        framework="langchain-js",
        title="LangChain.js",
        supports=("LangChain.js",),
        first=("langchain_js_openinference",),
        advice='Use OpenInference: its spans nest and name the agents (`createAgent({ name: "researcher" })`). Pass'
        " the tool's `config` on to an agent that a tool runs, or its spans are a trace of their own.",
    ),
    FrameworkPage(
        framework="openai-agents-js",
        title="OpenAI Agents SDK for JavaScript",
        supports=("openai-agents, JavaScript",),
        advice="The SDK itself traces to OpenAI only; OpenInference turns its traces into OpenTelemetry spans.",
    ),
    FrameworkPage(
        framework="genkit",
        title="Genkit",
        supports=("Genkit",),
        first=("genkit_js", "genkit_go"),
        advice="Genkit writes spans by itself; only add an exporter. Make each agent a flow: the flow's name is the"
        " agent's. An error of a tool ends the flow, unless the tool returns it as a text.",
    ),
    FrameworkPage(
        framework="openai-go",
        title="OpenAI's client for Go",
        supports=(),
        advice="No instrumentation for Go has to be installed: three spans by hand, in OpenTelemetry's GenAI"
        " conventions, are enough. Name the agent on each of them.",
    ),
    FrameworkPage(
        framework="langchain4j",
        title="LangChain4j (Quarkus)",
        supports=("LangChain4j",),
        advice="The Quarkus extension writes a span for each AI service, model call and tool. Add"
        " `quarkus-opentelemetry`, and switch texts, arguments and results on: without them a wrong answer cannot"
        " be traced to a step. An agent is called after the interface of its AI service.",
    ),
    FrameworkPage(
        framework="spring-ai",
        title="Spring AI",
        supports=("Spring AI",),
        advice="Spring AI writes Micrometer observations; Spring Boot's OpenTelemetry starter exports them. They hold no"
        " texts of model calls and no agents' names. blamespan names a chat client that a tool runs after that tool,"
        " so give each agent a tool or an `@Observed` method of its own, and switch the content of tools on:"
        " without it a wrong answer cannot be traced to a step.",
    ),
)
"""Pages of programs in JavaScript, Go and Java."""

PAGES: Final = (
    FrameworkPage(
        framework="openai-agents",
        title="OpenAI Agents SDK",
        supports=("openai-agents",),
        first=("openai_agents_openinference", "openai_agents_genai"),
        advice="If you have no instrumentation yet, use OpenInference: it records most without extra settings."
        " Unless you call `set_trace_processors([])`, the SDK also sends every run to OpenAI.",
    ),
    FrameworkPage(
        framework="langgraph",
        title="LangGraph and LangChain",
        supports=("langgraph, langchain",),
        first=("langgraph_openinference", "langgraph_genai"),
        advice="Keep the instrumentation that you have; blamespan reads all six. Give every agent a name"
        ' (`create_agent(…, name="researcher")`); blamespan has no other name for it.',
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
        advice="AutoGen's own spans show turns and tools, but no model calls. OpenInference adds the model calls;"
        " blamespan counts a call once that both record.",
    ),
    FrameworkPage(
        framework="ag2",
        title="AG2",
        supports=("ag2",),
        first=("ag2_1", "ag2_native"),
        advice="AG2 1.x and 0.x are instrumented differently. In 1.x, pass the agent's name to the middleware;"
        " otherwise no span contains it.",
        from_kit=(("ag2_1_story", "_answer"),),
    ),
    FrameworkPage(
        framework="smolagents",
        title="smolagents",
        supports=("smolagents",),
        advice="Name managed agents. If a managed agent fails, its span is never sent; no setting changes this.",
    ),
    FrameworkPage(
        framework="google-adk",
        title="Google ADK",
        supports=("google-adk",),
        advice="ADK emits spans by itself, but puts message texts into log events. Send the logs to blamespan too,"
        " to the same endpoint, as `logs()` does below.",
    ),
    FrameworkPage(
        framework="strands",
        title="Strands Agents",
        supports=("strands-agents",),
        advice="Strands emits spans by itself, with content. You only need to add an exporter.",
    ),
    FrameworkPage(
        framework="agent-framework",
        title="Microsoft Agent Framework",
        supports=("agent-framework",),
        first=("agent_framework_handoff",),
        advice="Agent Framework emits spans by itself once you turn them on. Without `enable_sensitive_data` they"
        " contain no message texts, so verdicts rest on errors and order alone.",
        from_kit=(("agent_framework_story", "answer"),),
    ),
    FrameworkPage(
        framework="agno",
        title="Agno",
        supports=("agno",),
        advice="Use OpenInference: it records teams, members and their tools.",
    ),
    FrameworkPage(
        framework="llama-index",
        title="LlamaIndex",
        supports=("llama-index",),
        advice="Use OpenInference, and name the agents of a workflow.",
    ),
    FrameworkPage(
        framework="dspy",
        title="DSPy",
        supports=("dspy",),
        advice="Use OpenInference, and write each agent as its own `dspy.Module`: blamespan assigns a step to your"
        " nearest enclosing module.",
    ),
    FrameworkPage(
        framework="camel-ai",
        title="camel-ai",
        supports=(),
        advice="camel-ai has no OpenTelemetry of its own: instrument OpenAI's client, and put one span around the run."
        " Tools have no spans; agents are distinguished by their prompts, so begin each with `You are the registrar …`.",
    ),
    FrameworkPage(
        framework="haystack",
        title="Haystack",
        supports=("haystack",),
        advice="OpenInference has no spans of tools and names no agents: blamespan reads tools' results from the next"
        " model call, and tells agents apart by their prompts, so begin each with `You are the registrar …`.",
    ),
    FrameworkPage(
        framework="semantic-kernel",
        title="Semantic Kernel",
        supports=("semantic-kernel",),
        advice="Semantic Kernel writes spans by itself once the setting below is on. The texts of model calls are Python's"
        " log records: send them too, with OpenTelemetry's `LoggingHandler`.",
    ),
    FrameworkPage(
        framework="beeai",
        title="BeeAI",
        supports=("beeai",),
        advice="OpenInference records agents, model calls, tools and texts without further settings.",
    ),
    FrameworkPage(
        framework="litellm",
        title="LiteLLM",
        supports=("litellm",),
        advice="LiteLLM's callback records model calls, but no agents or tools. If you call LiteLLM from a framework,"
        " instrument the framework too. Set `USE_OTEL_LITELLM_REQUEST_SPAN=true`, or the callback overwrites your own"
        " span with the call.",
    ),
    FrameworkPage(
        framework="claude-agent-sdk",
        title="Claude Code and the Claude Agent SDK",
        supports=("claude-agent-sdk", "Claude Code"),
        first=("claude_code_native", "claude_code_detailed", "claude_code_background"),
        advice="The SDK runs Claude Code, which can trace itself (a beta feature). Its own traces contain model calls,"
        " tools and subagents; OpenInference records no model calls. Send its log events too: they contain the"
        " answers. Detailed tracing, which also needs `BETA_TRACING_ENDPOINT` (the same address), adds prompts and"
        " answers to the spans. By default subagents work in the background, and each of their reports begins a new"
        " trace. blamespan joins it to the first trace by the call id in the report, which is recorded only with"
        " `OTEL_LOG_USER_PROMPTS=1`. `CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1` keeps a task in one trace.",
    ),
    *OTHER_LANGUAGES,
)
