"""Function models in place of a provider, and the framework's own instrumentation, as its guide shows."""

import asyncio
from collections.abc import Callable

import pytest
from agents import analyst, answer, researcher
from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, models
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

models.ALLOW_MODEL_REQUESTS = False


@pytest.fixture(scope="session", autouse=True)
def instrumented() -> None:
    """Instrument all agents."""
    Agent.instrument_all(InstrumentationSettings(tracer_provider=TracerProvider()))


def scripted(tool: str, said: str, **arguments: str) -> FunctionModel:
    """Return a model that calls a tool and then says a text."""

    def reply(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart(tool, arguments)])
        return ModelResponse(parts=[TextPart(said)])

    return FunctionModel(reply)


@pytest.fixture
def ask() -> Callable[..., str]:
    """Ask the desk, whose models say these texts."""

    def asked(price: str, total: str, seats: int = 30) -> str:
        question = f"What do {seats} tickets from Calais to Dover cost in total?"
        looked_up = scripted("ticket_price", price, crossing="Calais to Dover")
        added_up = scripted("ask_researcher", total, question="What does a ticket from Calais to Dover cost?")
        with researcher.override(model=looked_up), analyst.override(model=added_up):
            return asyncio.run(answer(question))

    return asked
