"""A model that answers as its script says, and OpenTelemetry's instrumentation, as a project sets them up."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agents import ticket_desk
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider


class Scripted(BaseChatModel):
    """The researcher calls its tool and then says ``price``; the analyst says ``total``."""

    price: str
    total: str

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> "Scripted":
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        said = AIMessage(self.total)
        if "researcher" in str(messages[0].content):
            called = {"name": "ticket_price", "args": {"crossing": "Calais to Dover"}, "id": "call_1"}
            is_told = isinstance(messages[-1], ToolMessage)
            said = AIMessage(self.price) if is_told else AIMessage("", tool_calls=[called])
        return ChatResult(generations=[ChatGeneration(message=said)])


@pytest.fixture(scope="session", autouse=True)
def instrumented() -> Iterator[None]:
    """Instrument LangChain."""
    LangChainInstrumentor().instrument(tracer_provider=TracerProvider())
    yield
    LangChainInstrumentor().uninstrument()


@pytest.fixture
def ask() -> Callable[..., str]:
    """Ask the desk, whose model says these texts."""

    def asked(price: str, total: str, seats: int = 30) -> str:
        question = f"What do {seats} tickets from Calais to Dover cost in total?"
        ended = ticket_desk(Scripted(price=price, total=total)).invoke({"messages": [("user", question)]})
        return str(ended["messages"][-1].content)

    return asked
