"""LlamaIndex, instrumented by Traceloop, without its model client: a workflow of agents that hand over."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.llms.openai import OpenAI
from opentelemetry.instrumentation.llamaindex import LlamaIndexInstrumentor
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MODEL,
    PURPOSE,
    PURSER,
    QUESTION,
    REGISTRAR,
    VARIANT,
    look_up_vessel,
)
from telemetry import traces


def agent(name: str, *tools: Callable[..., str], reaches: str | None = None) -> FunctionAgent:
    return FunctionAgent(
        name=name,
        description=PURPOSE[name],
        system_prompt=INSTRUCTIONS[name],
        llm=OpenAI(model=MODEL, api_base=os.environ["OPENAI_BASE_URL"], api_key="dummy", max_retries=0),
        tools=list(tools),
        can_handoff_to=[reaches] if reaches else [],
        streaming=VARIANT == "streaming",
    )


async def main() -> None:
    agents = [
        agent(CONCIERGE, reaches=REGISTRAR),
        agent(REGISTRAR, look_up_vessel, reaches=PURSER),
        agent(PURSER),
    ]
    print(await AgentWorkflow(agents=agents, root_agent=CONCIERGE).run(user_msg=QUESTION))


with traces() as provider:
    LlamaIndexInstrumentor().instrument(tracer_provider=provider)
    asyncio.run(main())
