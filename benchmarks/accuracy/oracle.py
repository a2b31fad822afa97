"""A model that knows the label and answers every method correctly; counts the tokens it is sent.

It reads each question from the prompt's end, and never reads the log.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any

from analyzer.inquiry.method import Prompt, Reply
from semconv.model import Step

LONGEST_QUESTION = 3_000
CONTEXT_TOKENS = 128_000
PART = re.compile(r"Is the decisive error in one of the steps (\d+) to (\d+)\?")
NEWEST = re.compile(r"The newest step, (\d+), is by")
CANDIDATES = re.compile(r"Answer it for each of: ((?:step \d+(?:, )?)+)")


def count_tokens(text: str) -> int:
    """Count tokens with GPT-4o's tokeniser."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm  # noqa: PLC0415 - seconds

    return int(litellm.token_counter(model="gpt-4o", text=text))


@dataclass(slots=True, kw_only=True)
class Oracle:
    """Answers about one run whose decisive step is known."""

    steps: tuple[Step, ...]
    decisive: int
    name: str = "oracle"
    context_tokens: int = CONTEXT_TOKENS
    left: list[int] = field(default_factory=list)
    """First and last suspect of the current binary search."""

    def price(self, _prompt: Prompt) -> float | None:
        """Return 0."""
        return 0.0

    async def complete(self, prompt: Prompt) -> Reply:
        """Answer one prompt."""
        text = self._answer(prompt)
        asked = "\n".join(message.content for message in prompt.messages)
        return Reply(
            text=text, input_tokens=count_tokens(asked), output_tokens=count_tokens(text), cost_usd=0.0
        )

    def _answer(self, prompt: Prompt) -> str:
        question = prompt.messages[-1].content[-LONGEST_QUESTION:]
        if parts := PART.findall(question):
            first, last = map(int, parts[-1])
            is_there = first <= self.decisive <= last
            suspect = {"step": self.decisive, "quote": self._quote(self.decisive), "fix": "do it right"}
            return json.dumps({"reason": "so", "answer": "yes" if is_there else "no", **suspect})
        if newest := NEWEST.findall(question):
            return f"1. {'Yes' if int(newest[-1]) == self.decisive else 'No'}.\n2. Reason: so"
        if candidates := CANDIDATES.findall(question):
            return self._rulings([int(number) for number in re.findall(r"\d+", candidates[-1])])
        if "upper half, lower half" in question:
            return self._half()
        if "Agent Name:" in question:
            return f"Agent Name: {self._step.agent}\nStep Number: {self.decisive}\nReason for Mistake: so"
        return json.dumps(self._judgment())

    @property
    def _step(self) -> Step:
        return self.steps[self.decisive]

    def _quote(self, index: int) -> str:
        return " ".join(self.steps[index].output.split())[:60]

    def _judgment(self) -> dict[str, Any]:
        quoted = {"step": self.decisive, "quote": self._quote(self.decisive)}
        return {
            "reason": "this step made the first mistake that was never mended",
            "step": self.decisive,
            "agent": self._step.agent,
            "mode": "other",
            "fix": "do it right",
            "evidence": [quoted],
            "path": [quoted],
            "ranking": [{"step": self.decisive, "probability": 0.8}],
        }

    def _rulings(self, candidates: list[int]) -> str:
        answers = [
            {
                "step": index,
                "why": "so",
                "quote": self._quote(index),
                "holds": index == self.decisive,
                "confidence": 0.9,
                "instead": "",
            }
            for index in candidates
        ]
        return json.dumps({"answers": answers})

    def _half(self) -> str:
        low, high = self.left or [0, len(self.steps) - 1]
        middle = low + (high - low + 2) // 2
        is_upper = self.decisive < middle
        self.left = [low, middle - 1] if is_upper else [middle, high]
        return "upper half" if is_upper else "lower half"
