"""langgraph's supervisor, instrumented by OpenTelemetry's official instrumentation of langchain."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph_story import told
from langgraph_supervisor import create_supervisor
from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor
from story import (
    CONCIERGE,
    INSTRUCTIONS,
    MODEL,
    PURSER,
    QUESTION,
    REGISTRAR,
    TOOL,
    TOOL_PURPOSE,
    look_up_vessel,
)
from telemetry import traces

with traces() as provider:
    LangChainInstrumentor().instrument(tracer_provider=provider)
    model = ChatOpenAI(model=MODEL, max_retries=0)
    look_up = tool(TOOL, description=TOOL_PURPOSE)(look_up_vessel)
    members = [
        create_agent(model, tools, system_prompt=INSTRUCTIONS[name], name=name, middleware=[told])
        for name, tools in ((REGISTRAR, [look_up]), (PURSER, []))
    ]
    office = create_supervisor(
        members, model=model, prompt=INSTRUCTIONS[CONCIERGE], supervisor_name=CONCIERGE
    ).compile()
    ended = office.invoke({"messages": [{"role": "user", "content": QUESTION}]}, {"recursion_limit": 50})
    print(ended["messages"][-1].content)
