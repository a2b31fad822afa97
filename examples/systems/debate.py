"""A debate of five with AG2: one proposes a total, three check it in turn, a judge decides.

    OPENAI_BASE_URL=http://127.0.0.1:8900/v1 python examples/systems/debate.py 7

Prints the answer to order 7. Its spans are AG2's own, with the content of messages.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import redirect_stdout

from autogen import ConversableAgent, GroupChat, GroupChatManager, LLMConfig
from autogen.opentelemetry import instrument_agent, instrument_llm_wrapper
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from program import run_as_program, telemetry

SEATS = {
    "proposer": "Propose a total.",
    "critic": "Check the proposed total.",
    "defender": "Answer the critic.",
    "second_critic": "Check the total once more.",
    "judge": "Decide.",
}


INSTRUMENTED: list[TracerProvider] = []
"""The tracer provider, if spans are sent."""


async def answer(task: str, base_url: str) -> str:
    """Run the debate; return the judge's answer."""
    return await asyncio.to_thread(_debate, task, base_url)


def _debate(task: str, base_url: str) -> str:
    config = LLMConfig({"model": "gpt-4o-mini", "base_url": base_url, "api_key": "none", "max_retries": 0})
    config.cache_seed = None  # otherwise AG2 answers equal requests from its own cache
    seats = [
        ConversableAgent(
            seat,
            system_message=f"You are the {seat.removeprefix('second_')}. {job}",
            llm_config=config,
            human_input_mode="NEVER",
            silent=True,
        )
        for seat, job in SEATS.items()
    ]
    customer = ConversableAgent("customer", llm_config=False, human_input_mode="NEVER", silent=True)
    chat = GroupChat([customer, *seats], speaker_selection_method="round_robin", max_round=len(seats) + 1)
    manager = GroupChatManager(chat, llm_config=False, silent=True)
    if INSTRUMENTED:
        for seat in seats:
            instrument_agent(seat, tracer_provider=INSTRUMENTED[0])
    span = trace.get_tracer("debate").start_as_current_span("debate")
    with span, redirect_stdout(sys.stderr):  # AG2 prints even when silent
        customer.initiate_chat(manager, message=task, silent=True)
    return str(chat.messages[-1]["content"])


def instrument() -> None:
    """Turn on AG2's own spans."""
    INSTRUMENTED.append(telemetry("debate"))
    instrument_llm_wrapper(tracer_provider=INSTRUMENTED[0], capture_messages=True)


if __name__ == "__main__":
    run_as_program(answer, instrument, asyncio.run)
