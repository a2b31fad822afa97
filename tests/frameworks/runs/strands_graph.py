"""Strands, whose agents emit OpenTelemetry by themselves: a graph, with the latest conventions."""

from __future__ import annotations

from itertools import pairwise

from story import AGENTS, INSTRUCTIONS, MODEL, QUESTION, REGISTRAR, TOOL, TOOL_PURPOSE, look_up_vessel
from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.multiagent import GraphBuilder
from telemetry import traces

look_up = tool(name=TOOL, description=TOOL_PURPOSE)(look_up_vessel)

with traces():
    graph = GraphBuilder()
    for name in AGENTS:
        agent = Agent(
            name=name,
            system_prompt=INSTRUCTIONS[name],
            model=OpenAIModel(client_args={"max_retries": 0}, model_id=MODEL),
            tools=[look_up] if name == REGISTRAR else [],
            callback_handler=None,
        )
        graph.add_node(agent, name)
    for before, after in pairwise(AGENTS):
        graph.add_edge(before, after)
    graph.set_entry_point(AGENTS[0])
    print(graph.build()(QUESTION).status)
