"""camel-ai, under OpenInference for the client of OpenAI; it has no OpenTelemetry of its own."""

from __future__ import annotations

import os

from camel.agents import ChatAgent
from camel.models import ModelFactory
from camel.toolkits import FunctionTool
from camel.types import ModelPlatformType
from camel.utils import BaseTokenCounter
from openinference.instrumentation.openai import OpenAIInstrumentor
from story import CONCIERGE, INSTRUCTIONS, MODEL, PURSER, QUESTION, REGISTRAR, look_up_vessel
from telemetry import traces


class Letters(BaseTokenCounter):
    """Counts without a table of tokens from the network."""

    def count_tokens_from_messages(self, messages: list[object]) -> int:
        return sum(len(str(message)) for message in messages) // 4

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, token_ids: list[int]) -> str:
        return "".join(map(chr, token_ids))


def agent(name: str, *tools: object) -> ChatAgent:
    model = ModelFactory.create(
        model_platform=ModelPlatformType.OPENAI_COMPATIBLE_MODEL,
        model_type=MODEL,
        url=os.environ["OPENAI_BASE_URL"],
        api_key="dummy",
        max_retries=0,
        token_counter=Letters(),
    )
    return ChatAgent(INSTRUCTIONS[name], model=model, tools=[FunctionTool(tool) for tool in tools])


def ask_registrar(question: str) -> str:
    """Ask the registrar.

    Args:
        question: what is asked.
    """
    return str(registrar.step(question).msgs[0].content)


def ask_purser(question: str) -> str:
    """Ask the purser.

    Args:
        question: what is asked.
    """
    return str(purser.step(question).msgs[0].content)


with traces() as provider:
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    registrar, purser = agent(REGISTRAR, look_up_vessel), agent(PURSER)
    concierge = agent(CONCIERGE, ask_registrar, ask_purser)
    with provider.get_tracer("ferry").start_as_current_span("ferry office"):
        print(concierge.step(QUESTION).msgs[0].content)
