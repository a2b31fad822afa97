"""Models that know the decisive step and answer questions about it: honestly, falsely, or as told."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from typing import Final

from analyzer.inquiry.method import Prompt, Reply

_PART: Final = re.compile(r"one of the steps (\d+) to (\d+)\?")


@dataclass(slots=True, kw_only=True)
class PartOracle:
    """Answers whether the decisive step is in the part in question; lies at a given rate."""

    step: int
    lies: float = 0.0
    quote: str = ""
    """Its words of the step: without a true quote the method abstains."""
    fix: str = ""
    """Its proposal for the step; an oracle may have none."""
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    questions: int = 0

    async def __call__(self, prompt: Prompt) -> Reply:
        self.questions += 1
        asked = _PART.search(prompt.messages[-1].content.rpartition("Is the decisive error")[2])
        assert asked is not None
        says_yes = int(asked.group(1)) <= self.step <= int(asked.group(2))
        if self.chance.random() < self.lies:
            says_yes = not says_yes
        answer = {"reason": "r", "answer": "yes" if says_yes else "no"}
        proposed = {"fix": self.fix} if self.fix else {}
        return Reply(text=json.dumps({**answer, "step": self.step, "quote": self.quote, **proposed}))
