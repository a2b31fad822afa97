"""The story with Claude Code, driven by its Agent SDK: the concierge calls two subagents; the tool is served
over MCP.

The SDK includes the command line that it drives; the only server used is ``ANTHROPIC_BASE_URL``.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import claude_agent_sdk
from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, tool
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MAX_TURNS,
    PURPOSE,
    PURSER,
    QUESTION,
    REGISTRAR,
    TOOL,
    TOOL_PURPOSE,
    VARIANT,
    look_up_vessel,
)

CLAUDE = "claude-sonnet-4-5"
"""A model name that the command line knows; the server accepts any."""
LOOK_UP = f"mcp__register__{TOOL}"


def answer() -> str:
    """Run the variant of the environment and return the concierge's answer."""
    return asyncio.run(_answer())


async def _answer() -> str:
    said = ""
    # By its module, since an instrumentation replaces it there.
    async for message in claude_agent_sdk.query(prompt=QUESTION, options=_options()):
        if isinstance(message, ResultMessage):
            said = f"{message.subtype}: {message.result}"
    return said


def _options() -> ClaudeAgentOptions:
    @tool(TOOL, TOOL_PURPOSE, {"name": str})
    async def look_up(arguments: dict[str, Any]) -> dict[str, Any]:
        found = await asyncio.to_thread(look_up_vessel, arguments["name"])
        return {"content": [{"type": "text", "text": found}]}

    return ClaudeAgentOptions(
        system_prompt=INSTRUCTIONS[CONCIERGE],
        model=CLAUDE,
        max_turns=MAX_TURNS if VARIANT == "max_turns" else None,
        tools=["Agent"],
        allowed_tools=["Agent", LOOK_UP],
        mcp_servers={"register": create_sdk_mcp_server("register", tools=[look_up])},
        agents={REGISTRAR: _agent(REGISTRAR, LOOK_UP), PURSER: _agent(PURSER)},
        strict_mcp_config=True,
        setting_sources=[],
        env={"BETA_TRACING_ENDPOINT": os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]},
    )


def _agent(name: str, *tools: str) -> AgentDefinition:
    turns = MAX_TURNS if VARIANT == "max_turns" else None
    return AgentDefinition(
        description=PURPOSE[name], prompt=INSTRUCTIONS[name], tools=list(tools), maxTurns=turns
    )
