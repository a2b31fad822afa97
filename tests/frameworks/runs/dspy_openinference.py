"""DSPy, instrumented by OpenInference: a program of three modules, one of which calls a tool."""

from __future__ import annotations

import os
from typing import Any

import dspy
from openinference.instrumentation.dspy import DSPyInstrumentor
from story import CONCIERGE, INSTRUCTIONS, MODEL, PURSER, QUESTION, REGISTRAR, SEATS, VESSEL, look_up_vessel
from telemetry import traces


class PlainWords(dspy.ChatAdapter):
    """Takes the scripted model's words as the answer; as long as it cannot find them, calls the tool."""

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Return the fields that the signature requires."""
        is_found = any(str(SEATS[VESSEL]) in each for each in FOUND)
        tool = {
            "next_tool_name": "finish" if is_found else look_up.__name__,
            "next_tool_args": {} if is_found else {"name": VESSEL},
        }
        return {name: tool.get(name, completion) for name in signature.output_fields}


FOUND: list[str] = []


def look_up(name: str) -> str:
    """Look a vessel up in the ship register: how many seats it has."""
    FOUND.append(look_up_vessel(name))
    return FOUND[-1]


look_up.__name__ = "look_up_vessel"


class concierge(dspy.Module):  # noqa: N801 - a module is known by its class, and the story by these names
    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Predict(asking("question -> answer", CONCIERGE))(question=question)


class registrar(dspy.Module):  # noqa: N801
    def forward(self, question: str) -> dspy.Prediction:
        react = dspy.ReAct(asking("question -> answer", REGISTRAR), tools=[look_up], max_iters=5)
        return react(question=question)


class purser(dspy.Module):  # noqa: N801
    def forward(self, question: str, found: str) -> dspy.Prediction:
        asked = asking("question, found -> answer", PURSER)
        return dspy.ChainOfThought(asked)(question=question, found=found)


class Office(dspy.Module):
    """The program: one module after the other."""

    def forward(self, question: str) -> dspy.Prediction:
        concierge()(question=question)
        return purser()(question=question, found=registrar()(question=question).answer)


def asking(fields: str, who: str) -> type[dspy.Signature]:
    return dspy.Signature(fields, INSTRUCTIONS[who])


with traces() as provider:
    DSPyInstrumentor().instrument(tracer_provider=provider)
    model = dspy.LM(
        f"openai/{MODEL}",
        api_base=os.environ["OPENAI_BASE_URL"],
        api_key="dummy",
        num_retries=0,
        cache=False,
    )
    dspy.configure(lm=model, adapter=PlainWords())
    print(Office()(question=QUESTION).answer)
